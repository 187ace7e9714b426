"""Cleaning of training pairs: what is done to a sentence, which pairs are dropped and why, and the report of it.

A process that cleans a chunk of pairs does, with `words` for tokenised pairs::

    clean = SentenceCleaner(options)                             # each raw sentence, before tokenisation
    cleaner = PairCleaner(options, languages=("en", "de"), held_out=HeldOut(held_out_words))
    report = CleaningReport.of(options)
    for words in ...:
        reason = cleaner.reason(words)
        report.count("europarl-v7", reason, held_out_sides=cleaner.held_out_sides(words))
        if reason is None:
            ...                                                  # keep words, and pair_digest(words)

Afterwards `find_duplicates` goes over the digests of all chunks, `report.drop_duplicates` says how many it found,
and the chunks' reports are added up.
"""

from rskip.corpora.cleaning.duplicates import DIGEST_BYTES, find_duplicates, pair_digest, read_rows
from rskip.corpora.cleaning.pairs import (
    DUPLICATE,
    EMPTY,
    LEAK,
    LOPSIDED,
    REASONS,
    TOO_LONG,
    WRONG_LANGUAGE,
    HeldOut,
    PairCleaner,
)
from rskip.corpora.cleaning.report import CleaningReport
from rskip.corpora.cleaning.sentence import SentenceCleaner, remove_non_printing, unescape_entities

__all__ = [
    "DIGEST_BYTES",
    "DUPLICATE",
    "EMPTY",
    "LEAK",
    "LOPSIDED",
    "REASONS",
    "TOO_LONG",
    "WRONG_LANGUAGE",
    "CleaningReport",
    "HeldOut",
    "PairCleaner",
    "SentenceCleaner",
    "find_duplicates",
    "pair_digest",
    "read_rows",
    "remove_non_printing",
    "unescape_entities",
]
