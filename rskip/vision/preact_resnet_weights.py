"""The trained weights of PreActResNets: one class a depth, whose members are added when weights are published.

A member is written

    CIFAR10_2RSKIP_LN = Weights(
        url="checkpoints/<run>/model.safetensors",
        transforms=partial(CifarClassification, dataset="cifar10"),
        meta={"depth": 20, "connection": "2rskip+ln", "shortcut": "zero_pad", "block": "basic",
              "categories": [...], "num_params": ..., "recipe": "recipes/<run>.yaml",
              "metrics": {"CIFAR-10": {"acc@1": ...}}, "sha256": "..."},
    )
"""

from __future__ import annotations

from rskip.vision.weights import WeightsEnum


class PreActResNet20_Weights(WeightsEnum):
    """None yet."""


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
