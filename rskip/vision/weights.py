"""Trained weights in torchvision's manner, without torchvision: safetensors, checked by their sha256.

    weights = PreActResNet20_Weights.CIFAR10_2RSKIP_LN
    weights.meta["metrics"]                          # what it reaches
    model = preact_resnet20(weights=weights).eval()
    logits = model(weights.transforms()(image).unsqueeze(0))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import unquote, urlparse

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from rskip.files.checksum import sha256_file
from rskip.settings.nearest import did_you_mean

Member = TypeVar("Member", bound="WeightsEnum")
CHECKPOINTS = Path(__file__).resolve().parents[2] / "checkpoints"  # of a checkout; an installed package has none


@dataclass(frozen=True)
class Weights:
    """One file of weights.

    url: ends with `<run>/<name>.safetensors`. A checkout's own `checkpoints/<run>/<name>.safetensors` is read in its
        place; a url that is only that path is not downloaded.
    transforms: makes what turns an image into the model's input.
    meta: of a PreActResNet `depth`, `connection`, `shortcut`, `block` and `categories` (the classes' names), from which
        the model is built; `sha256` of the file; for people `num_params`, `recipe` and `metrics`, such as
        {"CIFAR-10": {"acc@1": ...}}.
    """

    url: str
    transforms: Callable[[], nn.Module]
    meta: dict[str, Any]


class WeightsEnum(Enum):
    """The weights that there are for one model; members' values are `Weights`."""

    @classmethod
    def verify(cls: type[Member], weights: Member | str | None) -> Member | None:
        """The member that `weights` is or names, with or without the class's name before it; None for None.

        :raises ValueError: where there is no such member.
        """
        if weights is None or isinstance(weights, cls):
            return weights
        known = list(cls.__members__)
        if isinstance(weights, str):
            name = weights.removeprefix(cls.__name__ + ".")
            if name in known:
                return cls[name]
            listed = f"known: {', '.join(known)}" if known else "it has no weights yet"
            raise ValueError(f"unknown weights {name!r} of {cls.__name__}{did_you_mean(name, known)}; {listed}")
        raise ValueError(f"weights must be of {cls.__name__}, or the name of one, not {weights!r}")

    def get_state_dict(self, *, progress: bool = True, check_hash: bool = True) -> dict[str, Tensor]:
        """The file's tensors, on the CPU: from the checkout's checkpoints/, else from the download or its cache.

        Downloads are kept in torch.hub's folder (torch.hub.set_dir, $TORCH_HOME).

        :param progress: whether a download shows its progress.
        :param check_hash: whether the file must have `meta["sha256"]`.
        :raises ValueError: for another sha256, or a file that is not safetensors: no pickle is ever loaded.
        :raises OSError: where it can be neither found nor downloaded.
        """
        path = self._find_file(progress=progress)
        if check_hash and (found := sha256_file(path)) != self.meta["sha256"]:
            raise ValueError(
                f"{path} has the sha256 {found}, expected {self.meta['sha256']}: remove it and get it again"
            )
        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(
                f"{path} can't be read as safetensors ({error}): weights are read from no other format"
            ) from error

    def _find_file(self, *, progress: bool) -> Path:
        address = urlparse(self.url)
        run, name = PurePosixPath(unquote(address.path)).parts[-2:]
        shipped = CHECKPOINTS / run / name
        if shipped.is_file():
            return shipped
        if not address.scheme:
            raise FileNotFoundError(f"{shipped} is missing: {self} comes with a checkout of rskip")
        cached = Path(torch.hub.get_dir(), "checkpoints", f"{run}-{self.meta['sha256'][:8]}-{name}")
        if not cached.is_file():
            cached.parent.mkdir(parents=True, exist_ok=True)
            try:  # it gets its name when it is whole and its sum is right
                torch.hub.download_url_to_file(self.url, str(cached), self.meta["sha256"], progress=progress)
            except OSError as error:
                raise OSError(f"{self.url} can't be downloaded ({error}): check the network, try again") from error
            except RuntimeError as error:
                raise ValueError(f"{self.url} gives another file than {self}'s ({error}): try again later") from error
        return cached

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return getattr, (type(self), self.name)  # by name: `transforms` need not be equal after copying

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __repr__ = __str__

    @property
    def url(self) -> str:
        return self.value.url

    @property
    def transforms(self) -> Callable[[], nn.Module]:
        return self.value.transforms

    @property
    def meta(self) -> dict[str, Any]:
        return self.value.meta
