"""Building a model whose parameters are then loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# nn.init's come here as themselves, and what they call doesn't
_DRAWS = {Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_}


class _Zeros(TorchFunctionMode):
    """Zeros in place of each parameter that is drawn."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _DRAWS and isinstance(tensor := args[0] if args else kwargs.get("tensor"), nn.Parameter):
            with torch.no_grad():
                return tensor.zero_()
        return func(*args, **kwargs)


@contextmanager
def undrawn() -> Iterator[None]:
    """Within the block normally and uniformly drawn parameters are zeros, and nothing that is drawn shows outside.

    For models whose every parameter is loaded next: drawing a large one's takes longer than reading its file.
    """
    with torch.random.fork_rng(devices=[]), _Zeros():
        yield
