"""Corpora: download, verify, clean, tokenise, segment, binarise."""

from rskip.corpora.listing import describe, overview
from rskip.corpora.options import PrepareOptions
from rskip.corpora.own_corpus import read_own_corpus
from rskip.corpora.own_text import paired_files
from rskip.corpora.preparation import prepare
from rskip.corpora.registry import (
    CAPTION_CORPORA,
    CORPORA,
    TEXT_CORPORA,
    find_caption_corpus,
    find_corpus,
    find_text_corpus,
)

__all__ = [
    "CAPTION_CORPORA",
    "CORPORA",
    "TEXT_CORPORA",
    "PrepareOptions",
    "describe",
    "find_caption_corpus",
    "find_corpus",
    "find_text_corpus",
    "overview",
    "paired_files",
    "prepare",
    "read_own_corpus",
]
