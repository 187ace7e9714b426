"""Where two configs differ, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def config_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Each differing key once, as `train.lr: 0.005 there, 0.003 now; train.bf16: none there, True now`."""
    old, new = _flatten(before), _flatten(now)
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return "; ".join(f"{key}: {_shown(old, key)} there, {_shown(new, key)} now" for key in keys)


def _flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat.update(_flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _shown(flat: Mapping[str, Any], key: str) -> Any:
    return flat.get(key, "none")
