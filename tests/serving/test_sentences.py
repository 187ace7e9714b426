"""Splitting HTML into sentences."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from rskip.serving.markup import Fragment  # noqa: E402


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
        ("<p>\n\t\tTwo dogs\n\t\tplay.&#10;A&#9;cat.\n</p>", ["Two dogs play.", "A cat."],
         "<p>\n\t\tTWO DOGS PLAY. A CAT.\n</p>"),
        ('<p x=" translate=no ">a</p><p X TRANSLATE = NO>b</p>', ["a"],
         '<p x=" translate=no ">A</p><p X TRANSLATE = NO>b</p>'),
        ('<p translate="yes" translate="no">a</p><p title=translate=no>b</p><p translate=none>c</p>', ["a", "b", "c"],
         '<p translate="yes" translate="no">A</p><p title=translate=no>B</p><p translate=none>C</p>'),
        ("Hello! 😊 a 😆 <b>🇩🇪 b</b>", ["Hello!", "a", "b"], "HELLO! 😊 A 😆 <b>🇩🇪 B</b>"),
        ("<!DOCTYPE html><img src=a>t</div>u<", ["t", "u<"], "<!DOCTYPE html><img src=a>T</div>U&lt;"),
    ],
)  # fmt: skip
def test_tags_of_html_stay(source, sentences, result):
    fragment = Fragment(source)
    assert fragment.sentences == sentences
    assert fragment.joined([each.upper() for each in sentences]) == result
