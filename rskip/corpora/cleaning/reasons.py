"""Why a training pair is dropped."""

from __future__ import annotations

from rskip.corpora.corpus import CleaningOptions

EMPTY = "empty"
TOO_LONG = "too long"
LOPSIDED = "lopsided"
LEAK = "leak"
WRONG_LANGUAGE = "wrong language"
DUPLICATE = "duplicate"

REASONS = (EMPTY, TOO_LONG, LOPSIDED, LEAK, WRONG_LANGUAGE, DUPLICATE)
"""In the order in which they are looked for: a pair is dropped for the first that applies, and counted there alone."""


def looked_for(options: CleaningOptions) -> tuple[str, ...]:
    """Those of REASONS for which these options drop pairs."""
    switches = {
        EMPTY: options.empty,
        TOO_LONG: options.max_words is not None,
        LOPSIDED: options.max_ratio is not None,
        LEAK: options.leaks,
        WRONG_LANGUAGE: options.languages,
        DUPLICATE: options.duplicates,
    }
    return tuple(reason for reason in REASONS if switches[reason])
