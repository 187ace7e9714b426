"""Cleans training pairs: it changes sentences, drops pairs and reports why.

A process cleans a chunk like this, where `words` are tokenised pairs::

    clean = SentenceCleaner(options)                             # each raw sentence, before tokenisation
    cleaner = PairCleaner(options, languages=("en", "de"), held_out=HeldOut(held_out_words))
    report = CleaningReport.of(options)
    for words in ...:
        reason = cleaner.reason(words)
        report.count("europarl-v7", reason, held_out_sides=cleaner.held_out_sides(words))
        if reason is None:
            ...                                                  # keep words, and pair_digest(words)

Afterwards `find_duplicates` compares the digests of all chunks, `report.drop_duplicates` counts the duplicates, and
the chunks' reports are added up.
"""

from rskip.corpora.cleaning.duplicates import find_duplicates, pair_digest
from rskip.corpora.cleaning.pairs import DUPLICATE, HeldOut, PairCleaner
from rskip.corpora.cleaning.report import CleaningReport
from rskip.corpora.cleaning.sentence import SentenceCleaner, remove_non_printing, unescape_entities

__all__ = [
    "DUPLICATE",
    "CleaningReport",
    "HeldOut",
    "PairCleaner",
    "SentenceCleaner",
    "find_duplicates",
    "pair_digest",
    "remove_non_printing",
    "unescape_entities",
]
