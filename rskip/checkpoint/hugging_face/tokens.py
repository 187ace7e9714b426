"""The tokens of a Hugging Face folder: those that its files add to the vocabulary, and the dictionary of them all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from rskip.checkpoint.hugging_face.folder import Folder
from rskip.checkpoint.hugging_face.stacks import MOST_UNNAMED
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, first_names
from rskip.text.added import AddedToken
from rskip.text.dictionary import BOS, EOS, PAD, UNK, Dictionary

FIRST = {BOS: 0, PAD: 1, EOS: 2, UNK: 3}
TOKENIZER, SPECIAL, ADDED, ALL = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.json",
)


def read_optional(folder: Folder, name: str) -> dict[str, Any]:
    """The content of a JSON file; empty if the folder doesn't have it."""
    return folder.read_object(name) if folder.has(name) else {}


def numbered_tokens(folder: Folder, content: Mapping[str, Any]) -> dict[str, int]:
    """The tokens whose numbers the tokenizer's files give, except those of its vocabulary.

    :param content: of tokenizer.json.
    """
    found: dict[str, int] = {}
    for name, numbers in (
        (ALL, _of_all(content, source=str(folder.path / ALL))),
        (ADDED, token_numbers(read_optional(folder, ADDED), source=str(folder.path / ADDED))),
        (TOKENIZER, _of_config(folder)),
    ):
        for token, number in numbers.items():
            if found.setdefault(token, number) != number:
                problem = f"gives {token} the number {number:,}, but another file {found[token]:,}"
                raise folder.error(problem, file=name, advice="give the files of one model")
    return found


def added_tokens(
    folder: Folder, content: Mapping[str, Any], tokens: Iterable[str], *, fast: bool, drops_spaces: bool
) -> tuple[AddedToken, ...]:
    """How text is split at these tokens, which the tokenizer's files add to its vocabulary.

    :param content: of tokenizer.json.
    :param fast: the tokenizer is one of Hugging Face's tokenizers, which differ from those in Python.
    :param drops_spaces: the tokenizer drops spaces next to the tokens, whatever their flags say.
    """
    numbered = read_optional(folder, TOKENIZER).get("added_tokens_decoder") or {}
    entries = [*numbered.values(), *_entries(content)]
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


def refuse_added(tokens: Collection[str], reason: str, folder: Folder) -> None:
    """Refuses a model with tokens that were added to its vocabulary."""
    if tokens:
        listed = f"{len(tokens)} added token{'s' * (len(tokens) > 1)} ({first_names(tokens, listed='its tokenizer')})"
        raise folder.error(f"has {listed}, which rskip can't read {reason}")


def listed_tokens(folder: Folder) -> list[str]:
    """The further special tokens that the tokenizer's files list, in order, without their numbers."""
    found: dict[str, None] = {}
    for name in (SPECIAL, TOKENIZER):
        content = read_optional(folder, name)
        for key in ("additional_special_tokens", "extra_special_tokens"):
            given = content.get(key) or []
            items = given.values() if isinstance(given, Mapping) else given if isinstance(given, list) else []
            found |= dict.fromkeys(text for item in items if (text := _text(item)) is not None)
    return list(found)


def token_numbers(content: Any, *, name: str = "", source: str) -> dict[str, int]:
    """The content of a vocabulary's file, in which every token has a number."""
    if isinstance(content, dict) and all(type(number) is int for number in content.values()):
        return content  # `convert` takes seconds for hundreds of thousands of tokens
    return convert(content, dict[str, int], name=name, source=source)


def dictionary_of(rows: Mapping[str, int], size: int, *, source: str) -> Dictionary:
    """The dictionary of tokens in fairseq's order, for an embedding of so many rows.

    Rows without a token get one that no text has.

    :param rows: the number of each token.
    :param source: where the tokens are from, for errors.
    """
    for token, number in FIRST.items():
        if rows.get(token) != number:
            problem = f"the vocabulary gives {token} the number {rows.get(token)}"
            raise SettingError("", problem, expected=str(number), source=source)
    last = max(rows.values())
    if min(rows.values()) < 0 or not size - MOST_UNNAMED <= last + 1 <= size:
        problem = f"the tokenizer numbers its tokens up to {last:,}, but the embedding has {size:,} rows"
        raise SettingError("", problem, advice="give the files of one model", source=source)
    tokens: dict[int, str] = {}
    for token, number in rows.items():
        if (other := tokens.setdefault(number, token)) != token:
            problem = f"the vocabulary gives {other} and {token} the same number, {number:,}"
            raise SettingError("", problem, advice="give the files of one model", source=source)
    unnamed = (name for number in count() if (name := f"madeupword{number:04}") not in rows)
    fit = {number: token for number, token in tokens.items() if token and "\n" not in token}  # for a dictionary's file
    return Dictionary(fit.get(row) or next(unnamed) for row in range(len(FIRST), size))


def _of_all(content: Mapping[str, Any], *, source: str) -> dict[str, int]:
    entries = convert(_entries(content), list[dict[str, Any]], name="added_tokens", source=source)
    return dict(_numbered((each.get("id"), each) for each in entries))


def _entries(content: Mapping[str, Any]) -> Any:
    return content.get("added_tokens") or []


def _of_config(folder: Folder) -> dict[str, int]:
    source = str(folder.path / TOKENIZER)
    added = read_optional(folder, TOKENIZER).get("added_tokens_decoder") or {}
    entries = convert(added, dict[str, Any], name="added_tokens_decoder", source=source)
    numbers = (int(number) if number.isdecimal() and len(number) < 10 else None for number in entries)
    return dict(_numbered(zip(numbers, entries.values(), strict=True)))


def _numbered(entries: Iterator[tuple[Any, Any]]) -> Iterator[tuple[str, int]]:
    for number, entry in entries:
        if isinstance(number, int) and (text := _text(entry)) is not None:
            yield text, number


def _text(token: Any) -> str | None:
    """The text of a token, which is a string or an object with its content."""
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else None
