"""Tokenises sentences into words and back: by Moses' rules with sacremoses, or by white space only."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any, Literal
from unicodedata import category

from rskip.extras import extra

_LETTERS = re.compile(r"[^\\^\[\]-]{200,}")  # a list of letters in a class; nothing else is so long


@cache
def _ranges(letters: str) -> str:
    """The equivalent ranges of a list of letters, such as `a-d` for `abcd`."""
    codes = sorted({*map(ord, letters)})
    ends = [code for code, following in zip(codes, [*codes[1:], None], strict=True) if following != code + 1]
    starts = [code for code, before in zip(codes, [None, *codes], strict=False) if before != code - 1]
    return "".join(
        chr(start) if start == end else f"{chr(start)}-{chr(end)}" for start, end in zip(starts, ends, strict=True)
    )


@contextmanager
def _letters_compiled_as_ranges() -> Iterator[None]:
    """Lets `re.compile` use ranges within the block. It takes a quarter of the time for sacremoses' 17 expressions."""
    compile_pattern = re.compile

    def compile_ranges(pattern: Any, flags: int = 0) -> re.Pattern[Any]:
        if isinstance(pattern, str):
            pattern = _LETTERS.sub(lambda letters: _ranges(letters[0]), pattern)
        return compile_pattern(pattern, flags)

    re.compile = compile_ranges
    try:
        yield
    finally:
        re.compile = compile_pattern


# Functions of other packages that sacremoses imports, but doesn't call for a translation.
_RARELY_CALLED = {
    "joblib": ("Parallel", "delayed"), "tqdm": ("tqdm",), "regex": ("sub",), "xml.sax.saxutils": ("escape", "unescape"),
}  # fmt: skip


@contextmanager
def _imported_when_called() -> Iterator[None]:
    """Lets sacremoses import these functions within the block without their modules, half of its start.

    Only sacremoses' own modules get a `_Later`: other threads may import the real modules meanwhile.
    """
    plain_import = builtins.__import__

    def import_later(name: str, *arguments: Any, **named: Any) -> Any:
        importer = (arguments and arguments[0]) or {}  # the globals of the module with the import
        if name in _RARELY_CALLED and name not in sys.modules and importer.get("__package__") == "sacremoses":
            return _Later(name)
        return plain_import(name, *arguments, **named)

    builtins.__import__ = import_later
    try:
        yield
    finally:
        builtins.__import__ = plain_import


class _Later(ModuleType):
    """A module that is imported when one of its functions is called, or another member is read."""

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            return self._member(name)(*arguments, **named)

        return call if name in _RARELY_CALLED[self.__name__] else self._member(name)

    def _member(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)


_importing = Lock()  # two threads would restore each other's `re.compile` and `__import__`


@cache
def _sacremoses() -> ModuleType:
    """The module, which takes a tenth of a second to import: models with SentencePiece don't need it."""
    with _importing, extra("translate", what="translation"), _letters_compiled_as_ranges(), _imported_when_called():
        import sacremoses

    return sacremoses


@cache
def _faster_tokenizer() -> Any:
    """The class of a faster version of sacremoses' tokeniser, which creates two sets of all letters for each word."""

    class FasterTokenizer(_sacremoses().MosesTokenizer):  # type: ignore[misc]
        def __init__(self, lang: str) -> None:
            super().__init__(lang)
            self._letters = frozenset(self.IsAlpha)
            self._lower_case = frozenset(self.IsLower)

        def isanyalpha(self, text: str) -> bool:
            return not self._letters.isdisjoint(text)

        def islower(self, text: str) -> bool:
            return self._lower_case.issuperset(text)

    return FasterTokenizer


TokeniserKind = Literal["moses", "none"]
_SPECIAL = r"\.^$*+?{}[]|()"  # special characters of regular expressions


class MosesTokeniser:
    """Moses' tokeniser with the two settings of `fairseq-generate --tokenizer moses`.

    :param language: two-letter code, which determines abbreviations and the rules for apostrophes.
    :param dash_splits: `palm-tree` becomes `palm @-@ tree`.
    :param escape: `&`, quotes, brackets and `|` become XML entities.
    """

    def __init__(self, language: str, *, dash_splits: bool = True, escape: bool = True) -> None:
        self._tokeniser = _faster_tokenizer()(language)
        self._detokeniser = _sacremoses().MosesDetokenizer(language)
        self._dash_splits = dash_splits
        self._escape = escape

    def tokenise(self, sentence: str) -> str:
        return self._tokeniser.tokenize(
            sentence, aggressive_dash_splits=self._dash_splits, return_str=True, escape=self._escape
        )

    def detokenise(self, words: str) -> str:
        return self._detokeniser.detokenize(words.split(), return_str=True, unescape=self._escape)


class PlainTokeniser:
    """Changes at most runs of white space, which become one space, as SentencePiece expects.

    :param raw: leaves the sentence unchanged.
    """

    def __init__(self, *, raw: bool) -> None:
        self._raw = raw

    def tokenise(self, sentence: str) -> str:
        return sentence if self._raw else " ".join(sentence.split())

    def detokenise(self, words: str) -> str:
        return self.tokenise(words)


class PunctuationNormaliser:
    """Moses' punctuation rules: typographic quotes, dashes and spaces become plain ones.

    Unlike in Moses' script, commas and full stops stay on their side of a closing quote, as in the raw references for
    scoring.
    """

    def __init__(self, language: str) -> None:
        rules = _sacremoses().MosesPunctNormalizer(language, norm_quote_commas=False).substitutions
        self._steps = [_substitution(pattern, replacement) for pattern, replacement in rules]

    def __call__(self, sentence: str) -> str:
        for step in self._steps:
            sentence = step(sentence)
        return sentence.strip()


class MosesScripts:
    """Three scripts of Moses, as FSMTTokenizer runs them: replace-unicode-punctuation, normalize-punctuation,
    remove-non-printing-char.
    """

    _characters = str.maketrans(
        {
            **dict(zip("，、”“∶：？《》）！（；」「～’━〈〉【】％", ',,""::?"")!(;""~\'-<>[]%', strict=True)),
            **{chr(0xFF10 + digit): str(digit) for digit in range(10)},
            "…": "...",
        }
    )
    _stops = re.compile(r"[。．]\s*")

    def __init__(self, language: str) -> None:
        self._rules = _sacremoses().MosesPunctNormalizer(language)

    def __call__(self, sentence: str) -> str:
        plain = self._rules.normalize(self._stops.sub(". ", sentence).translate(self._characters))
        return "".join(character for character in plain if not category(character).startswith("C"))


def _substitution(pattern: str, replacement: str) -> Callable[[str], str]:
    """A function that does `re.sub(pattern, replacement, sentence)`, if possible without a regular expression.

    sacremoses searches a cache for each rule and sentence.
    """
    if (pattern, replacement) == (" +", " "):
        several = re.compile("  +")
        return lambda sentence: several.sub(" ", sentence) if "  " in sentence else sentence
    if not set(pattern) & set(_SPECIAL) and "\\" not in replacement:
        return lambda sentence: sentence.replace(pattern, replacement)
    compiled = re.compile(pattern)
    return lambda sentence: compiled.sub(replacement, sentence)


def build_tokeniser(
    kind: TokeniserKind | Literal["raw"], language: str, *, dash_splits: bool, escape: bool
) -> MosesTokeniser | PlainTokeniser:
    """The tokeniser of a language."""
    if kind == "moses":
        return MosesTokeniser(language, dash_splits=dash_splits, escape=escape)
    return PlainTokeniser(raw=kind == "raw")


def build_normaliser(kind: bool | Literal["scripts"], language: str) -> Callable[[str], str]:
    """What `TextConfig.normalise_punctuation` names, for a language."""
    if kind == "scripts":
        return MosesScripts(language)
    return PunctuationNormaliser(language) if kind else str
