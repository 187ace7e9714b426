"""Initial values that a module sets itself, however its model is initialised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class SelfInitialised(nn.Module):
    """A module that runs its own `reset_parameters` in Hugging Face's `from_pretrained`.

    There, transformers allocates the parameters that the checkpoint lacks and passes every module to the model's
    `_init_weights`, which knows only the types of torch.nn. It then sets `_is_hf_initialized` on the module. At that
    moment this module sets its values. Tensors that transformers has marked in the same way were loaded and stay.
    """

    reset_parameters: Callable[..., None]

    @property
    def _is_hf_initialized(self) -> bool:
        return bool(self.__dict__.get("_marked_by_transformers"))

    @_is_hf_initialized.setter
    def _is_hf_initialized(self, value: bool) -> None:
        self.__dict__["_marked_by_transformers"] = value
        if value and _transformers_initialises():
            tensors = [*self.parameters(), *self.buffers()]
            loaded = [tensor for tensor in tensors if is_loaded(tensor)]
            if len(loaded) < len(tensors):
                values = [tensor.detach().clone() for tensor in loaded]
                self.reset_parameters()
                with torch.no_grad():
                    for tensor, kept in zip(loaded, values, strict=True):
                        tensor.copy_(kept)


def _transformers_initialises() -> bool:
    """Whether transformers is initialising a model now: it replaces the functions of nn.init meanwhile."""
    return nn.init.zeros_.__module__ == "transformers.initialization"


def is_loaded(tensor: Tensor) -> bool:
    """Whether transformers is initialising a model and has already loaded this tensor."""
    return _transformers_initialises() and getattr(tensor, "_is_hf_initialized", False)


def fill(parameter: Any, values: Tensor | Sequence[float] | Sequence[Sequence[float]]) -> None:
    """Sets a parameter to these values. The parameter may be distributed (a DTensor)."""
    if is_loaded(parameter):
        return
    with torch.no_grad():
        given: Tensor = torch.as_tensor(values, dtype=parameter.dtype, device=parameter.device)
        if hasattr(parameter, "device_mesh"):
            from torch.distributed.tensor import distribute_tensor

            given = distribute_tensor(given, parameter.device_mesh, parameter.placements)
        parameter.copy_(given)


def draw(weight: Tensor, weight_init: Callable[[Tensor], object]) -> None:
    """Fills a weight with `weight_init`, unless it was loaded."""
    if not is_loaded(weight):
        weight_init(weight)


def one_hot(index: int, size: int, value: float = 1.0) -> list[float]:
    """`size` numbers: `value` at this index, which may be negative, and 0 elsewhere."""
    values = [0.0] * size
    values[index] = value
    return values
