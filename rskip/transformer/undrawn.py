"""Builds a model without random initialisation, for loading its parameters afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# functions of nn.init arrive here as themselves, but the functions that they call do not
_DRAWS = {Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_}


class _Undrawn(TorchFunctionMode):
    """Leaves out each random draw of a parameter. Memory that nothing is written to takes no space."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _DRAWS and isinstance(tensor := args[0] if args else kwargs.get("tensor"), nn.Parameter):
            return tensor
        return func(*args, **kwargs)


@contextmanager
def undrawn() -> Iterator[None]:
    """A context in which parameters are not drawn: they hold any values. The random state outside is unchanged.

    Use it for models whose parameters are all loaded next: for a large model, drawing takes longer than reading.
    """
    with torch.random.fork_rng(devices=[]), _Undrawn():
        yield
