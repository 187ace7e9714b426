"""Splitting texts and HTML into sentences."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from rskip.serving.markup import Fragment  # noqa: E402
from rskip.serving.sentences import SplitText  # noqa: E402


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("A dog runs.", ["A dog runs."]),
        ("  A dog. Two cats!\n\n\tNo end \n", ["A dog.", "Two cats!", "No end"]),
        ('He said "Go." Then he went.', ['He said "Go."', "Then he went."]),
        ("Mr. Smith paid 3.50 to Dr. B. Jones. He left.", ["Mr. Smith paid 3.50 to Dr. B. Jones.", "He left."]),
        ("z.B. so. e.g. this... and that", ["z.B. so. e.g. this... and that"]),
        ("犬が走る。猫が眠る。", ["犬が走る。", "猫が眠る。"]),
        ("a\u2028b\r\nc\x0bd\x85e", ["a", "b", "c", "d", "e"]),
        ("", []),
        (" \n ", []),
        ("...", []),
        ("12:30. A dog runs. 42! 1, 2! No", ["A dog runs.", "No"]),
        ("Wait... What? ", ["Wait...", "What?"]),
    ],
)
def test_a_text_is_its_sentences_and_the_space_between(text, sentences):
    split = SplitText(text)
    assert split.sentences == sentences
    assert split.joined(sentences) == text
    assert split.joined([f"<{each}>" for each in sentences]).count("<") == len(sentences)


@pytest.mark.parametrize("text", [" " * 10**6, ". " * 10**5, ".\"" * 10**5, "\n \n" * 10**5, "a " * 10**5])
def test_a_text_that_would_take_hours_in_quadratic_time_is_split(text):
    split = SplitText(text)
    assert split.joined(split.sentences) == text


@pytest.mark.parametrize("text", ["<", "<!--", "<a ", '<a "', "<a '>", "</", "&#", "<script></", "<pre>", "<p no"])
def test_html_that_takes_quadratic_time_in_pythons_parser_is_split(text):
    source = text * 30_000
    fragment = Fragment(source)
    assert fragment.joined(fragment.sentences)


@pytest.mark.parametrize(
    ("source", "sentences", "result"),
    [
        ("A dog. A cat.", ["A dog.", "A cat."], "A DOG. A CAT."),
        ('<p class="x">A &lt;dog&gt;</p> <br/>B<!-- no -->', ["A <dog>", "B"],
         '<p class="x">A &lt;DOG&gt;</p> <br/>B<!-- no -->'),
        ("<b>a</b><code>b &amp; c</code><i translate=no>d<u>e</u></i>f", ["a", "f"],
         "<b>A</b><code>b &amp; c</code><i translate=no>d<u>e</u></i>F"),
        ('<a title="x > y">b</a><PRE>c<pre>d</pre>e</PRE>f', ["b", "f"],
         '<a title="x > y">B</a><PRE>c<pre>d</pre>e</PRE>F'),
        ("<!-- a <b> --> c <!-- d", ["c"], "<!-- a <b> --> C <!-- d"),
        ("<script>if (a < b) {}</script>x", ["x"], "<script>if (a < b) {}</script>X"),
        ("<!DOCTYPE html><img src=a>t</div>u<", ["t", "u<"], "<!DOCTYPE html><img src=a>T</div>U&lt;"),
    ],
)  # fmt: skip
def test_tags_of_html_stay(source, sentences, result):
    fragment = Fragment(source)
    assert fragment.sentences == sentences
    assert fragment.joined([each.upper() for each in sentences]) == result
