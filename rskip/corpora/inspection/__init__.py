"""What a binarised corpus holds, in figures, text and a picture: `rskip inspect`. Needs no fairseq."""

from rskip.corpora.inspection.data_folder import DataFolder, find_data
from rskip.corpora.inspection.inspection import Inspection, inspect_data
from rskip.corpora.inspection.mmap_sentences import MmapSentences

__all__ = ["DataFolder", "Inspection", "MmapSentences", "find_data", "inspect_data"]
