"""Detects the language of a text."""

from __future__ import annotations

from collections.abc import Collection

from rskip.corpora.cleaning.languages import rank_languages
from rskip.text.language_codes import short_code


def detect(text: str, among: Collection[str] = ()) -> list[tuple[str, float]]:
    """Languages of a text and their probabilities, the most probable first.

    :param among: languages of models to choose from; empty: all that py3langid knows.
    :raises ValueError: py3langid is not installed.
    """
    ranked = rank_languages(text)
    if not among:
        return ranked
    probabilities = dict(ranked)
    found = [(code, probabilities.get(short_code(code), 0.0)) for code in among]
    return sorted(found, key=lambda each: -each[1])
