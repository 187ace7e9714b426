"""Cleans raw sentences before tokenisation."""

from __future__ import annotations

import html
import re
from html.entities import html5

from rskip.corpora.corpus import CleaningOptions

# The characters are listed here because Python's Unicode tables differ between versions of Python.
_LINE_BREAKING = r"\x00-\x1f\x7f-\x9f\u2028\u2029"  # control characters, line and paragraph separator
# a joiner or non-joiner may follow these: right-to-left, Indic and neighbouring scripts, emojis
_JOINING = r"[\u0590-\u1cff\u2190-\u2bff\ua800-\uabff\ufe0f\U00010a00-\U00011fff\U0001f000-\U0001faff]"
_SPACE = re.compile(
    f"[{_LINE_BREAKING}"
    r"\u200b"  # zero width space, which parts words
    r"\ud800-\udfff\ue000-\uf8ff\U000f0000-\U0010ffff"  # surrogates; private use
    r"\ufdd0-\ufdef\ufffe\uffff]"  # never characters
)
_NOTHING = re.compile(
    r"[\xad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0001\U000e0020-\U000e007f]"
    rf"|(?<!{_JOINING})[\u200c\u200d]|[\u200c\u200d](?!\S)"  # joiner and non-joiner
)
# an ampersand, escaped any number of times, and the rest of an entity
_ENTITY = re.compile(r"&(?:amp;|#38;)*((?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});)")
_BREAK = re.compile(f"[{_LINE_BREAKING}]")


def clean_sentence(sentence: str, options: CleaningOptions) -> str:
    """Cleans a sentence before tokenisation. Entities come first, so the characters they stand for are cleaned too."""
    if options.entities == "unescape":
        sentence = unescape_entities(sentence)
    return remove_non_printing(sentence) if options.remove_non_printing else sentence


def remove_non_printing(sentence: str) -> str:
    """The sentence without control and format characters. Spaces are neither merged nor trimmed.

    As in Moses' remove-non-printing-char.perl, control characters, private-use characters and noncharacters become a
    space each. The no-break space stays. Differences from Moses:

    - Invisible format characters (soft hyphen, direction marks, word joiner, byte order mark) are deleted without a
      space, since they occur within words.
    - Joiners and non-joiners stay in the scripts and emojis that need them. Visible format characters, such as
      Arabic's, stay too.
    - Unassigned code points stay, since a later Unicode version may assign them.
    - Line and paragraph separators (U+2028, U+2029) become a space, since many programs end a line there.
    """
    if sentence.isprintable():  # in every version of Unicode, a printable sentence has none of these characters
        return sentence
    return _NOTHING.sub("", _SPACE.sub(" ", sentence))


def unescape_entities(sentence: str) -> str:
    """Replaces HTML entities, which include Moses' escapes, by their characters.

    Only entities that end in a semicolon are replaced: `AT&T` and `?a=1&copy=2` stay. Text that was escaped several
    times (`&amp;quot;`) is unescaped completely. An entity for a line break becomes a space.
    """
    while "&" in sentence:
        plain = _ENTITY.sub(_character, sentence)
        if plain == sentence:
            break
        sentence = plain
    return sentence


def _character(entity: re.Match[str]) -> str:
    name = entity[1]
    if name[0] != "#" and name not in html5:
        return "&" + name
    return _BREAK.sub(" ", html.unescape("&" + name))
