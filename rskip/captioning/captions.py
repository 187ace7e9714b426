"""Captioned images: tokenises captions, and reads and writes folders of prepared captions.

A data folder holds train.jsonl, valid.jsonl and test.jsonl (one line per image), dict.txt (the known words of the
training captions) and corpus.json (`rskip.captioning.preparation`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from rskip.files.state import read_state_lines, state_line
from rskip.files.whole import atomic_file

DICTIONARY = "dict.txt"

PUNCTUATION = frozenset(("''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"))
"""Tokens that coco-caption removes. It keeps brackets, since it names them in capitals after lower-casing."""

_REMOVED = PUNCTUATION | {'"', ".."}
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_ABBREVIATIONS = (
    "mr mrs ms dr st jr sr prof rev gen sen gov capt lt col sgt vs etc inc co corp ltd ave blvd rd ct ft mt penn ky la"
)

# The rules of the Penn Treebank as in Stanford's PTBTokenizer, for text in lower case.
_TOKEN = re.compile(
    rf"""
      (?:https?://|www\.)[\w.-]*\w | [\w.-]+@[\w.-]*\w
    | (?:[a-z]\.){{2,}}(?:[a-z]\b)? | [a-z]\.[a-z]\b                # u.s., u.s.a
    | (?:{"|".join(_ABBREVIATIONS.split())})\.(?!\w) | [a-hj-z]\.(?=\s*[^\s\w]|\s+\w)
    | [^\W_]+\.(?=[,;])
    | can(?=not\b) | gon(?=na\b) | got(?=ta\b) | gim(?=me\b) | lem(?=me\b) | wan(?=na\b)
    | [^\W_]+?(?=n't\b) | n't\b
    | '(?:s|m|d|re|ve|ll)\b | 'n'
    | \d+(?:[.,:/-]\d+)+
    | [dlo]'(?!s\b)[^\W_]+
    | [^\W_]+(?:[-&./_@][^\W_]+)*
    | [?!]+ | \.+ | -+ | '' | `` | \S
    """,
    re.VERBOSE,
)


class CaptionedImage(msgspec.Struct, frozen=True):
    """An image with its reference captions, and a line of a split.

    :param name: file name of the image, such as 1000268201_693b08cb0e.jpg.
    :param captions: the captions, unchanged.
    :param tokens: the captions as tokenised by `tokenise_caption`, separated by spaces.
    """

    name: str = msgspec.field(name="image")
    captions: tuple[str, ...]
    tokens: tuple[str, ...]

    @classmethod
    def of_captions(cls, name: str, captions: Iterable[str]) -> CaptionedImage:
        """Makes a captioned image, and tokenises its captions."""
        captions = tuple(captions)
        return cls(name, captions, tuple(" ".join(tokenise_caption(caption)) for caption in captions))


def tokenise_caption(text: str) -> list[str]:
    """Tokenises a caption, in lower case and without punctuation."""
    return [_BRACKETS.get(token, token) for token in _TOKEN.findall(text.lower()) if token not in _REMOVED]


def read_split(folder: Path, split: str) -> list[CaptionedImage]:
    """Reads the images of "train", "valid" or "test" of a data folder, in order.

    :raises FileNotFoundError: the folder or split doesn't exist.
    :raises SettingError: a line is not a captioned image. The error names the file and the line.
    """
    path = Path(folder) / f"{split}.jsonl"
    if not path.is_file():
        raise FileNotFoundError(f"no captions {path}: expected a folder from `rskip prepare`, such as that of flickr8k")
    lines = read_state_lines(path, CaptionedImage, advice="prepare the captions again", finished=True)
    return [image for image, _ in lines]


def write_split(folder: Path, split: str, images: Iterable[CaptionedImage]) -> None:
    """Writes a split in the format of `read_split`."""
    with atomic_file(folder / f"{split}.jsonl") as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(map(state_line, images))


def count_words(images: Iterable[CaptionedImage]) -> Counter[str]:
    """Counts the words of the captions."""
    return Counter(word for image in images for tokens in image.tokens for word in tokens.split())


def write_dictionary(folder: Path, words: Counter[str], *, min_count: int) -> int:
    """Writes dict.txt, sorted by descending count, then alphabetically. Returns the number of words."""
    known = sorted((word for word, count in words.items() if count >= min_count), key=lambda word: (-words[word], word))
    with atomic_file(folder / DICTIONARY) as temporary:
        temporary.write_text("".join(f"{word} {words[word]}\n" for word in known), encoding="utf-8")
    return len(known)
