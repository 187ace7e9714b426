"""mHC-lite: hyper-connections whose residual matrix is a mixture of permutations, without Sinkhorn iterations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Annotated, Any

import torch
from torch import Tensor

from rskip.connections.hyper import CopiedStreams, Exit, ManifoldStreams
from rskip.connections.linear import fill
from rskip.connections.stream_kernels import Parameters, Reads
from rskip.formulas.parameters import Bounds, TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection

_OTHERS = -8.0  # initial logit of every permutation except the identity, whose logit starts at 0


@register_connection(
    "mhc_lite",
    source="Yang and Gao 2026 (mHC-lite), initial values and order of weights as in its code (FFTYYY/mhc-lite)",
)
class MHCLite(ManifoldStreams):
    """mhc's formula, with R = Σ_p softmax(w)_p·P_p over all n! permutations p of the streams.

    P_p moves stream j to stream p(j). The permutations are in lexicographic order. R is doubly stochastic. Initially
    φ = 0 and a = 0.01; b is 1 for α and β of stream (number of the block - 1) modulo n and -1 for the other streams, 0
    for the identity and -8 for other permutations.

    :param streams: n, at most 6.
    :param exit: what the stack gives: Σ_k h_k, its mean, or with head Σ_k g_k·h_k with gates g like α.

    Members: those of `ManifoldStreams`, and `matrices` (n!, n²; not saved).
    """

    closing_norm = True
    stack = CopiedStreams

    matrices: Tensor

    def __init__(
        self,
        features: int,
        *,
        norm: TextNorm = "ln",
        streams: Annotated[int, Bounds(1, 6)] = 4,
        exit: Exit = "sum",
        place: Place,
        feature_dim: int = -1,
    ) -> None:
        own, count = (place.sublayer - 1) % streams, math.factorial(streams)
        of_streams = [1.0 if stream == own else -1.0 for stream in range(streams)]
        bias = [*of_streams, *of_streams, 0.0, *[_OTHERS] * (count - 1)]  # permutations() begins with the identity
        super().__init__(
            features, norm=norm, streams=streams, logits=count, mixing=0.0, bias=bias, feature_dim=feature_dim
        )
        self.register_buffer("matrices", torch.empty(count, streams * streams), persistent=False)
        self._fill_matrices()

    def _permutations(self) -> list[list[float]]:
        """One row per permutation p: the matrix R with R_jk = 1 for k = p(j), and 0 elsewhere."""
        streams = range(self.streams)
        return [[float(k == p[j]) for j in streams for k in streams] for p in permutations(streams)]

    def _fill_matrices(self) -> None:
        fill(self.matrices, self._permutations())
        self._filled = self.matrices

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self._fill_matrices()  # after to_empty they are arbitrary
        return self

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        if self.matrices.device != self.bias.device:  # the bias was assigned to a model on the meta device
            self.matrices = torch.empty_like(self.matrices, device=self.bias.device)
        self._fill_matrices()  # a state has none

    def residual_weights(self, w: Tensor) -> Tensor:
        matrices = self.matrices
        if matrices is not self._filled:  # allocated by a library that then loads only what files have
            matrices = w.new_tensor(self._permutations())
        return (w.softmax(-1) @ matrices.to(w.dtype)).unflatten(-1, (self.streams, self.streams))

    def kernel_reading(self) -> tuple[Reads, Parameters] | None:
        return self._reading(self.matrices) if self.matrices is self._filled else None
