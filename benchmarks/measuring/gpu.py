"""Chooses a benchmark's device and measures memory and operators on a GPU."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch

from rskip.machine.device import choose_device
from rskip.machine.ranks import Ranks


def named_device(name: str) -> torch.device:
    """The device of --device, as argparse's type."""
    try:
        return choose_device(name, Ranks())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def synchronise(device: torch.device) -> None:
    """Waits until a GPU has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass
class Peak:
    """The peak GPU memory of a block in MiB, in addition to the memory that was allocated before it."""

    mib: int = 0


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Measures the block's peak. It is 0 on a CPU."""
    peak = Peak()
    if device.type != "cuda":
        yield peak
        return
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    with mock.patch("torch.cuda.reset_peak_memory_stats"):  # fairseq calls it after every update
        yield peak
    peak.mib = round((torch.cuda.max_memory_allocated(device) - before) / 2**20)


def write_profile(folder: Path, name: str, run: Callable[[], object]) -> None:
    """Writes PyTorch's table of the 40 slowest operators and kernels to a file in the folder."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        run()
    order = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    folder.mkdir(parents=True, exist_ok=True)
    table = profiler.key_averages().table(sort_by=order, row_limit=40, max_name_column_width=80)
    (folder / f"{re.sub('[^a-z0-9]+', '_', name.lower()).strip('_')}.txt").write_text(table)
