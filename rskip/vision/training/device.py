"""Where a training computes."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from rskip.machine.ranks import Ranks


def process_group(ranks: Ranks, device: str | None) -> AbstractContextManager[None]:
    """Within the block the ranks know each other: through gloo on CPUs, nccl on GPUs.

    :param device: as `choose_device` takes it, which may still refuse it.
    :raises ValueError: another rank stopped.
    """
    backend = "cpu:gloo,cuda:nccl" if device != "cpu" and torch.cuda.is_available() else "gloo"
    return ranks.process_group(backend, advice="; repeat the command to go on from the last checkpoint")


def choose_device(name: str | None, ranks: Ranks) -> torch.device:
    """The device of this process.

    :param name: "cpu", "cuda", or one GPU such as "cuda:1"; None: a GPU where there is one. Of several processes each
        takes the GPU of its number on its machine.
    :raises ValueError: no such device, or fewer GPUs than processes on this machine.
    """
    kind, _, number = (name or ("cuda" if torch.cuda.is_available() else "cpu")).partition(":")
    if kind == "cpu" and not number:
        return torch.device("cpu")
    if kind != "cuda" or (number and not number.isdecimal()):
        raise ValueError(f"device is {name!r}; expected cpu, cuda or one GPU such as cuda:0")
    if number and ranks.count > 1:
        raise ValueError(f"device is {name!r} for {ranks.count} processes; expected cuda: each takes a GPU of its own")
    index, gpus = int(number) if number else ranks.local_rank, torch.cuda.device_count()
    if index >= gpus:
        needed = f"process {index} on this machine" if ranks.count > 1 else repr(name)
        raise ValueError(f"there is no GPU for {needed}: this machine has {gpus} that PyTorch can use; or give cpu")
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device
