"""Corpora: download, verify, tokenise, segment, binarise."""

from rskip.corpora.options import PrepareOptions
from rskip.corpora.preparation import prepare
from rskip.corpora.registry import CORPORA, find_corpus

__all__ = ["CORPORA", "PrepareOptions", "find_corpus", "prepare"]
