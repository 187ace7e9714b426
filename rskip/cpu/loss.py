"""Log-softmax and cross-entropy with the compiled kernels. N rows, V vocabulary."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from rskip.connections.stream_kernels import check_first_order
from rskip.cpu.library import VARIABLE, Library, checked_indices, native_library
from rskip.cpu.structures import CrossEntropy, LogSoftmax
from rskip.transformer.label_smoothing import Kernel


def cross_entropy_kernel(like: Tensor) -> Kernel | None:
    """`cross_entropy_` for logits of this tensor's type and device, or None without a kernel for them."""
    library = native_library(like)
    return None if library is None else partial(cross_entropy_, library)


def cross_entropy_(
    library: Library, logits: Tensor, labels: Tensor, *, confidence: float, with_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Negative log-likelihoods (N,) of labels (N,) below V, and log-normalisers (N,), in float32.

    `logits` (N, V) must be contiguous. With a gradient they become softmax, minus confidence at the label.
    """
    assert labels.shape == logits.shape[:1], "one label per row"
    labels = checked_indices(library, labels, logits.size(1), "labels")
    nll, normalisers = torch.empty(2, len(logits), dtype=torch.float32)
    arguments = CrossEntropy(
        logits=logits, labels=labels, normalisers=normalisers, nll=nll, words=logits.size(1),
        with_gradient=with_gradient, confidence=confidence,
    )  # fmt: skip
    library.cross_entropy(arguments, len(logits), work=logits.numel())
    return nll, normalisers


def log_softmax(logits: Tensor) -> Tensor:
    """Log-softmax over the last dimension, in float32; PyTorch computes it if there is no kernel."""
    library = native_library(logits)
    if library is None:
        return torch.log_softmax(logits, -1, dtype=torch.float32)
    return _LogSoftmax.apply(logits, library)


class _LogSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, library: Library) -> Tensor:
        logits = logits.contiguous()
        output = torch.empty(logits.shape, dtype=torch.float32)
        ctx.library, ctx.type = library, logits.dtype
        ctx.save_for_backward(output)
        library.log_softmax(_arguments(logits, output), output.shape[:-1].numel(), work=output.numel())
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        check_first_order(f"{VARIABLE}=off")
        given, found = gradients[0].contiguous(), torch.empty(output.shape, dtype=ctx.type)
        arguments = _arguments(found, output)
        arguments.point("gradient", given)
        ctx.library.log_softmax_gradient(arguments, output.shape[:-1].numel(), work=output.numel())
        return found, None


def _arguments(logits: Tensor, log_probabilities: Tensor) -> LogSoftmax:
    return LogSoftmax(logits=logits, log_probabilities=log_probabilities, words=logits.size(-1))
