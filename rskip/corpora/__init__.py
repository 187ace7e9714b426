"""Corpora: download, verify, clean, tokenise, segment, binarise."""

from rskip.corpora.corpus import describe, overview
from rskip.corpora.options import PrepareOptions
from rskip.corpora.preparation import prepare
from rskip.corpora.registry import CAPTION_CORPORA, CORPORA, find_caption_corpus, find_corpus

__all__ = [
    "CAPTION_CORPORA",
    "CORPORA",
    "PrepareOptions",
    "describe",
    "find_caption_corpus",
    "find_corpus",
    "overview",
    "prepare",
]
