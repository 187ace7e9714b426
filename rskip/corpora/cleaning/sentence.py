"""What is done to a raw sentence before it is tokenised."""

from __future__ import annotations

import html
import re
from html.entities import html5

from rskip.corpora.corpus import CleaningOptions

# The characters are listed, not asked of Python's Unicode tables, which differ from one version of Python to the next.
_LINE_BREAKING = r"\x00-\x1f\x7f-\x9f\u2028\u2029"  # control characters, line and paragraph separator
# what a joiner or non-joiner may follow: right-to-left, Indic and neighbouring scripts, emojis
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
# an ampersand, escaped or not, however often, and what makes an entity of it
_ENTITY = re.compile(r"&(?:amp;|#38;)*((?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});)")
_BREAK = re.compile(f"[{_LINE_BREAKING}]")


class SentenceCleaner:
    """The steps before tokenisation that the options ask for: entities first, so that what they hide is cleaned too."""

    def __init__(self, options: CleaningOptions) -> None:
        self._unescape = options.entities == "unescape"
        self._remove = options.remove_non_printing

    def __call__(self, sentence: str) -> str:
        if self._unescape:
            sentence = unescape_entities(sentence)
        return remove_non_printing(sentence) if self._remove else sentence


def remove_non_printing(sentence: str) -> str:
    """The sentence without control and format characters; spaces are neither merged nor trimmed.

    As Moses' remove-non-printing-char.perl, control characters, private-use characters and code points that are never
    characters become a space each. Otherwise than there: format characters that show nothing (soft hyphen, marks of
    direction, word joiner, byte order mark) go without leaving a space, since they stand within words; joiners and
    non-joiners stay in the scripts and emojis that need them; so do the visible format characters of Arabic and
    others; code points that are not assigned yet stay, since a later Unicode version may assign them; and line and
    paragraph separators (U+2028, U+2029), which Moses leaves, become a space, since many programs end a line there.
    The no-break space is printing and stays.
    """
    if sentence.isprintable():  # true of no sentence that holds one of these, in every version of Unicode
        return sentence
    return _NOTHING.sub("", _SPACE.sub(" ", sentence))


def unescape_entities(sentence: str) -> str:
    """The sentence with HTML's entities, and so Moses' escapes, as the characters that they stand for.

    Only those that end in a semicolon: `AT&T` and `?a=1&copy=2` stay. Text that was escaped twice (`&amp;quot;`) is
    unescaped twice, and so on until nothing is left to do. An entity for a line break gives a space.
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
