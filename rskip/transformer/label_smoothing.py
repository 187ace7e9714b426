"""Label-smoothed cross-entropy straight from features. N tokens, C features, V vocabulary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 256  # rows at a time: the float32 logits of one chunk stay in a CPU's last-level cache


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
        for start in range(0, features.size(0), CHUNK):
            rows = features[start : start + CHUNK]
            labels = target[start : start + CHUNK, None]
            logits = (rows @ weight.t()).to(exact)
            probabilities = logits.softmax(1)
            highest, where = logits.max(1, keepdim=True)
            log_normaliser = highest - probabilities.gather(1, where).log()
            chunk_nll = (log_normaliser - logits.gather(1, labels)).sum()
            chunk_smooth = vocabulary * log_normaliser.sum() - (rows.to(exact) @ weight_sum).sum()
            loss += confidence * chunk_nll + smoothing * chunk_smooth
            nll += chunk_nll
            if feature_gradient is not None and weight_gradient is not None:
                # d loss / d logits = probabilities - confidence at the label - smoothing everywhere; the last term is
                # the same in every column, so its products are sums.
                probabilities.scatter_add_(1, labels, probabilities.new_full(labels.shape, -confidence))
                gradient = probabilities.to(features.dtype)
                feature_gradient[start : start + CHUNK] = gradient @ weight - smoothing * weight_sum
                weight_gradient += gradient.t() @ rows - smoothing * rows.to(exact).sum(0)
        if feature_gradient is not None and weight_gradient is not None:
            ctx.save_for_backward(feature_gradient, weight_gradient.to(weight.dtype))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        feature_gradient, weight_gradient = ctx.saved_tensors
        return feature_gradient * gradients[0], weight_gradient * gradients[0], None, None


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
    rows = features.flatten(0, -2)[real]
    if not torch.is_grad_enabled():  # the function itself can't tell, and would compute gradients for nobody
        rows, weight = rows.detach(), weight.detach()
    return _ChunkedLoss.apply(rows, weight, target.flatten()[real], epsilon)
