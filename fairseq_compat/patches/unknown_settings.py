"""Refuses settings of a model that its architecture doesn't know, in files for fairseq-hydra-train.

fairseq-train refuses an unknown flag. fairseq-hydra-train ignores such a setting if the architecture is of the argparse
kind, which has no dataclass to compare with.
"""

from __future__ import annotations

import functools
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch


def check_settings(module: Any) -> None:
    """Wraps `fairseq.models.build_model`."""
    from omegaconf import OmegaConf

    original = module.build_model

    @functools.wraps(original)
    def build_model(cfg: Any, task: Any, from_checkpoint: bool = False) -> Any:
        name = getattr(cfg, "_name", "")
        with_dataclass = module.ARCH_MODEL_NAME_REGISTRY.get(name, name) in module.MODEL_DATACLASS_REGISTRY
        argparse_kind = name in module.ARCH_CONFIG_REGISTRY and not with_dataclass
        if OmegaConf.is_config(cfg) and argparse_kind and not from_checkpoint:
            known = _known(module, name)
            for setting, value in cfg.items():
                if setting not in known and not isinstance(value, Mapping):  # groups, such as `encoder: {layers: 2}`
                    near = get_close_matches(setting, known, n=1)
                    advice = f"did you mean {near[0]}?" if near else "leave it out"
                    raise UsageError(f"model.{setting} is unknown to the architecture {name}: {advice}")
        return original(cfg, task, from_checkpoint)

    build_model.checks_settings = True  # type: ignore[attr-defined]
    module.build_model = build_model


class _Read(Namespace):
    """Settings that note the names of those that are read but missing."""

    def __init__(self) -> None:
        self.missing: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.missing.add(name)
        raise AttributeError(name)


def _known(module: Any, name: str) -> set[str]:
    """The flags of the architecture, and the settings that it reads or fills in."""
    parser, settings = ArgumentParser(), _Read()
    module.ARCH_MODEL_REGISTRY[name].add_args(parser)
    with suppress(AttributeError):  # of an architecture that needs a flag
        module.ARCH_CONFIG_REGISTRY[name](settings)
    return {"_name", *(action.dest for action in parser._actions), *vars(settings), *settings.missing}


def active() -> bool:
    from fairseq import models

    return getattr(models.build_model, "checks_settings", False)


UNKNOWN_SETTINGS = Patch(
    name="unknown-settings",
    modules=("fairseq.models",),
    symptom="fairseq-hydra-train ignores a misspelt setting of an argparse architecture, exit status 0",
    after=check_settings,
    active=active,
)
