"""Corpora: download, verify, clean, tokenise, segment, binarise."""

from rskip.corpora.description import describe
from rskip.corpora.options import PrepareOptions
from rskip.corpora.preparation import prepare
from rskip.corpora.registry import CORPORA, find_corpus

__all__ = ["CORPORA", "PrepareOptions", "describe", "find_corpus", "prepare"]
