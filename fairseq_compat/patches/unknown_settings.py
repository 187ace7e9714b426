"""Refuses wrong settings of fairseq-hydra-train in one line: unknown groups, names and keys, and wrong values.

fairseq-train refuses an unknown flag. fairseq-hydra-train ignores an unknown setting of an argparse architecture, which
has no dataclass to compare with, and one that `+` adds. For others it prints a traceback or Hydra's lines, which advise
to add the misspelt setting.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from fairseq_compat.one_line_errors import UsageError, ended_in_one_line
from fairseq_compat.patch import Patch, wraps

_WRONG_TYPE = re.compile(r"Value '(.*)' of type '\w+' could not be converted to (\w+)")
_EXPECTED = {"Integer": "a whole number", "Float": "a number"}
_REPLACED_GROUP = re.compile(r"Could not override '(\w+)'\. No match in the defaults list\.[^+]*\+\w+=(.*)")


def check_hydra(module: Any) -> None:
    """Patches `fairseq_cli.hydra_train`, and Hydra, which calls it."""
    from hydra._internal import utils

    utils.run_and_report = _in_one_line(utils.run_and_report)
    module.add_defaults = _checked(module.add_defaults)


def _in_one_line(run_and_report: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the function by which Hydra prints the errors of `func`."""
    from hydra.errors import CompactHydraException

    @functools.wraps(run_and_report)
    def wrapped(func: Callable[[], Any]) -> Any:
        def refused() -> Any:
            with ended_in_one_line():
                try:
                    return func()
                except CompactHydraException as error:
                    raise UsageError(_line(error)) from error

        return run_and_report(refused)

    return wrapped


def _line(error: Exception) -> str:
    """The line for an error of Hydra's, which a file or an override caused."""
    from omegaconf import DictConfig
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError, ValidationError

    cause, message = error.__cause__, str(error).strip()
    if isinstance(cause, ValidationError):
        return _wrong_value(cause)
    if isinstance(cause, (ConfigKeyError, ConfigAttributeError)):
        key, known = str(cause.full_key), _fields(cause.object_type)
        if not known and isinstance(cause.parent_node, DictConfig):
            known = _known_settings(key.partition(".")[0], str(cause.parent_node.get("_name")))
            if not known or cause.key in known:
                return f"{key} is not in the configuration file: write +{key} to add it"
        return _unknown(key, known)
    if options := getattr(error, "options", None):
        group, _, name = str(error.missing_cfg_file).rpartition("/")  # type: ignore[attr-defined]
        return _unknown_name(group, name, options)
    if match := _REPLACED_GROUP.match(message):
        group, name = match.groups()
        known = _names(group)
        if name not in known:
            return _unknown_name(group, name, known)
        return f"{group}={name} can't replace the group of the configuration file: write {group}._name={name}"
    return ": ".join(message.splitlines()[:2])


def _wrong_value(error: Any, group: str = "") -> str:
    """The line for an `omegaconf.ValidationError`. `group` is the group that its key is relative to."""
    name, problem = ".".join(filter(None, (group, error.full_key))), str(error).splitlines()[0]
    if match := _WRONG_TYPE.fullmatch(problem):
        return f"{name} is {match[1]}: expected {_EXPECTED.get(match[2], match[2])}"
    return f"{name}: {problem}"


def _unknown(name: str, known: Iterable[str], of: str = "") -> str:
    near = get_close_matches(name.rpartition(".")[2], known, n=1)
    return f"{name} is unknown{of}: {f'did you mean {near[0]}?' if near else 'leave it out'}"


def _unknown_name(group: str, name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1)
    advice = f"did you mean {near[0]}?" if near else "give the common.user_dir that defines it, such as rskip"
    return f"{group} is {name}, which is unknown: {advice}"


def _checked(add_defaults: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wraps fairseq_cli.hydra_train's `add_defaults`, which gets the configuration first."""
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.utils import import_user_module
    from omegaconf import OmegaConf
    from omegaconf.errors import ConfigKeyError, ValidationError

    @functools.wraps(add_defaults)
    def wrapped(cfg: Any) -> None:
        import_user_module(cfg.common)
        groups = {field.name: field for field in dataclasses.fields(FairseqConfig)}
        for group, value in cfg.items():
            if group not in groups:
                raise UsageError(_unknown(group, groups))
            kind: Any = groups[group].type
            if kind is Any:
                name = value if isinstance(value, str) else getattr(value, "_name", None)
                if name and name not in (names := _names(group)):
                    raise UsageError(_unknown_name(group, name, names))
                kind = _dataclass(group, str(name))
            if kind is not None and OmegaConf.is_config(value):
                try:
                    OmegaConf.merge(kind, OmegaConf.to_container(value))
                except ConfigKeyError as error:
                    raise UsageError(_unknown(f"{group}.{error.full_key}", _fields(kind))) from error
                except ValidationError as error:
                    raise UsageError(_wrong_value(error, group)) from error
        add_defaults(cfg)

    return wrapped


def _fields(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


def _names(group: str) -> list[str]:
    """The names that a group can have."""
    from fairseq import models, registry, tasks

    if group in registry.REGISTRIES:
        return [*registry.REGISTRIES[group]["registry"]]
    return [*{"task": tasks.TASK_REGISTRY, "model": models.ARCH_MODEL_REGISTRY}.get(group, [])]


def _dataclass(group: str, name: str) -> Any:
    """The dataclass of a group's settings if the name has one."""
    from fairseq import models, registry, tasks

    if group in registry.REGISTRIES:
        return registry.REGISTRIES[group]["dataclass_registry"].get(name)
    if group == "model":
        return models.MODEL_DATACLASS_REGISTRY.get(models.ARCH_MODEL_NAME_REGISTRY.get(name, name))
    return tasks.TASK_DATACLASS_REGISTRY.get(name) if group == "task" else None


def _known_settings(group: str, name: str) -> list[str]:
    """The settings of a group with this name; empty if they are not known."""
    from fairseq import models

    if (kind := _dataclass(group, name)) is None and group == "model" and name in models.ARCH_CONFIG_REGISTRY:
        return [*_known(models, name)]
    return _fields(kind)


def check_settings(module: Any) -> None:
    """Wraps `fairseq.models.build_model`."""
    from omegaconf import OmegaConf

    @wraps(module, "build_model")
    def build_model(original: Any, cfg: Any, task: Any, from_checkpoint: bool = False) -> Any:
        name = getattr(cfg, "_name", "")
        with_dataclass = module.ARCH_MODEL_NAME_REGISTRY.get(name, name) in module.MODEL_DATACLASS_REGISTRY
        argparse_kind = name in module.ARCH_CONFIG_REGISTRY and not with_dataclass
        if OmegaConf.is_config(cfg) and argparse_kind and not from_checkpoint:
            known = _known(module, name)
            for setting, value in cfg.items():
                if setting not in known and not isinstance(value, Mapping):  # groups, such as `encoder: {layers: 2}`
                    raise UsageError(_unknown(f"model.{setting}", known, f" to the architecture {name}"))
        return original(cfg, task, from_checkpoint)


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


UNKNOWN_SETTINGS = Patch(
    name="unknown-settings",
    symptom="fairseq-hydra-train ignores a misspelt setting, exit status 0, or prints a traceback",
    after={"fairseq.models": check_settings, "fairseq_cli.hydra_train": check_hydra},
)
