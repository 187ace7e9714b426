"""Defines torch.hub's entries: every pretrained model, and four architectures without weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rskip.transformer
import rskip.vision
from rskip.captioning.config import CaptioningConfig
from rskip.transformer.config import LanguageModelConfig, TransformerConfig
from rskip.zoo.loading import load_entry
from rskip.zoo.model_card import describe
from rskip.zoo.registry import FILE_NAME, ModelEntry, read_registry

if TYPE_CHECKING:
    from rskip.captioning.model import CaptioningTransformer
    from rskip.transformer import LanguageModel, Transformer
    from rskip.vision import PreActResNet


def entry_points(*, root: Path) -> dict[str, Callable[..., Any]]:
    """The functions of hubconf.py by name. The function of a pretrained model has the model's name.

    :param root: root of the checkout that torch.hub loads, even if another rskip is imported.
    """
    models = {name: _entry_point(entry, root) for name, entry in read_registry(root / FILE_NAME).items()}
    architectures: list[Callable[..., Any]] = [transformer, captioning_transformer, language_model, preact_resnet]
    return {**{each.__name__: each for each in architectures}, **models}


def _entry_point(model: ModelEntry, root: Path) -> Callable[..., Any]:
    def entry_point(device: Any = None, dtype: Any = None) -> Any:
        return load_entry(model, root=root, device=device, dtype=dtype)

    entry_point.__name__ = entry_point.__qualname__ = model.name
    entry_point.__doc__ = (
        f"{describe(model)}\n"
        ":param device: the model's device (default: cpu).\n"
        ":param dtype: number format of the computation (default: float32).\n"
    )
    return entry_point


def transformer(
    source_vocabulary: int, target_vocabulary: int, connection: str = "1xskip+ln", **settings: Any
) -> Transformer:
    """An encoder-decoder Transformer without trained weights, with `connection` in every block.

    :param source_vocabulary: size of the source vocabulary, including special tokens.
    :param target_vocabulary: size of the target vocabulary, including special tokens.
    :param connection: connection of encoder and decoder, such as "2rskip+ln"; see
        `rskip.connections.list_connections()`.
    :param settings: other fields of `rskip.transformer.TransformerConfig`, such as encoder_layers=4.
    :raises ValueError: a connection or setting is unknown. Suggests the closest known one.
    """
    connections = {"encoder_connection": connection, "decoder_connection": connection}
    vocabularies = {"source_vocabulary": source_vocabulary, "target_vocabulary": target_vocabulary}
    return rskip.transformer.Transformer(TransformerConfig.from_dict({**vocabularies, **connections, **settings}))


def captioning_transformer(
    vocabulary: int, feature_dim: int, connection: str = "1xskip+ln", **settings: Any
) -> CaptioningTransformer:
    """A captioning Transformer without trained weights, with `connection` in every block.

    :param vocabulary: vocabulary size, including special tokens.
    :param feature_dim: dimension of an image feature.
    :param connection: as for `transformer`.
    :param settings: other fields of `rskip.captioning.config.CaptioningConfig`, such as grid_positions=False.
    :raises ValueError: a connection or setting is unknown. Suggests the closest known one.
    """
    from rskip.captioning.model import CaptioningTransformer  # imports PyTorch

    connections = {"encoder_connection": connection, "decoder_connection": connection}
    sizes = {"vocabulary": vocabulary, "feature_dim": feature_dim}
    return CaptioningTransformer(CaptioningConfig.from_dict({**sizes, **connections, **settings}))


def language_model(vocabulary: int, connection: str = "prenorm+ln", **settings: Any) -> LanguageModel:
    """A decoder-only language model without trained weights, with `connection` in every block.

    :param vocabulary: number of tokens.
    :param connection: as for `transformer`.
    :param settings: other fields of `rskip.transformer.LanguageModelConfig`, such as decoder_layers=4.
    :raises ValueError: a connection or setting is unknown. Suggests the closest known one.
    """
    config = LanguageModelConfig.from_dict({"decoder_connection": connection, **settings})
    return rskip.transformer.LanguageModel(config, vocabulary)


def preact_resnet(depth: int = 20, connection: str = "1xskip", num_classes: int = 10, **settings: Any) -> PreActResNet:
    """A pre-activation ResNet for CIFAR images without trained weights, with `connection` in every block.

    :param depth: 6n + 2 (20, 32, 44, 56, 110, ...), or 9n + 2 (164) with block="bottleneck".
    :param connection: the connection, such as "2rskip+ln"; see `rskip.connections.list_connections()`.
    :param num_classes: number of classes.
    :param settings: shortcut=, shortcut_input= and block=, as in `rskip.vision.preact_resnet`.
    :raises ValueError: the connection or depth is not possible. The error suggests the closest one.
    """
    return rskip.vision.preact_resnet(depth, connection, num_classes, **settings)
