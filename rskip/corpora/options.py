"""Defines the options of preparing a corpus."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from msgspec import Meta

from rskip.corpora.corpus import CleaningOptions, Corpus, Entities
from rskip.settings.check import Checked
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count, Size
from rskip.text.subwords import SubwordKind
from rskip.text.words import TokeniserKind

Option = str | int | float | bool

_SHARE = "1 in 20, at most 2,000"
_SPLIT_OFF = "your own text without such a set"
_OF_SOME = {
    "pairs": "generated corpora",
    "valid": _SPLIT_OFF,
    "test": _SPLIT_OFF,
    "seed": "generated corpora and split-off sets",
}
"""Options that only some corpora have (`Corpus.choices`)."""


_Limit = Annotated[int, Meta(ge=0)]


def _meta(description: str, **extra: str) -> Meta:
    return Meta(description=description, extra=extra)


@dataclass(frozen=True, kw_only=True)
class PrepareOptions(Checked):
    """All options that change the bytes of a prepared corpus, those of `CleaningOptions` among them.

    None stands for the corpus's own default.

    :raises SettingError: a value is not allowed.
    """

    subwords: Annotated[
        SubwordKind | None,
        _meta(
            "kind of subword units; bpe: BPE of subword-nmt",
            flag="subword", default="bpe; own text: sentencepiece-bytes",
        ),
    ] = None  # fmt: skip
    size: Annotated[
        Size | None,
        _meta("BPE merges or SentencePiece units", flag="bpe-size", default="the corpus's own; own text: by its size"),
    ] = None
    tokeniser: Annotated[
        TokeniserKind | None,
        _meta("tokeniser before the subword units", flag="tokenizer", default="moses for bpe, none for SentencePiece"),
    ] = None
    lowercase: Annotated[bool, _meta("lowercase both sides; the model translates to lower case")] = False
    pairs: Annotated[Count | None, _meta("number of training pairs of a generated corpus")] = None
    valid: Annotated[
        Count | None, _meta("pairs to split off as the validation set if none is given", default=_SHARE)
    ] = None
    test: Annotated[Count | None, _meta("pairs to split off as the test set if none is given", default=_SHARE)] = None
    seed: Annotated[
        int | None, _meta("random seed for a generated corpus, and for splitting sets off your own text")
    ] = None
    clean: Annotated[bool, _meta("False: only the cleaning that other options ask for")] = True
    remove_non_printing: Annotated[bool | None, _meta("remove control and format characters")] = None
    entities: Annotated[
        Entities | None, _meta("keep HTML entities such as &quot;, or convert them to characters")
    ] = None
    empty: Annotated[bool | None, _meta("drop pairs with an empty side", flag="drop-empty")] = None
    max_words: Annotated[_Limit | None, _meta("drop pairs with over N words on a side; 0: no limit")] = None
    max_characters: Annotated[_Limit | None, _meta("drop pairs with over N characters on a side; 0: no limit")] = None
    max_ratio: Annotated[
        float | None,
        _meta(
            "drop pairs if a side has over R times the words of the other; 0: no limit",
            metavar="R", expected="a number, 1 or more, or 0 for any",
        ),
    ] = None  # fmt: skip
    duplicates: Annotated[bool | None, _meta("drop all but the first of equal pairs", flag="drop-duplicates")] = None
    leaks: Annotated[bool | None, _meta("drop pairs that are also in valid or test", flag="drop-leaks")] = None
    languages: Annotated[
        bool | None, _meta("drop pairs with a side in the wrong language", flag="language-filter")
    ] = None
    learn_sample: Annotated[
        Count | None,
        _meta(
            "learn the units from every k-th pair, about N in total "
            "(default: at most 5,000,000; SentencePiece 500,000)"
        ),
    ] = None
    bpe_dropout: Annotated[
        Annotated[float, Meta(ge=0, lt=1)],
        _meta(
            "probability of skipping a merge, only in the training set",
            metavar="P", expected="a probability, 0 or more and below 1",
        ),
    ] = 0.0  # fmt: skip
    shards: Annotated[
        Annotated[int, Meta(ge=1, le=500)],  # whose files are open at a time
        _meta("split the training set into N parts, for corpora larger than memory; fairseq-train reads one per epoch"),
    ] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_ratio and self.max_ratio < 1:
            raise SettingError.of_value("max_ratio", self.max_ratio, "a number, 1 or more, or 0 for any")

    def resolve(self, corpus: Corpus) -> PrepareOptions:
        """These options with the corpus's defaults filled in. Cleaning options that are off by default stay None.

        Resolving twice changes nothing.

        :raises SettingError: the corpus does not have an option.
        """
        subwords = self.subwords or corpus.defaults.subwords
        if self.bpe_dropout and subwords != "bpe":
            raise SettingError("bpe_dropout", f"is for subwords bpe, not for {subwords}")
        resolved: dict[str, Any] = {"clean": True, "subwords": subwords, "size": self.size or corpus.defaults.size}
        for name, kind in _OF_SOME.items():
            if name in corpus.choices:
                if getattr(self, name) is None:
                    resolved[name] = corpus.choices[name]
            elif getattr(self, name) is not None:
                raise SettingError(name, f"is for {kind}, not for {corpus.name}")
        for field in dataclasses.fields(CleaningOptions):
            default, value = getattr(corpus.defaults.cleaning, field.name), getattr(self, field.name)
            if value is None:
                value = default if self.clean else field.default
            resolved[field.name] = None if value == field.default == default else value
        return dataclasses.replace(self, **resolved)

    def to_plain(self) -> dict[str, Option]:
        """The options for records and data folders, without those that are None or have their general default.

        `PrepareOptions(**plain)` gives the same options.
        """
        plain = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }
        if self.max_ratio is not None and float(self.max_ratio).is_integer():
            plain["max_ratio"] = int(self.max_ratio)  # 9 and 9.0 are one option
        return plain

    @property
    def cleaning(self) -> CleaningOptions:
        """The cleaning options, if these options are resolved."""
        chosen = {field.name: getattr(self, field.name) for field in dataclasses.fields(CleaningOptions)}
        return CleaningOptions(**{name: value for name, value in chosen.items() if value is not None})


def command_line_flags(options: PrepareOptions) -> dict[str, Option]:
    """The flags of `rskip prepare` for these options, without leading dashes. The value True stands for a bare flag."""
    hints = get_type_hints(PrepareOptions, include_extras=True)
    flags: dict[str, Option] = {}
    for name, value in options.to_plain().items():
        flag = (hints[name].__metadata__[0].extra or {}).get("flag", name.replace("_", "-"))
        if value is False:
            flags[f"no-{flag}"] = True
        else:
            flags[flag] = value
    return flags
