"""What a binarised corpus holds, in figures, text and a picture: `rskip inspect`. Needs no fairseq."""

from rskip.corpora.inspection.binarised import DataFolder, MmapSentences, find_data
from rskip.corpora.inspection.inspection import Inspection, inspect_data

__all__ = ["DataFolder", "Inspection", "MmapSentences", "find_data", "inspect_data"]
