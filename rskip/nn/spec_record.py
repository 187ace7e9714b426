"""Stores the spec in a model's state dict, so that the state of another connection is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rskip.settings.errors import SettingError


class SpecRecord(nn.Module):
    """Stores a spec in the state dict, as bytes, and compares it when a state dict is loaded.

    :param spec: canonical connection string.
    """

    def __init__(self, spec: str) -> None:
        super().__init__()
        self.spec = spec

    def get_extra_state(self) -> Tensor:
        return torch.tensor(list(self.spec.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Compares the spec with that of a state dict to load.

        :param state: its bytes, of any dtype: averages of states and half-precision states have floats.
        :raises SettingError: the specs differ.
        """
        stored = bytes(round(number) % 256 for number in state.flatten().tolist()).decode(errors="replace")
        if stored != self.spec:
            advice = f"build the model with {stored!r}, or train this one from the start"
            raise SettingError.of_value("connection", self.spec, f"{stored}, as in the state dict", advice=advice)

    def extra_repr(self) -> str:
        return self.spec


class Removed(nn.Module):
    """Takes the place of a normalisation that `adapt` removed, and returns its input.

    It has empty tensors with the names of the normalisation's, since some models ask for their type. If it marks the
    state, its `weight` has two dimensions. Therefore a model of the library refuses an adapted model's state, even if
    names may be missing (`strict=False`, Hugging Face's `from_pretrained`), and an adapted model refuses the library's.
    """

    def __init__(self, names: Iterable[str], *, marks: bool) -> None:
        super().__init__()
        for name in names:
            self.register_buffer(name, torch.zeros(0), persistent=False)
        if marks:
            self.register_buffer("weight", torch.zeros(1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        weight = state_dict.get(f"{prefix}weight")
        if weight is not None and "weight" not in self._non_persistent_buffers_set and weight.shape != (1, 1):
            problem = "comes from a model that is not adapted, or to another connection"
            raise SettingError("state dict", problem, advice="load it before you call rskip.adapt, or adapt likewise")
        super()._load_from_state_dict(state_dict, prefix, *args)
