"""The forms in which translations are written, line by line."""

from __future__ import annotations

import json
from collections.abc import Callable

from rskip.translation.translation import Translation

LineForm = Callable[[Translation, int], str]


def text_line(translation: Translation, number: int) -> str:
    """The best translation."""
    return f"{_on_one_line(translation.text)}\n"


def scored_line(translation: Translation, number: int) -> str:
    """The best translation's score, a tab, the translation."""
    return f"{translation.score:.4f}\t{_on_one_line(translation.text)}\n"


def nbest_lines(translation: Translation, number: int) -> str:
    """A line for each hypothesis, best first: the source line's number, its score, its text, with tabs between."""
    return "".join(f"{number}\t{each.score:.4f}\t{_on_one_line(each.text)}\n" for each in translation.hypotheses)


def json_line(translation: Translation, number: int) -> str:
    """A JSON object with all that is known of the sentence."""
    hypotheses = [
        {
            "text": each.text,
            "score": each.score,
            "tokens": each.tokens,
            "token_scores": each.token_scores,
            "alignment": each.alignment,
        }
        for each in translation.hypotheses
    ]
    values = {
        "source": translation.source,
        "source_tokens": translation.source_tokens,
        "hypotheses": hypotheses,
        "notes": translation.notes,
    }
    return json.dumps(values, ensure_ascii=False) + "\n"


def line_form(*, as_json: bool, scores: bool, nbest: int) -> LineForm:
    """The function that writes a translation; it takes also the number of the source line, from 1."""
    if as_json:
        return json_line
    if nbest > 1:
        return nbest_lines
    return scored_line if scores else text_line


def _on_one_line(text: str) -> str:
    # a model with byte fallback can write a line feed
    return text.replace("\n", " ")
