"""Describes a binarised corpus as numbers, text and a plot, for `rskip inspect`. It does not need fairseq."""

from rskip.corpora.inspection.binarised import DataFolder, MmapSentences, find_data
from rskip.corpora.inspection.inspection import Inspection, inspect_data

__all__ = ["DataFolder", "Inspection", "MmapSentences", "find_data", "inspect_data"]
