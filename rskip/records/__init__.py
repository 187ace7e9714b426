"""Run records (one per seed), statistics over seeds, and tables."""

from rskip.records.record import (
    RESULTS,
    Record,
    check_data,
    check_run,
    read_record,
    read_records,
    read_run_records,
    record_path,
)

__all__ = [
    "RESULTS", "Record", "check_data", "check_run", "read_record", "read_records", "read_run_records", "record_path"
]  # fmt: skip
