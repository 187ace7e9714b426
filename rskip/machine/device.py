"""Chooses the device and finds out which number formats it computes fast. The module imports torch on first use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rskip.extras import has_torch, require_torch
from rskip.machine.environment import number_in_environment

if TYPE_CHECKING:
    import torch

    from rskip.machine.ranks import Ranks


def is_cpu(device: str | torch.device) -> bool:
    """Whether this names the CPU."""
    return str(device) == "cpu"


def finds_gpu() -> bool:
    """Whether PyTorch finds a GPU. It imports torch only where the system has a GPU's driver."""
    if "torch" not in sys.modules and not _has_driver():
        return False
    if not has_torch():
        return False
    import torch

    return torch.cuda.is_available()


def _has_driver() -> bool:
    """Whether Linux has the device of an NVIDIA or AMD driver. On other systems, unknown: true."""
    if sys.platform != "linux":
        return True
    devices = Path("/dev")
    return any((devices / name).exists() for name in ("nvidiactl", "nvmap", "dxg", "kfd"))


def usable_device(device: str | torch.device) -> torch.device:
    """The device, with its number if its type has one.

    :raises ValueError: the device doesn't exist or can't hold values.
    :raises MissingExtra: torch is missing or broken.
    """
    require_torch(f"the device {str(device)!r}")
    import torch

    wanted = str(device).partition(":")
    if wanted[0] == "cuda" and wanted[2].isdecimal() and 0 < torch.cuda.device_count() <= int(wanted[2]):
        count = torch.cuda.device_count()
        last = f"cuda:0 to cuda:{count - 1}" if count > 1 else "cuda:0"
        raise ValueError(f"no device {str(device)!r}: this machine has {last}")
    try:
        found = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"the device {str(device)!r} can't be used ({reason}): try cpu") from error
    return found


def multiplies_bfloat16() -> bool:
    """Whether this CPU has bfloat16 instructions that oneDNN uses. Without them bfloat16 is many times slower."""
    import torch

    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def multiplies_bfloat16_in_tiles() -> bool:
    """Whether this CPU has AMX units for bfloat16, which are many times faster than AVX-512."""
    import torch

    return multiplies_bfloat16() and torch.cpu._is_amx_tile_supported()


def bfloat16_is_slow(device: torch.device) -> bool:
    """Whether bfloat16 is slower than float32 on the device, because it has no bfloat16 instructions."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) < (8, 0)  # before Ampere, CUDA emulates bfloat16
    return device.type == "cpu" and not multiplies_bfloat16()


def choose_device(name: str | None, ranks: Ranks) -> torch.device:
    """Chooses the device of this process.

    :param name: "cpu", "cuda", or one GPU such as "cuda:1"; None: a GPU if available. With several processes, each
        takes the GPU with its local rank.
    :raises ValueError: the device doesn't exist, or this machine has fewer GPUs than processes.
    """
    import torch

    kind, _, number = (name or ("cuda" if torch.cuda.is_available() else "cpu")).partition(":")
    if kind == "cpu" and not number:
        return torch.device("cpu")
    if kind != "cuda" or (number and (ranks.count > 1 or not number.isdecimal())):
        expected = "cuda; each process takes its own GPU" if ranks.count > 1 else "cuda or one GPU such as cuda:0"
        raise ValueError(f"device is {name!r}: expected cpu, {expected}")
    index, gpus = int(number) if number else ranks.local_rank, torch.cuda.device_count()
    if index >= gpus:
        needed = f"process {index} on this machine" if ranks.count > 1 else repr(name)
        raise ValueError(f"no GPU for {needed}: PyTorch finds {gpus} on this machine; use cpu or fewer processes")
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def set_gpu_arithmetic(device: torch.device, *, training: bool, same_shapes: bool = False) -> None:
    """Sets how a GPU multiplies float32 numbers in this process. On a CPU, it does nothing.

    Training uses TF32, whose factors have 10 bits of mantissa, 2 more than bfloat16. Otherwise float32 is used, so that
    results equal those of a CPU. If shapes stay the same, cuDNN benchmarks its convolution algorithms.

    :param same_shapes: whether nearly all batches have the same shape, as with images but not with sentences.
    """
    import torch

    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if training else "highest")
        torch.backends.cudnn.allow_tf32 = training
        torch.backends.cudnn.benchmark = same_shapes


def gpu_of_its_own(ranks: Ranks) -> torch.device | None:
    """The GPU with this process's local rank, if this machine has a GPU for each of several processes."""
    import torch

    here = number_in_environment("LOCAL_WORLD_SIZE", ranks.count)
    return torch.device("cuda", ranks.local_rank) if ranks.count > 1 and here <= torch.cuda.device_count() else None
