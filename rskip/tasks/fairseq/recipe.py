"""Checks, record fields and papers that are shared by the recipes of tasks that train with fairseq-train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rskip.settings.errors import SettingError
from rskip.settings.paper import Paper
from rskip.tasks.fairseq.flags import Flag
from rskip.tasks.task import Column

if TYPE_CHECKING:
    from rskip.connections import ConnectionSpec

VALID_LOSS = Column("valid_loss", "validation loss, bits per token")
SET_BY_A_RUN = {
    "save-dir": "the run's folder is used",
    "restore-file": "an interrupted run is resumed by repeating the command",
    "log-format": "it is always json, which run records need",
    "cpu": "it is chosen for the machine",
    "no-last-checkpoints": "they are needed to resume",
}
_GIVEN_TO_A_RUN = {"seed": "seeds", "distributed-world-size": "gpus"}
_BATCH_SIZES = ("max-tokens", "batch-size", "max-sentences")  # the last is fairseq's other name of batch-size
_ENDS = ("max-epoch", "max-update")
_TRANSFORMER = Paper(
    title="Attention Is All You Need",
    authors="Ashish Vaswani et al.",
    url="https://arxiv.org/abs/1706.03762",
    part="section 3.1",
)
_SIZES = ("embed-dim", "ffn-embed-dim", "layers", "attention-heads")


def check_flags(section: str, flags: Mapping[str, Flag], refused: Mapping[str, str]) -> None:
    """Checks for names that are not flags, and for flags that a run sets itself.

    :param section: the setting that holds the flags.
    :param refused: the flags that a recipe can't set, with the reason.
    :raises SettingError: a refused flag.
    """
    for name in flags:
        setting = f"{section}.{name}"
        if not name or name.startswith("-") or "_" in name or "=" in name:
            wanted = name.lstrip("-").replace("_", "-")
            raise SettingError(setting, f"is not a flag: write it without leading dashes and underscores, as {wanted}")
        if name in refused:
            raise SettingError(setting, f"can't be set in a recipe: {refused[name]}")


def check_training(section: str, flags: Mapping[str, Flag], *, refused: Mapping[str, str], architecture: str) -> None:
    """Checks flags of fairseq-train. They must include an architecture, a batch size and the end of the training.

    :param architecture: an example for error messages.
    :raises SettingError: a flag that `check_flags` refuses, or a missing one.
    """
    for name in flags.keys() & _GIVEN_TO_A_RUN.keys():
        raise SettingError(f"{section}.{name}", "can't be set in a recipe", instead=_GIVEN_TO_A_RUN[name])
    check_flags(section, flags, {**SET_BY_A_RUN, **refused})
    if not isinstance(flags.get("arch"), str):
        raise SettingError(f"{section}.arch", "is missing", expected=f"an architecture such as {architecture}")
    if not any(flags.get(size) for size in _BATCH_SIZES):
        problem = "has no batch size, which fairseq-train needs"
        raise SettingError(section, problem, advice=f"set {section}.max-tokens or {section}.batch-size")
    if not any(flags.get(limit) for limit in _ENDS):
        raise SettingError(section, "has no end", advice=f"set {section}.max-epoch or {section}.max-update")


def dataset(config: Mapping[str, Any]) -> str:
    """The corpus, and the split that was scored unless it is the test set."""
    corpus, split = str(config["corpus"]), config.get("evaluate", {}).get("split", "test")
    return corpus if split == "test" else f"{corpus}, {split}"


def architecture_changes(config: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that change sizes of the named architecture."""
    names = [f"{stack}-{size}" for stack in ("encoder", "decoder") for size in _SIZES]
    names.append("value-residual")
    return {name: config["train"][name] for name in names if name in config["train"]}


def paper_of(spec: ConnectionSpec) -> Paper:
    """The paper of a Transformer's connection; for the original connection, that of the Transformer."""
    return _TRANSFORMER if str(spec) == "1xskip+ln" else spec.paper
