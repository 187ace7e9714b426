"""Label-smoothed cross-entropy straight from features. N tokens, C features, V vocabulary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rskip.native import native_library
from rskip.native.loss import cross_entropy_

CHUNK = 256  # rows at a time: the float32 logits of one chunk stay in a CPU's last-level cache
NATIVE_CHUNK = 512  # the compiled kernel makes no float32 copy


class _ChunkedLoss(torch.autograd.Function):
    """Computes the gradients along with the loss, so that no more than one chunk of logits ever exists."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, target: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        vocabulary = weight.size(0)
        smoothing = epsilon / (vocabulary - 1)
        confidence = 1 - epsilon - smoothing
        with_gradients = any(ctx.needs_input_grad)
        exact = torch.promote_types(features.dtype, torch.float32)
        weight_sum = weight.to(exact).sum(0)  # (C,)
        feature_gradient = torch.empty_like(features) if with_gradients else None
        weight_gradient = torch.zeros_like(weight, dtype=exact) if with_gradients else None
        loss, nll = (torch.zeros((), dtype=exact, device=features.device) for _ in range(2))
        size = CHUNK if native_library(features) is None else NATIVE_CHUNK
        for start in range(0, features.size(0), size):
            rows = features[start : start + size]
            labels = target[start : start + size]
            chunk_nll, log_normaliser, gradient = _cross_entropy(
                rows @ weight.t(), labels, confidence=confidence, with_gradient=with_gradients
            )
            smooth = vocabulary * log_normaliser.sum() - (rows.to(exact) @ weight_sum).sum()
            loss += confidence * chunk_nll.sum() + smoothing * smooth
            nll += chunk_nll.sum()
            if feature_gradient is not None and weight_gradient is not None and gradient is not None:
                # d loss / d logits = `gradient` - smoothing everywhere; the last term is the same in every column, so
                # its products are sums.
                feature_gradient[start : start + size] = gradient @ weight - smoothing * weight_sum
                weight_gradient += gradient.t() @ rows - smoothing * rows.to(exact).sum(0)
        if feature_gradient is not None and weight_gradient is not None:
            ctx.save_for_backward(feature_gradient, weight_gradient.to(weight.dtype))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        feature_gradient, weight_gradient = ctx.saved_tensors
        return feature_gradient * gradients[0], weight_gradient * gradients[0], None, None


def _cross_entropy(
    logits: Tensor, labels: Tensor, *, confidence: float, with_gradient: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Negative log-likelihoods (N,), log-normalisers (N,), and softmax - confidence at the label (N, V)."""
    library = native_library(logits)
    if library is not None:
        found = cross_entropy_(library, logits, labels, confidence=confidence, with_gradient=with_gradient)
        return *found, logits if with_gradient else None
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    columns = labels[:, None]
    probabilities = exact.softmax(1)
    highest, where = exact.max(1, keepdim=True)
    log_normaliser = highest - probabilities.gather(1, where).log()
    nll = log_normaliser - exact.gather(1, columns)
    if with_gradient:
        probabilities.scatter_add_(1, columns, probabilities.new_full(columns.shape, -confidence))
    return nll[:, 0], log_normaliser[:, 0], probabilities.to(logits.dtype) if with_gradient else None


def label_smoothed_cross_entropy(
    features: Tensor, weight: Tensor, target: Tensor, *, epsilon: float, padding_index: int
) -> tuple[Tensor, Tensor]:
    """Sum over tokens of the label-smoothed and of the plain negative log-likelihood, in nats.

    Scalars, in float32 (float64 for float64 features).

    Equals fairseq's label_smoothed_cross_entropy of the logits `features @ weight.T`: the true token gets 1 - epsilon,
    the V - 1 others share epsilon. The whole of the logits is never in memory and padding costs nothing. Only the
    first result has a gradient.

    Args:
        features: the decoder's last output, (N, C) or (B, T, C).
        weight: the output projection, (V, C), of the features' type.
        target: true tokens, (N,) or (B, T).
        epsilon: label smoothing, in [0, 1).
        padding_index: targets that don't count.
    """
    real = target.flatten().ne(padding_index)
    rows, labels = features.flatten(0, -2)[real], target.flatten()[real]
    if not torch.is_grad_enabled():  # the function itself can't tell, and would compute gradients for nobody
        rows, weight = rows.detach(), weight.detach()
    return _ChunkedLoss.apply(rows, weight, labels, epsilon)
