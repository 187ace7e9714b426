"""The tokens of Hugging Face's folders: their numbers, how text is split at added ones, and dictionaries of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from rskip.checkpoint.hugging_face.folder import Folder
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, first_names
from rskip.text.added import AddedToken
from rskip.text.dictionary import BOS, EOS, PAD, UNK, Dictionary

MOST_UNNAMED = 1023  # rows behind the vocabulary's, of an embedding that was filled up to a multiple of 1,024
FIRST = {BOS: 0, PAD: 1, EOS: 2, UNK: 3}
TOKENIZER, SPECIAL, ADDED, ALL = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.json",
)


class TokenizerFiles:
    """What the JSON files of a folder's tokenizer say, except its vocabulary.

    :param fast: tokenizer.json counts.

    about: the content of tokenizer_config.json.
    content: that of tokenizer.json; empty if it is missing or doesn't count.
    """

    def __init__(self, folder: Folder, *, fast: bool) -> None:
        self.folder = folder
        self.about = folder.read_optional(TOKENIZER)
        self.content = folder.read_optional(ALL) if fast else {}

    def numbers(self) -> dict[str, int]:
        """The tokens to which the files give a number."""
        source = str(self.folder.path / ALL)
        of_all = convert(self._listed(), list[dict[str, Any]], name="added_tokens", source=source)
        source = str(self.folder.path / TOKENIZER)
        of_config = convert(self._decoder(), dict[str, Any], name="added_tokens_decoder", source=source)
        source = str(self.folder.path / ADDED)
        entries = [
            *((ALL, each.get("id"), each) for each in of_all),
            *((ADDED, each, token) for token, each in token_numbers(self.folder.read_optional(ADDED), source).items()),
            *((TOKENIZER, int(key), each) for key, each in of_config.items() if key.isdecimal() and len(key) < 10),
        ]
        found: dict[str, int] = {}
        for name, number, entry in entries:
            token = _text(entry)
            if token is not None and isinstance(number, int) and found.setdefault(token, number) != number:
                problem = f"gives {token} the number {number:,}, but another entry {found[token]:,}"
                raise self.folder.error(problem, file=name, advice="give the files of one model")
        return found

    def added(self, tokens: Iterable[str], *, fast: bool, drops_spaces: bool) -> tuple[AddedToken, ...]:
        """How text is split at these tokens, which are added to the vocabulary.

        :param fast: the tokenizer is one of Hugging Face's tokenizers, which differ from those in Python.
        :param drops_spaces: the tokenizer drops spaces next to the tokens, whatever their flags say.
        """
        entries = [*self._decoder().values(), *self._listed()]
        flags = {text: entry for entry in entries if isinstance(entry, Mapping) and (text := _text(entry)) is not None}
        found = []
        for token in filter(None, tokens):
            has = flags.get(token, {}).get
            special = bool(has("special"))
            found.append(
                AddedToken(
                    content=token,
                    lstrip=drops_spaces or bool(has("lstrip")),
                    rstrip=drops_spaces or bool(has("rstrip")),
                    single_word=bool(has("single_word")) and (fast or "spaces"),
                    normalized=fast and bool(has("normalized", not special)),
                    special=special,
                )
            )
        return tuple(found)

    def refuse_added(self, tokens: Iterable[str], reason: str) -> None:
        """Refuses a model with tokens that were added to its vocabulary."""
        if tokens := list(tokens):
            listed = f"{len(tokens)} added token{'s' * (len(tokens) > 1)} ({first_names(tokens, listed='tokenizer')})"
            raise self.folder.error(f"has {listed}, which rskip can't read {reason}")

    def listed(self) -> list[str]:
        """The further special tokens that the files list, in order, without their numbers."""
        found: dict[str, None] = {}
        for content in (self.folder.read_optional(SPECIAL), self.about):
            for key in ("additional_special_tokens", "extra_special_tokens"):
                given = content.get(key) or []
                items = given.values() if isinstance(given, Mapping) else given if isinstance(given, list) else []
                found |= dict.fromkeys(text for item in items if (text := _text(item)) is not None)
        return list(found)

    def _listed(self) -> Any:
        return self.content.get("added_tokens") or []

    def _decoder(self) -> Any:
        return self.about.get("added_tokens_decoder") or {}


def _text(token: Any) -> str | None:
    """The text of a token, which is a string or an object with its content."""
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else None


def token_numbers(content: Any, source: str = "") -> dict[str, int]:
    """The content of a vocabulary's file, in which every token has a number."""
    if isinstance(content, dict) and all(type(number) is int for number in content.values()):
        return content  # `convert` takes seconds for hundreds of thousands of tokens
    return convert(content, dict[str, int], source=source)


def check_rows(numbers: Mapping[str, int], size: int, *, source: str, first: Mapping[str, int] = FIRST) -> None:
    """Refuses tokens whose numbers don't fit an embedding of so many rows.

    :param first: tokens that must have these numbers.
    """
    last, special = max(numbers.values()), {token: numbers.get(token) for token in first}
    if special != first or min(numbers.values()) < 0 or not size - MOST_UNNAMED <= last + 1 <= size:
        problem, expected = f"the tokenizer numbers its tokens up to {last:,}", f"{size:,} rows of the embedding"
        if first:
            problem, expected = f"{problem}, with {special}", f"numbers for the {expected}, with {dict(first)}"
        raise SettingError("", problem, expected=expected, advice="give the files of one model", source=source)


def dictionary_of(numbers: Mapping[str, int], rows: Sequence[int]) -> Dictionary:
    """The dictionary of the tokens with these numbers. A row without a token gets one that no text has."""
    unnamed = (name for number in count() if (name := f"madeupword{number:04}") not in numbers)
    fit = {row: token for token, row in numbers.items() if token and "\n" not in token}  # for a dictionary's file
    return Dictionary(fit.get(row) or next(unnamed) for row in rows)
