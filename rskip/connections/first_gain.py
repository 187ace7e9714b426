"""A normalisation whose gain does not start at 1."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from rskip.connections.norms import Normalisation


class FirstGain(Normalisation):
    """A normalisation whose gain starts at `first_gain`.

    It takes over the members of a normalisation from `build_norm`. It is not one of torch's types, because models
    reset the gains of those to 1. `kind` is the type of the normalisation. Members: the normalisation's.
    """

    def __init__(self, norm: Normalisation, first_gain: float) -> None:
        super().__init__()
        self.__dict__.update(norm.__dict__)
        self.kind: Any = type(norm)
        self.first_gain = first_gain
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the gain to `first_gain` and the bias to 0, and resets running statistics as `nn.BatchNorm2d` does."""
        for name, parameter in self.named_parameters():
            nn.init.constant_(parameter, self.first_gain if name == "weight" else 0.0)
        if dict(self.named_buffers()):
            self.kind.reset_running_stats(self)

    def forward(self, z: Tensor) -> Tensor:
        y: Tensor = self.kind.forward(self, z)
        return y

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        return self.kind._apply(self, fn, recurse)

    def extra_repr(self) -> str:
        return f"{self.kind.__name__}, {self.kind.extra_repr(self)}, first_gain={self.first_gain:g}"


def kind_of(norm: nn.Module) -> type:
    """The type of a normalisation, also if it is a FirstGain."""
    return norm.kind if isinstance(norm, FirstGain) else type(norm)
