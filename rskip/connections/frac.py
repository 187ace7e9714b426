"""Fractional connections: hyper-connections between the parts of x, without more memory."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from rskip.connections.connection import Connection, State
from rskip.connections.hyper import SMALL, weighted_sums
from rskip.connections.norms import build_norm
from rskip.connections.stream_kernels import (
    Kernels,
    Parameters,
    Reads,
    described,
    dynamic_reading,
    hooked,
    library_for,
    read_streams,
    write_streams,
)
from rskip.formulas.parameters import Bounds, TextNorm
from rskip.formulas.registry import register_connection
from rskip.settings.errors import SettingError


@register_connection("frac", source="Zhu et al. 2025 (Frac-Connections), Eq. 7 to 15")
class FracConnection(Connection):
    """y_k = Σ_j A_jk·x_j + β_k·f_k, where f = F(norm(z)), z_k = Σ_j Y_jk·x_j, and x_1 to x_m are m equal parts of x.

    f and z have the same parts. Y and A (m, m) and β (m) are learned. With form=dynamic a data-dependent term
    a·tanh(n_j·W) is added to each, where n_j are the normalised values of part j. Initially Y and A are the identity,
    β = 1, a = 0.01 and W = 0: this is the pre-norm block.

    :param parts: m, a divisor of the features.
    :param form: static: Y, A and β do not depend on the data.

    Members: `norm`, `part_weights` ([Y, A], (m, 2m)), `output_weights` (β); dynamic: `part_norm`, `mixing` (C/m, 2m)
    and `output_mixing` (C/m, 1) for W, `mixing_scale` and `output_scale` for a.
    """

    closing_norm = True

    def __init__(
        self,
        features: int,
        *,
        norm: TextNorm = "ln",
        parts: Annotated[int, Bounds(1, 64)] = 4,
        form: Literal["dynamic", "static"] = "dynamic",
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        if features % parts:
            divisors = [each for each in range(1, 65) if features % each == 0]
            expected = f"a divisor of the {features} features: {', '.join(map(str, divisors))}"
            raise SettingError.of_value("parts", parts, expected)
        self.count, self.form = parts, form
        self.norm = build_norm(norm, features, feature_dim)
        identity = torch.eye(parts, device="cpu")
        self.part_weights = self.learned("part_weights", identity.repeat(1, 2).tolist())
        self.output_weights = self.learned("output_weights", 1.0, parts)
        if form == "dynamic":
            self.part_norm = build_norm(norm, features // parts, feature_dim)
            self.mixing = self.learned("mixing", 0.0, features // parts, 2 * parts)
            self.output_mixing = self.learned("output_mixing", 0.0, features // parts, 1)
            self.mixing_scale = self.learned("mixing_scale", SMALL, 1)
            self.output_scale = self.learned("output_scale", SMALL, 1)

    @property
    def no_weight_decay(self) -> frozenset[str]:
        """Includes Y and A: only the data-dependent W takes decay (Zhu et al. 2025, section 4.3)."""
        return super().no_weight_decay | {"part_weights"}

    passes_x = True  # what `before` keeps besides stays within the block

    def kernel_reading(self) -> tuple[Reads, Parameters] | None:
        """The formula as the kernels compute it; None if they can't."""
        return dynamic_reading(self, "part_norm", "part_weights", "", streams=self.count, parts=self.count)

    def extra_repr(self) -> str:
        library = self._library(self.part_weights.new_empty(1, self.features))
        return f"{super().extra_repr()}, computed by {described(library if self.kernel_reading() else None)}"

    def _library(self, x: Tensor) -> Kernels | None:
        if self.feature_dim != -1 or x.size(-1) != self.features or hooked(self):
            return None
        return library_for(self._split(x), triton=self.form == "dynamic")

    def before(self, state: State) -> tuple[Tensor, State]:
        assert isinstance(state, Tensor)
        library = self._library(state)
        if library and (found := self.kernel_reading()):
            return read_streams(library, found, self.norm, self._split(state))
        return super().before(state)

    def after(self, kept: State, f: Tensor) -> State:
        if isinstance(kept, Tensor):
            return super().after(kept, f)
        parts, mix = kept
        return write_streams(parts, mix, f, self.count).flatten(-2)

    def branch_input(self, x: Tensor) -> Tensor:
        return self.norm(self._mixed(self._split(x), slice(0, self.count)).flatten(-2))

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        parts, outputs = self._split(x), self.output_weights.unsqueeze(-1)
        if self.form == "dynamic":
            outputs = outputs + self.output_scale * torch.tanh(self.part_norm(parts) @ self.output_mixing)
        return (self._mixed(parts, slice(self.count, None)) + outputs * self._split(f)).flatten(-2)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.count, -1))

    def _mixed(self, parts: Tensor, columns: slice) -> Tensor:
        """Σ_j w_jk·x_j for all k (..., m, C/m); w are these columns of [Y, A]."""
        weights = self.part_weights[:, columns]
        if self.form == "dynamic":
            values = torch.tanh(self.part_norm(parts) @ self.mixing[:, columns])
            weights = weights + self.mixing_scale * values  # (..., m, m)
        return weighted_sums(weights, parts)
