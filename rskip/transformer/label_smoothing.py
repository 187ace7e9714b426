"""Label-smoothed cross-entropy computed directly from features. N tokens, C features, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

CHUNK = 256  # rows per chunk: its float32 logits stay in a CPU's last-level cache
KERNEL_CHUNK = 512  # rows per chunk with a kernel, which makes no float32 copy
GPU_LOGITS = 2**28  # logits per chunk, 1 GiB in float32: 8,192 rows with a vocabulary of 32,768

# Has the parameters of `_cross_entropy` except for `scale`; it writes the gradient into the logits.
Kernel = Callable[..., tuple[Tensor, Tensor]]
FindKernel = Callable[[Tensor], Kernel | None]


class _ChunkedLoss(torch.autograd.Function):
    """Computes the gradients together with the loss, so at most one chunk of logits exists at a time.

    In float16 the gradients need the loss scale before rounding. It is known only in the backward pass, which therefore
    computes the chunks again.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        target: Tensor,
        counts: Tensor | None,
        epsilon: float,
        kernel: Kernel | None,
    ) -> tuple[Tensor, Tensor]:
        with_gradients = any(ctx.needs_input_grad)
        ctx.epsilon, ctx.again = epsilon, features.dtype == torch.float16
        loss, nll, *gradients = _chunked(
            features, weight, target, counts, epsilon, kernel, with_gradients=with_gradients and not ctx.again
        )
        if with_gradients:
            ctx.save_for_backward(*((features, weight, target, counts) if ctx.again else gradients))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None, None]:
        scale = gradients[0]
        if ctx.again:
            features, weight, target, counts = ctx.saved_tensors
            found = _chunked(features, weight, target, counts, ctx.epsilon, None, with_gradients=True, scale=scale)
            return found[2], found[3], None, None, None, None
        feature_gradient, weight_gradient = ctx.saved_tensors
        return feature_gradient * scale, weight_gradient * scale, None, None, None, None


def _chunked(
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    counts: Tensor | None,
    epsilon: float,
    kernel: Kernel | None,
    *,
    with_gradients: bool,
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Loss, negative log-likelihood, and the loss's gradients with respect to features and weight, times `scale`.

    `counts` (N,) is 1, or 0 for rows that the sums leave out, which must be zeros. None: all rows count.
    """
    vocabulary = weight.size(0)
    smoothing = epsilon / (vocabulary - 1)
    confidence = 1 - epsilon - smoothing
    shift = smoothing if scale is None else smoothing * scale
    exact = torch.promote_types(features.dtype, torch.float32)
    weight_sum = weight.to(exact).sum(0)  # (C,)
    feature_gradient = torch.empty_like(features) if with_gradients else None
    weight_gradient = torch.zeros_like(weight, dtype=exact) if with_gradients else None
    loss, nll = (torch.zeros((), dtype=exact, device=features.device) for _ in range(2))
    size = _chunk_size(features, vocabulary, kernel)
    for start in range(0, features.size(0), size):
        rows = features[start : start + size]
        labels = target[start : start + size]
        logits = rows @ weight.t()
        if kernel is not None:
            chunk_nll, log_normaliser = kernel(
                logits, labels, confidence=confidence, with_gradient=with_gradients
            )
            gradient = logits if with_gradients else None
        else:
            chunk_nll, log_normaliser, gradient = _cross_entropy(
                logits, labels, confidence=confidence, with_gradient=with_gradients, scale=scale
            )
        if counts is not None:
            chunk_nll, log_normaliser = (each * counts[start : start + size] for each in (chunk_nll, log_normaliser))
        smooth = vocabulary * log_normaliser.sum() - (rows.to(exact) @ weight_sum).sum()
        loss += confidence * chunk_nll.sum() + smoothing * smooth
        nll += chunk_nll.sum()
        if feature_gradient is not None and weight_gradient is not None and gradient is not None:
            # d loss / d logits = `gradient` - smoothing everywhere; the last term is the same in every column, so
            # its products are sums.
            feature_gradient[start : start + size] = gradient @ weight - shift * weight_sum
            weight_gradient += gradient.t() @ rows - shift * rows.to(exact).sum(0)
    return loss, nll, feature_gradient, None if weight_gradient is None else weight_gradient.to(weight.dtype)


def _chunk_size(features: Tensor, vocabulary: int, kernel: Kernel | None) -> int:
    """Number of rows per chunk."""
    if features.is_cpu:
        return CHUNK if kernel is None else KERNEL_CHUNK
    chunks = -(-len(features) * vocabulary // GPU_LOGITS)
    return max(1, -(-len(features) // max(1, chunks)))


def _cross_entropy(
    logits: Tensor, labels: Tensor, *, confidence: float, with_gradient: bool, scale: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Negative log-likelihoods (N,), log-normalisers (N,), and the scaled gradient (N, V): softmax, minus confidence at
    the label."""
    exact = torch.promote_types(logits.dtype, torch.float32)
    columns = labels[:, None]
    probabilities = logits.softmax(1, dtype=exact)
    highest, where = logits.max(1, keepdim=True)
    log_normaliser = highest - probabilities.gather(1, where).log()
    nll = log_normaliser - logits.gather(1, columns)
    gradient = None
    if with_gradient:
        probabilities.scatter_add_(1, columns, probabilities.new_full(columns.shape, -confidence))
        gradient = probabilities.to(logits.dtype) if scale is None else torch.mul(probabilities, scale, out=logits)
    return nll[:, 0], log_normaliser[:, 0], gradient


def label_smoothed_cross_entropy(
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    epsilon: float,
    padding_index: int,
    find_kernel: FindKernel = lambda features: None,
) -> tuple[Tensor, Tensor]:
    """Sums of the label-smoothed and of the plain negative log-likelihood over tokens, in nats.

    It equals fairseq's label_smoothed_cross_entropy of the logits `features @ weight.T`: the true token gets
    1 - epsilon, and the V - 1 others share epsilon. The full logits are never in memory. On a CPU padding is skipped;
    on a GPU it is computed but not summed, because counting it would wait for the GPU. Under autocast the products are
    in autocast's type.

    :param features: the decoder's last output, (N, C) or (B, T, C).
    :param weight: the output projection (V, C), of the features' type.
    :param target: true tokens, (N,) or (B, T).
    :param epsilon: label smoothing, in [0, 1).
    :param padding_index: targets with this index do not count.
    :param find_kernel: returns a fast cross-entropy for tensors like the features, such as
        `rskip.cpu.loss.cross_entropy_kernel`, or None.
    :returns: two scalars in float32 (float64 for float64 features). Only the first has a gradient.
    """
    kind = features.device.type
    if torch.is_autocast_enabled(kind):
        features, weight = (each.to(torch.get_autocast_dtype(kind)) for each in (features, weight))
    real = target.flatten().ne(padding_index)
    rows, labels, counts = features.flatten(0, -2), target.flatten(), None
    if kind == "cpu":
        rows, labels = rows[real], labels[real]
    else:
        rows, counts = rows.masked_fill(~real[:, None], 0), real
    if not torch.is_grad_enabled():  # inside the function this is unknown, and gradients would be wasted
        rows, weight = rows.detach(), weight.detach()
    with torch.autocast(kind, enabled=False):
        loss, nll = _ChunkedLoss.apply(rows, weight, labels, counts, epsilon, find_kernel(rows))
    return loss, nll
