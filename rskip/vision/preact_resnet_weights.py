"""The trained weights of PreActResNets: one class a depth, with a member for each model of checkpoints.json."""

from __future__ import annotations

from functools import partial

from rskip.vision.transforms import CifarClassification
from rskip.vision.weights import Weights, WeightsEnum

CIFAR10_CATEGORIES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def _cifar10(run: str, connection: str, *, num_params: int, accuracy: float, sha256: str) -> Weights:
    """Weights that ship in checkpoints/ of a PreAct-ResNet-20 as the recipes have it."""
    return Weights(
        url=f"checkpoints/{run}/model.safetensors",
        transforms=partial(CifarClassification, dataset="cifar10"),
        meta={
            "depth": 20,
            "connection": connection,
            "shortcut": "zero_pad",
            "block": "basic",
            "categories": list(CIFAR10_CATEGORIES),
            "num_params": num_params,
            "recipe": f"recipes/{run}.yaml",
            "metrics": {"CIFAR-10": {"acc@1": accuracy}},
            "sha256": sha256,
        },
    )


class PreActResNet20_Weights(WeightsEnum):
    """Of the fast recipes, 30 epochs; DEFAULT is the baseline."""

    CIFAR10_1XSKIP = _cifar10(
        "cifar10_fast_preact20_1xskip", "1xskip", num_params=269_722, accuracy=90.29,
        sha256="b50e8e53272722bb3fd0cb35d0d66134782998a758d8a6277bb7f2b4ff4d0856",
    )  # fmt: skip
    CIFAR10_2RSKIP_LN = _cifar10(
        "cifar10_fast_preact20_2rskip_ln", "2rskip+ln", num_params=271_066, accuracy=90.71,
        sha256="6839f4e670e046385d55fa09a5b79fbf792c7ac570adc6ac7067bb99b9af8e15",
    )  # fmt: skip
    DEFAULT = CIFAR10_1XSKIP


class PreActResNet32_Weights(WeightsEnum):
    """None yet."""


class PreActResNet44_Weights(WeightsEnum):
    """None yet."""


class PreActResNet56_Weights(WeightsEnum):
    """None yet."""


class PreActResNet110_Weights(WeightsEnum):
    """None yet."""


class PreActResNet164_Weights(WeightsEnum):
    """None yet."""


BY_DEPTH: dict[int, type[WeightsEnum]] = {
    20: PreActResNet20_Weights,
    32: PreActResNet32_Weights,
    44: PreActResNet44_Weights,
    56: PreActResNet56_Weights,
    110: PreActResNet110_Weights,
    164: PreActResNet164_Weights,
}


def find_weights(weights: WeightsEnum | str | None, depth: int) -> WeightsEnum | None:
    """The member that `weights` is or names: "PreActResNet20_Weights.NAME", or "NAME" of the depth's own class.

    :raises ValueError: where there is none.
    """
    if weights is None or isinstance(weights, WeightsEnum):
        return weights
    if not isinstance(weights, str):
        raise ValueError(f"weights must be a member of a weights class or its name, not {weights!r}")
    class_name, _, name = weights.rpartition(".")
    classes = {cls.__name__: cls for cls in BY_DEPTH.values()}
    found = classes.get(class_name) if class_name else BY_DEPTH.get(depth)
    if found is None:
        raise ValueError(f"no weights {weights!r} for depth {depth}; there are classes {', '.join(classes)}")
    return found.verify(name)
