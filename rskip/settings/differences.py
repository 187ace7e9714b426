"""Lists the settings in which two pieces of work differ, for errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The settings that differ, such as "train.lr: 0.005, now 0.003". An absent setting equals one that is None.

    A mapping with the key `sha256` describes files: only its checksum must be the same. The settings of other mappings
    have dotted names. A key such as `text_sha256` is named `text`.
    """
    found = []
    for name in {**before, **now}:
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            if "sha256" not in old or "sha256" not in new:
                found += [f"{name}.{inside}" for inside in differences(old, new)]
                continue
            if old["sha256"] == new["sha256"]:
                continue
            old, new = old.get("path"), new.get("path")
        if old == new:
            found.append(f"{name}: {new}, but its files have changed since the earlier run")
        elif name.endswith("sha256") and None not in (old, new):
            short = name.removesuffix("sha256").rstrip("_.")
            found.append(f"{short}: the content has changed since the earlier run")
        else:
            found.append(f"{name}: {_said(old)}, now {_said(new)}")
    return found


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not set" if value is None else str(value)
