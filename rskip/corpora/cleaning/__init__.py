"""Cleans training pairs: it changes sentences, drops pairs and reports why."""

from rskip.corpora.cleaning.pairs import PairCleaner
from rskip.corpora.cleaning.report import CleaningReport, read_report, report_table

__all__ = ["CleaningReport", "PairCleaner", "read_report", "report_table"]
