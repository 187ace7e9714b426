"""The models in which connection_cost compares connections: of text, of language and of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.checkpoint import untrained_language_model
from rskip.cpu.loss import cross_entropy_kernel
from rskip.experiments.recipe import load_recipes
from rskip.language_modeling.model_file import model_config
from rskip.language_modeling.training import TrainingSettings, parameter_groups
from rskip.transformer import Transformer, TransformerConfig
from rskip.transformer.label_smoothing import label_smoothed_cross_entropy
from rskip.vision import preact_resnet
from rskip.vision.vit import vision_transformer

PADDING, VOCABULARY = 1, 10_000
SENTENCES, LENGTH, IMAGES = 64, 32, 128
CHARACTERS = 68  # the dictionary of Tiny Shakespeare
RECIPES = Path(__file__).parents[2] / "recipes"
LM_FIELD, CIFAR10_VIT = RECIPES / "lm_field.yaml", RECIPES / "cifar10_vit.yaml"

Inputs = tuple[Tensor, ...]


def _adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)


@dataclass(frozen=True)
class Model:
    """A model for comparing connections.

    :param baseline: the connection that others are compared with.
    :param variants: specs in addition to each family's default.
    :param only: specs to measure; None: those of all families.
    :param outputs: runs a forward pass without the loss.
    :param loss: computes the loss from outputs and targets.
    :param encode: returns the positions (B, T, C) for the cosine similarity, or None.
    :param clip_norm: maximum norm of an update's gradient, or None.
    :param threads: threads of a timed update; None: PyTorch's default.
    """

    description: str
    baseline: str
    variants: tuple[str, ...]
    build: Callable[[str], nn.Module]
    inputs: Callable[[], Inputs]
    outputs: Callable[[Any, Inputs], Tensor]
    loss: Callable[[Any, Tensor, Tensor], Tensor]
    encode: Callable[[Any, Inputs], Tensor] | None = None
    only: tuple[str, ...] | None = None
    optimiser: Callable[[nn.Module], torch.optim.Optimizer] = _adam
    clip_norm: float | None = None
    threads: int | None = None


def _transformer(connection: str, layers: int) -> Transformer:
    spec, _, values = connection.partition(" value-residual=")
    sizes = {"embed_dim": 128, "ffn_embed_dim": 256, "attention_heads": 4, "layers": layers, "connection": spec}
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
    words = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "share_all_embeddings": True}
    config = TransformerConfig(**words, padding_index=PADDING, dropout=0.2, value_residual=values or "none", **sides)
    model = Transformer(config)
    model.decoder.left_padded = False
    return model


def _sentences() -> Inputs:
    return tuple(torch.randint(4, VOCABULARY, (SENTENCES, LENGTH)) for _ in range(3))


def _features(model: Transformer, inputs: Inputs) -> Tensor:
    return model.decoder.features(inputs[1], model.encoder(inputs[0]))


def _token_loss(model: Transformer, features: Tensor, target: Tensor) -> Tensor:
    weight = model.decoder.embed_tokens.weight
    loss, _ = label_smoothed_cross_entropy(
        features, weight, target, epsilon=0.1, padding_index=PADDING, find_kernel=cross_entropy_kernel
    )
    return loss / target.numel()


# the forms of models of 2026 that are options, and the families that recipes/lm_field.yaml is older than
OF_2026 = (
    "mhc:start=deepseek", "mhc:reads=previous", "mhc:exit=head", "mhc:exit=head,residual=identity,start=hy4",
    "attnres:layers=2", "attnres:queries=3", "x0:backout=true",
)  # fmt: skip
NEW_FAMILIES = ("gated_residual", "lanes")


def _translation(layers: int) -> Model:
    return Model(
        description=f"Transformer of 128 features, FFN dimension 256, 4 heads, {layers} + {layers} layers, "
        f"{SENTENCES} x {LENGTH} tokens a side, a vocabulary of {VOCABULARY:,}",
        baseline="1xskip+ln",
        variants=(
            "1xskip", "2xskip+ln", "3xskip+ln", "prenorm+ln value-residual=learned",
            "sas:gate=single", "sas:host=prenorm", "hyper:form=static", "hyper:streams=2",
            "askip+ln:form=depth", "askip+ln:form=recursive", "askip+ln:form=mixture", *OF_2026,
        ),
        build=lambda connection: _transformer(connection, layers),
        inputs=_sentences,
        outputs=_features,
        loss=_token_loss,
        encode=lambda model, inputs: model.encoder(inputs[0]).states,
    )


def _language_model(depth: str) -> Model:
    """The model, the update and the connections of one depth of recipes/lm_field.yaml."""
    variants: list[TrainingSettings] = [
        recipe.settings.train for recipe in load_recipes(LM_FIELD, variants=[f"{depth}_*_lr1e-3"])
    ]
    common = variants[0]
    shape = (common.batch_size, common.context)
    return Model(
        description=f"language model of GPT-2's shape, {common.features} features, {common.heads} heads, "
        f"{common.layers} layers, {shape[0]} x {shape[1]} characters, on one thread",
        baseline="prenorm+ln",
        variants=(),
        only=tuple(dict.fromkeys(["prenorm+ln", *(each.connection for each in variants), *OF_2026, *NEW_FAMILIES])),
        build=lambda connection: untrained_language_model(
            model_config(replace(common, connection=connection), CHARACTERS)
        ),
        inputs=lambda: (torch.randint(4, CHARACTERS, shape), torch.randint(4, CHARACTERS, shape)),
        outputs=lambda model, inputs: model(inputs[0]),
        loss=lambda model, logits, target: functional.cross_entropy(logits.flatten(0, 1), target.flatten()),
        optimiser=lambda model: torch.optim.AdamW(
            parameter_groups(model, common), lr=common.lr, betas=(common.beta1, common.beta2), fused=True
        ),
        clip_norm=common.clip_norm,
        threads=1,
    )


def _vision_transformer(depth: int) -> Model:
    """The model and the connections of one depth of recipes/cifar10_vit.yaml."""
    variants = [recipe.settings.train for recipe in load_recipes(CIFAR10_VIT, variants=[f"d{depth}_*"])]
    common = variants[0]
    return Model(
        description=f"vision transformer of {common.features} features, {common.heads} heads, {depth} blocks, "
        f"{common.batch_size} images of 32 x 32, patches of {common.patch} x {common.patch}, on one thread",
        baseline="prenorm+ln",
        variants=(),
        only=tuple(each.connection for each in variants),
        build=lambda connection: vision_transformer(
            depth, connection, features=common.features, heads=common.heads, patch=common.patch
        ),
        inputs=lambda: (torch.randn(common.batch_size, 3, 32, 32), torch.randint(10, (common.batch_size,))),
        outputs=lambda model, inputs: model(inputs[0]),
        loss=lambda model, logits, target: functional.cross_entropy(logits, target),
        optimiser=lambda model: torch.optim.AdamW(model.parameters(), lr=common.lr, fused=True),
        threads=1,
    )


MODELS = {
    "translation": _translation(6),
    "translation_18x18": _translation(18),
    "vision": Model(
        description=f"PreAct-ResNet-20, {IMAGES} images of 32 x 32",
        baseline="1xskip",
        variants=(
            "2xskip+ln", "2rskip+bn", "sas:alpha_bias=3,beta_bias=-3", "sas:gate=single", "laurel:form=rw",
            "laurel", "layerscale", "orthogonal", "hyper:streams=2",
        ),
        build=lambda connection: preact_resnet(20, connection),
        inputs=lambda: (torch.randn(IMAGES, 3, 32, 32), torch.randint(10, (IMAGES,))),
        outputs=lambda model, inputs: model(inputs[0]),
        loss=lambda model, logits, target: functional.cross_entropy(logits, target),
    ),
    "language_modeling_4": _language_model("l4"),
    "language_modeling_24": _language_model("l24"),
    "vision_12": _vision_transformer(12),
    "vision_24": _vision_transformer(24),
}
