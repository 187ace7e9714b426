"""What a user chooses when a corpus is prepared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rskip.corpora.cleaning.sentence import ENTITIES
from rskip.corpora.corpus import CleaningOptions, Corpus, GeneratedCorpus
from rskip.text.subwords import subwords_class

Option = str | int | float | bool
NO_LIMIT = 0
"""Of `max_words` and `max_ratio`: any length or ratio."""

_LIMITS = ("max_words", "max_ratio")
_WHOLE_NUMBERS = ("size", "pairs", "seed", "max_words", "learn_sample", "shards")
_YES_OR_NO = tuple(field.name for field in dataclasses.fields(CleaningOptions) if isinstance(field.default, bool))


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Everything that changes the bytes of a prepared corpus. None stands for the corpus's own default.

    :param subwords: "bpe", "sentencepiece" or "sentencepiece-bpe".
    :param size: BPE merges, or SentencePiece units.
    :param pairs: training pairs; for generated corpora only.
    :param seed: for generated corpora only.
    :param clean: False: no cleaning but what the next eight ask for, whatever the corpus's defaults.
    :param remove_non_printing: as in `CleaningOptions`, like the seven below.
    :param entities: "keep" or "unescape".
    :param empty: drop pairs with an empty side.
    :param max_words: NO_LIMIT: pairs of any length.
    :param max_ratio: NO_LIMIT: pairs of any ratio.
    :param duplicates: drop all but the first of equal pairs.
    :param leaks: drop training pairs that are in valid or test.
    :param languages: drop pairs of which a side is not in its language.
    :param learn_sample: learn the subword units from about this many pairs, every k-th; None: from as many as
        `rskip.corpora.stages.learn` says.
    :param bpe_dropout: probability with which a merge is left out, in the training text alone.
    :param shards: parts of the training set, each a folder that fairseq-train reads by itself.
    """

    subwords: str = "bpe"
    size: int | None = None
    pairs: int | None = None
    seed: int | None = None
    clean: bool = True
    remove_non_printing: bool | None = None
    entities: str | None = None
    empty: bool | None = None
    max_words: int | None = None
    max_ratio: float | None = None
    duplicates: bool | None = None
    leaks: bool | None = None
    languages: bool | None = None
    learn_sample: int | None = None
    bpe_dropout: float = 0.0
    shards: int = 1

    def resolve(self, corpus: Corpus) -> dict[str, Option]:
        """The options that `corpus` has, its defaults in place; what is off, and is off by default, is left out.

        `PrepareOptions(**resolved)` resolves to the same again.

        :raises ValueError: an unknown kind of subword units, a value that can't be, or an option that the corpus
            doesn't have.
        """
        self._check_types()
        subwords_class(self.subwords)
        size = corpus.defaults.size if self.size is None else self.size
        if size < 1:
            raise ValueError(f"the number of subword units is {size}: expected 1 or more")
        resolved: dict[str, Option] = {"subwords": self.subwords, "size": size}
        if isinstance(corpus, GeneratedCorpus):
            resolved["pairs"] = corpus.pairs if self.pairs is None else self.pairs
            resolved["seed"] = corpus.seed if self.seed is None else self.seed
        elif self.pairs is not None or self.seed is not None:
            raise ValueError(f"--pairs and --seed are for generated corpora: {corpus.name} is published")
        return {**resolved, **self._resolve_cleaning(corpus.defaults.cleaning), **self._resolve_stages()}

    def _check_types(self) -> None:
        for name in _WHOLE_NUMBERS:
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise ValueError(f"{name} is {value!r}: expected a whole number")
        for name in ("clean", *_YES_OR_NO):
            if not isinstance(getattr(self, name), bool | None):
                raise ValueError(f"{name} is {getattr(self, name)!r}: expected true or false")
        for name in ("max_ratio", "bpe_dropout"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
                raise ValueError(f"{name} is {value!r}: expected a number")

    def _resolve_cleaning(self, defaults: CleaningOptions) -> dict[str, Option]:
        if self.entities not in (None, *ENTITIES):
            raise ValueError(f"entities are {self.entities!r}: expected one of {', '.join(ENTITIES)}")
        if self.max_words is not None and self.max_words < 0:
            raise ValueError(f"the most words a side may have is {self.max_words}: expected 1 or more, or 0 for any")
        if self.max_ratio is not None and self.max_ratio != NO_LIMIT and not self.max_ratio >= 1:
            raise ValueError(f"the largest ratio of lengths is {self.max_ratio}: expected 1 or more, or 0 for any")
        resolved: dict[str, Option] = {}
        for field in dataclasses.fields(CleaningOptions):
            default = _written(getattr(defaults, field.name))
            value = getattr(self, field.name)
            if value is None:
                value = default if self.clean else _written(field.default)
            if field.name == "max_ratio":
                value = int(value) if float(value).is_integer() else float(value)  # 9 and 9.0 are one option
            if value != _written(field.default) or value != default:
                resolved[field.name] = value
        return resolved

    def _resolve_stages(self) -> dict[str, Option]:
        resolved: dict[str, Option] = {}
        if self.learn_sample is not None:
            if self.learn_sample < 1:
                raise ValueError(f"the sample to learn from is {self.learn_sample} pairs: expected 1 or more")
            resolved["learn_sample"] = self.learn_sample
        if not 0 <= self.bpe_dropout < 1:
            raise ValueError(f"BPE-dropout is {self.bpe_dropout}: expected a probability, 0 or more and below 1")
        if self.bpe_dropout:
            if self.subwords != "bpe":
                raise ValueError(f"BPE-dropout is for subwords bpe, not for {self.subwords}")
            resolved["bpe_dropout"] = self.bpe_dropout
        if self.shards < 1:
            raise ValueError(f"the number of shards is {self.shards}: expected 1 or more")
        if self.shards > 1:
            resolved["shards"] = self.shards
        return resolved


def _written(value: Any) -> Option:
    """A default of CleaningOptions as PrepareOptions write it."""
    return NO_LIMIT if value is None else value


def cleaning_options(resolved: Mapping[str, Option]) -> CleaningOptions:
    """The part of resolved options that says what is cleaned."""
    names = {field.name for field in dataclasses.fields(CleaningOptions)}
    chosen = {name: value for name, value in resolved.items() if name in names}
    for name in _LIMITS:
        if chosen.get(name) == NO_LIMIT:
            chosen.pop(name, None)
    return CleaningOptions(**chosen)  # type: ignore[arg-type]


_FLAGS = {
    "subwords": "subword",
    "size": "bpe-size",
    "empty": "drop-empty",
    "duplicates": "drop-duplicates",
    "leaks": "drop-leaks",
    "languages": "language-filter",
}


def command_line_flags(resolved: Mapping[str, Option]) -> dict[str, Option]:
    """The flags of `rskip prepare`, without leading dashes, that give these options; a value True is a bare flag."""
    flags: dict[str, Option] = {}
    for name, value in resolved.items():
        flag = _FLAGS.get(name, name.replace("_", "-"))
        if value is False:
            flags[f"no-{flag}"] = True
        else:
            flags[flag] = value
    return flags
