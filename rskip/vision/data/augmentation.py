"""A whole batch cropped, flipped and normalised at once, on the device that holds it.

Nothing is drawn here: the same offsets and flips give the same batch on every device.
Legend: N batch, C channels, H, W.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4


def crop_and_flip(images: Tensor, offsets: Tensor, flips: Tensor, *, padding: int = PADDING) -> Tensor:
    """Pads each picture with black pixels, cuts a window of the old size from it, and mirrors it left to right.

    The padding is black in the picture as it is stored, not zero after normalisation: as where torchvision's
    `RandomCrop(32, padding=4)` goes before `ToTensor` and `Normalize`.

    :param images: Shape: (N, C, H, W).
    :param offsets: the window's top and left edge in the padded picture, 0 to 2 * padding; integers. Shape: (N, 2).
    :param flips: whether the window is mirrored, bool. Shape: (N,).
    :param padding: pixels added at each edge.
    :returns: Shape and type as `images`.
    """
    count, channels, height, width = images.shape
    padded = F.pad(images, (padding,) * 4).contiguous()
    assert padded.numel() < 2**31
    # where in `padded` each pixel comes from; on a CPU int32 and index_select are faster than int64 and `padded[...]`
    numbers = partial(torch.arange, dtype=torch.int32, device=images.device)
    top, left = offsets.int().unbind(1)
    rows = top[:, None] + numbers(height)  # (N, H)
    columns = left[:, None] + torch.where(flips[:, None], numbers(width).flip(0), numbers(width))  # (N, W)
    planes = numbers(count * channels).view(count, channels, 1)
    row_starts = (planes * padded.shape[2] + rows[:, None]) * padded.shape[3]  # (N, C, H)
    places = row_starts[..., None] + columns[:, None, None]  # (N, C, H, W)
    return padded.view(-1).index_select(0, places.view(-1)).view(images.shape)


def normalise(
    images: Tensor, mean: Tensor, std: Tensor, *, dtype: torch.dtype = torch.float32, channels_last: bool = False
) -> Tensor:
    """(images / 255 - mean) / std for each channel, in float32, operation by operation as torchvision computes it.

    :param images: uint8. Shape: (N, C, H, W).
    :param mean: float32. Shape: (C,).
    :param std: float32. Shape: (C,).
    :param dtype: of the output.
    :param channels_last: lay the output out with channels last in memory.
    :returns: Shape: (N, C, H, W).
    """
    assert images.dtype == torch.uint8
    layout = torch.channels_last if channels_last else torch.contiguous_format
    pixels = images.to(torch.float32).div_(255).sub_(mean[:, None, None]).div_(std[:, None, None])
    return pixels.to(dtype, memory_format=layout)  # last: laying out float32 is faster than uint8
