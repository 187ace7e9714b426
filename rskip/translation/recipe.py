"""Defines the settings of a translation run in a recipe."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from rskip.connections import parse_connection
from rskip.corpora import PrepareOptions, find_corpus
from rskip.corpora.prepared import find_pairs
from rskip.formulas.parameters import NORMS_OF_IMAGES
from rskip.generation import SearchOptions
from rskip.settings.check import convert, to_plain
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count
from rskip.settings.user_dir import ENVIRONMENT, import_user_dir
from rskip.tasks.fairseq.flags import Flag, Flags
from rskip.tasks.fairseq.recipe import check_flags, check_training

TOKENS_PER_UPDATE = "tokens-per-update"  # a setting in `train` that is not a flag of fairseq-train
USER_DIR = "rskip"  # fairseq's user-dir, unless train.user-dir names another one
NOT_FAIRSEQS = (TOKENS_PER_UPDATE, "user-dir")  # settings in `train` that are not flags of fairseq-train
_SET_BY_A_RUN = {
    "train": {
        "source-lang": "the corpus determines it",
        "target-lang": "the corpus determines it",
        "no-save": "averaging needs the checkpoints",
        "no-epoch-checkpoints": "averaging needs the checkpoints",
        "keep-last-epochs": "average.last determines it",
        "keep-interval-updates": "average.last determines it",
        "probe-file": "the file is in the run's folder; use probe",
        "probe-every": "use probe.every",
    },
    "generate": {
        "path": "it is always the averaged checkpoint",
        "source-lang": "the corpus determines it",
        "target-lang": "the corpus determines it",
        "user-dir": "use train.user-dir",
        "gen-subset": "use evaluate.split",
        "results-path": "it is always the run's folder",
        "remove-bpe": "the text pipeline decodes",
        "post-process": "the text pipeline decodes",
        "quiet": "scoring needs the output",
        "cpu": "it is chosen for the machine",
    },
}
# fairseq-generate's flags that are also in SearchOptions
_SEARCH = {
    "beam": "beam", "nbest": "nbest", "lenpen": "length_penalty", "min-len": "min_length", "max-len-a": "max_length_a",
    "max-len-b": "max_length_b", "unkpen": "unknown_penalty", "temperature": "temperature",
    "no-repeat-ngram-size": "no_repeat_ngram",
}  # fmt: skip
_CONNECTION_FLAGS = ("connection", "encoder-connection", "decoder-connection")
_CODE_FLAGS = ("user-dir", *_CONNECTION_FLAGS)  # in `train`: flags that import user code or depend on it


class AverageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints to average: the last `last` ones (1: no averaging).

    They are checkpoints of epochs, or of updates if the recipe sets train.save-interval-updates.
    """

    last: Annotated[int, msgspec.Meta(ge=1)] = 10


class EvaluateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The split of the corpus that is translated and scored."""

    split: Annotated[
        str, msgspec.Meta(pattern=r"^(train|valid|test)\d*$", extra={"expected": "train, valid, test, or test1, ..."})
    ] = "test"


class TranslationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a translation run.

    :param corpus: a name that `rskip prepare` knows; with `data`, the name in that folder's corpus.json.
    :param prepare: options of the preparation, completed by the corpus's defaults.
    :param data: a folder from `rskip prepare`, instead of `corpus`. The path is relative to the current folder.
    :param data_sha256: with `data`, the checksum of the folder's files. It is filled in, and another one is an error.
    :param train: flags of fairseq-train without the leading dashes, including `arch`, and `tokens-per-update` (see
        `rskip.translation.batches`). A true flag is passed without a value, and a false or null one is omitted.
        `user-dir` is your own folder, which is imported here too, so that its connections are registered.
    :param generate: flags of fairseq-generate, likewise.
    """

    corpus: str = ""
    prepare: PrepareOptions = PrepareOptions()
    data: Annotated[str, msgspec.Meta(min_length=1, extra={"expected": "a folder that rskip prepare made"})] | None = (
        None
    )
    data_sha256: str | None = None
    train: Flags
    average: AverageSettings = AverageSettings()
    generate: Flags = {}
    evaluate: EvaluateSettings = EvaluateSettings()

    def __post_init__(self) -> None:
        _resolve(self)
        architecture = "transformer_rskip_ln_tiny"
        check_training("train", self.train, refused=_SET_BY_A_RUN["train"], architecture=architecture)
        check_flags("generate", self.generate, _SET_BY_A_RUN["generate"])
        _check_tokens_per_update(self.train)
        _check_connections(self.train)
        _check_enough_checkpoints(self.train, self.average)
        _check_search(self.generate)

    @property
    def averages_by(self) -> str:
        """The kind of the checkpoints that are stored and averaged: "epoch" or "update"."""
        return "update" if self.train.get("save-interval-updates") else "epoch"

    @property
    def user_dir(self) -> str:
        """fairseq's --user-dir."""
        return str(self.train.get("user-dir") or os.environ.get(ENVIRONMENT) or USER_DIR)

    def to_plain(self) -> dict[str, Any]:
        """All settings that determine the result, as plain JSON values."""
        of_folder = {"data": self.data, "data_sha256": self.data_sha256}
        return {
            "corpus": self.corpus,
            **({"prepare": self.prepare.to_plain()} if self.data is None else of_folder),
            **{name: to_plain(getattr(self, name)) for name in ("train", "average", "generate", "evaluate")},
        }


def variant_config(written: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a variant's settings, made without running user code."""
    train = written.get("train")
    if not isinstance(train, Mapping):
        return convert(written, TranslationSettings).to_plain()
    code = {name: value for name, value in train.items() if name in _CODE_FLAGS}
    others = {name: value for name, value in train.items() if name not in code}
    config = convert({**written, "train": others}, TranslationSettings).to_plain()
    return {**config, "train": {**config["train"], **code}}


def _resolve(settings: TranslationSettings) -> None:
    if settings.data is not None:
        _resolve_folder(settings, settings.data)
        return
    if settings.data_sha256 is not None:
        raise SettingError("data_sha256", "is given without data", expected="both, or a corpus")
    if not settings.corpus:
        expected = "a name such as multi30k-en-de, or instead of corpus the setting data: a folder from `rskip prepare`"
        raise SettingError("corpus", "is missing", expected=expected)
    corpus = find_corpus(settings.corpus)
    try:
        prepare = settings.prepare.resolve(corpus)
    except SettingError as error:
        raise error.within("prepare") from None
    msgspec.structs.force_setattr(settings, "prepare", prepare)


def _resolve_folder(settings: TranslationSettings, path: str) -> None:
    """Reads corpus and checksum from the folder, and compares them with those in the settings."""
    if settings.prepare != PrepareOptions():
        raise SettingError("prepare", f"is given, but {path} is prepared already", expected="data without prepare")
    try:
        found = find_pairs(path)
    except (OSError, ValueError) as error:
        advice = "the first lines of the recipe may say how to prepare it"
        raise SettingError("data", f"can't be used: {error}", advice=advice) from None
    for name, value in (("corpus", found.corpus), ("data_sha256", found.sha256)):
        given = getattr(settings, name)
        if given and given != value:
            advice = "give the folder that the recipe was written for, or remove that line from the recipe"
            raise SettingError.of_value(name, given, f"{value!r}, as {path} has it", advice=advice)
        msgspec.structs.force_setattr(settings, name, value)
    for name, split in (("data", "train"), ("data", "valid"), ("evaluate.split", settings.evaluate.split)):
        if split not in found.splits:
            raise SettingError(name, f"needs {split}, but {path} has only {', '.join(found.splits)}")


def _check_connections(train: Mapping[str, Flag]) -> None:
    """Checks the connections, after importing the user-dir, which registers its connections."""
    if train.get("user-dir") is not None:
        import_user_dir(Path(str(train["user-dir"])), setting="train.user-dir")
    for flag in _CONNECTION_FLAGS:
        if (text := train.get(flag)) is None:
            continue
        try:
            spec = parse_connection(str(text))
        except SettingError as error:
            raise error.named(f"train.{flag}") from None
        if spec.norm in NORMS_OF_IMAGES:
            problem = f"is {text}, whose statistics would include padding"
            raise SettingError(f"train.{flag}", problem, advice="on text use +ln or +rms")


def _check_tokens_per_update(train: Mapping[str, Flag]) -> None:
    if train.get(TOKENS_PER_UPDATE) is None:
        return
    for name in (TOKENS_PER_UPDATE, "max-tokens"):
        convert(train.get(name), Count, name=f"train.{name}")
    for name in ("update-freq", "batch-size"):
        if train.get(name) is not None:
            problem = f"can't be set together with train.{TOKENS_PER_UPDATE}, which determines the batches of an update"
            raise SettingError(f"train.{name}", problem)


def _check_search(generate: Mapping[str, Flag]) -> None:
    """Checks settings of the search, since fairseq itself accepts a beam of 0."""
    given: dict[str, Any] = {"beam": 5}  # fairseq's default
    given |= {_SEARCH[flag]: value for flag, value in generate.items() if flag in _SEARCH and value is not None}
    try:
        SearchOptions(**given)
    except SettingError as error:
        raise error.named(f"generate.{next(flag for flag, name in _SEARCH.items() if name == error.name)}") from None


def _check_enough_checkpoints(train: Mapping[str, Flag], average: AverageSettings) -> None:
    interval, updates, epochs = (train.get(name) for name in ("save-interval-updates", "max-update", "max-epoch"))
    written, limit = epochs, f"train.max-epoch is {epochs}"
    if interval:
        every = convert(interval, Count, name="train.save-interval-updates")
        written = updates // every if isinstance(updates, int) and updates > 0 else None
        limit = f"train.max-update is {updates} and train.save-interval-updates {interval}"
    if isinstance(written, int) and (written > 0 or interval) and written < average.last:
        advice = f"set average.last to {max(written, 1)} or less (with --set: average.last={max(written, 1)})"
        raise SettingError("average.last", f"is {average.last}, but {limit}", advice=advice)
