"""The device that a user names, and what the processor computes well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rskip.machine.environment import number_in_environment

if TYPE_CHECKING:
    from rskip.machine.ranks import Ranks


def usable_device(device: str | torch.device) -> torch.device:
    """The device, with its number where the kind has one.

    :raises ValueError: there is no such device, or it can't hold values.
    """
    wanted = str(device).partition(":")
    if wanted[0] == "cuda" and wanted[2].isdecimal() and 0 < torch.cuda.device_count() <= int(wanted[2]):
        count = torch.cuda.device_count()
        last = f"cuda:0 to cuda:{count - 1}" if count > 1 else "cuda:0"
        raise ValueError(f"there is no device {str(device)!r}: this machine has {last}")
    try:
        found = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"the device {str(device)!r} can't be used, try cpu: {reason}") from error
    if found.type == "meta":
        raise ValueError("the device 'meta' holds no weights, try cpu")
    return found


def multiplies_bfloat16() -> bool:
    """Whether oneDNN multiplies bfloat16 on this processor; it emulates it elsewhere, many times slower."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def multiplies_bfloat16_in_tiles() -> bool:
    """Whether it does so in AMX's units, many times faster than in AVX-512's."""
    return multiplies_bfloat16() and torch.cpu._is_amx_tile_supported()


def bfloat16_is_slow(device: torch.device) -> bool:
    """Whether bfloat16 is slower than float32 there: on a CPU or a GPU that doesn't multiply it."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) < (8, 0)  # before Ampere CUDA emulates it
    return device.type == "cpu" and not multiplies_bfloat16()


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


def set_gpu_arithmetic(device: torch.device, *, training: bool, same_shapes: bool = False) -> None:
    """How a GPU multiplies float32 numbers from now on, in this process; nothing on a CPU.

    In training by TF32, whose factors have 10 bits of mantissa, 2 more than bfloat16's; otherwise in float32 itself, so
    that results are a CPU's. cuDNN measures its ways to compute a convolution where shapes stay the same.

    :param same_shapes: whether nearly all batches have the same shape, as images do and sentences don't.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if training else "highest")
        torch.backends.cudnn.allow_tf32 = training
        torch.backends.cudnn.benchmark = same_shapes


def gpu_of_its_own(ranks: Ranks) -> torch.device | None:
    """The GPU of this process's number among several, where this machine has one for each of its processes."""
    here = number_in_environment("LOCAL_WORLD_SIZE", ranks.count)
    return torch.device("cuda", ranks.local_rank) if ranks.count > 1 and here <= torch.cuda.device_count() else None
