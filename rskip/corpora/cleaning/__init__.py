"""Cleans training pairs: it changes sentences, drops pairs and reports why."""

from rskip.corpora.cleaning.duplicates import find_duplicates, pair_digest
from rskip.corpora.cleaning.pairs import DUPLICATE, PairCleaner
from rskip.corpora.cleaning.report import CleaningReport
from rskip.corpora.cleaning.sentence import clean_sentence, remove_non_printing, unescape_entities

__all__ = [
    "DUPLICATE",
    "CleaningReport",
    "PairCleaner",
    "clean_sentence",
    "find_duplicates",
    "pair_digest",
    "remove_non_printing",
    "unescape_entities",
]
