"""What a translation run's result depends on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rskip.connections import parse_connection
from rskip.corpora import PrepareOptions, find_corpus
from rskip.experiments.keys import refuse_unknown_keys
from rskip.experiments.tokens_per_update import check_tokens_per_update
from rskip.settings.errors import SettingError

Flag = str | int | float | bool | None

_SET_BY_RSKIP_RUN = {
    "train": {
        "seed": "use --seeds",
        "source-lang": "it is the corpus's",
        "target-lang": "it is the corpus's",
        "user-dir": "it is always rskip",
        "save-dir": "it is the run's folder",
        "restore-file": "an interrupted run is resumed by repeating the command",
        "log-format": "it is always json, records read it",
        "cpu": "it follows the machine",
        "no-save": "averaging needs the checkpoints",
        "no-epoch-checkpoints": "averaging needs them",
        "no-last-checkpoints": "resuming needs them",
        "keep-last-epochs": "it is what average.last needs",
        "keep-interval-updates": "it is what average.last needs",
        "distributed-world-size": "use --gpus",
    },
    "generate": {
        "path": "it is the averaged checkpoint",
        "source-lang": "it is the corpus's",
        "target-lang": "it is the corpus's",
        "user-dir": "it is always rskip",
        "gen-subset": "use evaluate.split",
        "results-path": "it is the run's folder",
        "remove-bpe": "the text pipeline decodes",
        "post-process": "the text pipeline decodes",
        "quiet": "scoring needs the output",
        "cpu": "it follows the machine",
    },
}
_CONNECTION_FLAGS = ("connection", "encoder-connection", "decoder-connection")


@dataclass(frozen=True, kw_only=True)
class AverageSettings:
    """Which checkpoints are averaged: the last `last` (1: no averaging).

    They are those of epochs, or those of updates where the recipe sets train.save-interval-updates.
    """

    last: int = 10


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings:
    """Which split of the corpus is translated and scored."""

    split: str = "test"


@dataclass(frozen=True, kw_only=True)
class TranslationSettings:
    """Settings of one translation run.

    corpus: a name that `rskip prepare` knows; prepare: how it is prepared, the corpus's defaults filled in;
    train: flags of fairseq-train without the leading dashes, with `arch`, and `tokens-per-update`
    (`rskip.experiments.tokens_per_update`); generate: flags of fairseq-generate. A flag that is true is given
    bare, one that is false or null is left out.
    """

    corpus: str
    prepare: Mapping[str, str | int]
    train: Mapping[str, Flag]
    average: AverageSettings = AverageSettings()
    generate: Mapping[str, Flag] = field(default_factory=dict)
    evaluate: EvaluateSettings = EvaluateSettings()

    @property
    def averages_by(self) -> str:
        """Whether checkpoints are kept and averaged by "epoch" or by "update"."""
        return "update" if self.train.get("save-interval-updates") else "epoch"

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any]) -> TranslationSettings:
        """Checks and builds; raises ValueError that names the key."""
        for required in ("corpus", "train"):
            if not content.get(required):
                raise ValueError(f"{required} is missing")
        if not isinstance(content["corpus"], str):
            raise ValueError(f"corpus is {content['corpus']!r}; expected a name such as multi30k-en-de")
        prepare = _read_section(PrepareOptions, "prepare", content.get("prepare") or {})
        train, generate = (_read_flags(key, content.get(key) or {}) for key in ("train", "generate"))
        _check_training(train)
        average = _read_section(AverageSettings, "average", content.get("average") or {})
        if not isinstance(average.last, int) or isinstance(average.last, bool) or average.last < 1:
            raise ValueError(
                f"average.last is {average.last!r}; expected how many checkpoints to average, 1 or more"
            )
        _check_enough_checkpoints(train, average)
        evaluate = _read_section(EvaluateSettings, "evaluate", content.get("evaluate") or {})
        return cls(
            corpus=content["corpus"],
            prepare=prepare.resolve(find_corpus(content["corpus"])).to_plain(),
            train=train,
            average=average,
            generate=generate,
            evaluate=evaluate,
        )


def _read_flags(section: str, content: Any) -> dict[str, Flag]:
    if not isinstance(content, dict):
        raise ValueError(f"{section} is {content!r}; expected a mapping of flags to values")
    for name, value in content.items():
        if not isinstance(name, str) or not name or name.startswith("-") or "_" in name or "=" in name:
            wanted = str(name).lstrip("-").replace("_", "-")
            raise ValueError(
                f"{section}.{name}: write the flag without leading dashes and underscores, as {wanted}"
            )
        if name in _SET_BY_RSKIP_RUN.get(section, {}):
            raise ValueError(f"{section}.{name} can't be set in a recipe: {_SET_BY_RSKIP_RUN[section][name]}")
        if not (value is None or isinstance(value, (str, int, float))):
            raise ValueError(f"{section}.{name} is {value!r}; expected one value (quote what has commas)")
    return dict(content)


def _check_training(train: Mapping[str, Flag]) -> None:
    if not isinstance(train.get("arch"), str):
        raise ValueError("train.arch is missing; expected an architecture such as transformer_rskip_ln_tiny")
    if not any(train.get(limit) for limit in ("max-epoch", "max-update")):
        raise ValueError("train says no end; give train.max-epoch or train.max-update")
    check_tokens_per_update(train)
    for flag in _CONNECTION_FLAGS:
        if (text := train.get(flag)) is None:
            continue
        try:
            spec = parse_connection(str(text))
        except SettingError as error:
            raise error.named(f"train.{flag}") from None
        if spec.norm == "bn":
            raise ValueError(
                f"train.{flag}: {text} normalises over the batch, padding included; on text use +ln or +rms"
            )


def _read_section(section_class: type, name: str, content: Any) -> Any:
    if not isinstance(content, dict):
        raise ValueError(f"{name} is {content!r}; expected a mapping")
    refuse_unknown_keys(content, [f.name for f in dataclasses.fields(section_class)], within=name)
    try:
        return section_class(**content)
    except SettingError as error:
        raise error.within(name) from None


def _check_enough_checkpoints(train: Mapping[str, Flag], average: AverageSettings) -> None:
    interval, updates, epochs = (train.get(name) for name in ("save-interval-updates", "max-update", "max-epoch"))
    if interval:
        if not isinstance(interval, int) or isinstance(interval, bool) or interval < 1:
            raise ValueError(f"train.save-interval-updates is {interval!r}; expected a whole number of updates")
        if isinstance(updates, int) and 0 < updates < interval * average.last:
            raise ValueError(
                f"average.last is {average.last}, but train.max-update is {updates} and a checkpoint is written every "
                f"{interval} (train.save-interval-updates): average fewer"
            )
    elif isinstance(epochs, int) and 0 < epochs < average.last:
        raise ValueError(f"average.last is {average.last}, but train.max-epoch is {epochs}: average at most those")
