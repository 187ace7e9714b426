"""The entries of torch.hub: every pretrained model, and three architectures without weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.zoo.loading import load_entry
from rskip.zoo.model_card import describe
from rskip.zoo.registry import FILE_NAME, ModelEntry, read_registry

if TYPE_CHECKING:
    from rskip.captioning.model import CaptioningTransformer
    from rskip.transformer import Transformer
    from rskip.vision import PreActResNet


def entry_points(*, root: Path) -> dict[str, Callable[..., Any]]:
    """The functions of hubconf.py by their names; a pretrained model's is the model's own.

    :param root: of the checkout that torch.hub loads, whichever rskip is imported.
    """
    models = {name: _entry_point(entry, root) for name, entry in read_registry(root / FILE_NAME).items()}
    architectures: list[Callable[..., Any]] = [transformer, captioning_transformer, preact_resnet]
    return {**{each.__name__: each for each in architectures}, **models}


def _entry_point(model: ModelEntry, root: Path) -> Callable[..., Any]:
    def entry_point(device: Any = None, dtype: Any = None) -> Any:
        return load_entry(model, root=root, device=device, dtype=dtype)

    entry_point.__name__ = entry_point.__qualname__ = model.name
    entry_point.__doc__ = (
        f"{describe(model)}\n"
        ":param device: where the model is to be; default: the CPU.\n"
        ":param dtype: what it computes in; default: float32.\n"
    )
    return entry_point


def transformer(
    source_vocabulary: int, target_vocabulary: int, connection: str = "1xskip+ln", **settings: Any
) -> Transformer:
    """An encoder-decoder Transformer without trained weights, every block joined by `connection`.

    :param source_vocabulary: tokens of the source dictionary, special ones counted.
    :param target_vocabulary: the same of the target dictionary.
    :param connection: of encoder and decoder, such as "2rskip+ln"; `rskip.connections.list_connections()` has all.
    :param settings: other fields of `rskip.transformer.TransformerConfig`, such as encoder_layers=4.
    :raises ValueError: an unknown connection or setting; the nearest known one is named.
    """
    from rskip.transformer import Transformer, TransformerConfig

    connections = {"encoder_connection": connection, "decoder_connection": connection}
    vocabularies = {"source_vocabulary": source_vocabulary, "target_vocabulary": target_vocabulary}
    return Transformer(TransformerConfig.from_dict({**vocabularies, **connections, **settings}))


def captioning_transformer(
    vocabulary: int, feature_dim: int, connection: str = "1xskip+ln", **settings: Any
) -> CaptioningTransformer:
    """A Transformer from image features to words without trained weights, every block joined by `connection`.

    :param vocabulary: words, special ones counted.
    :param feature_dim: numbers of an image feature.
    :param connection: as for `transformer`.
    :param settings: other fields of `rskip.captioning.config.CaptioningConfig`, such as grid_positions=False.
    :raises ValueError: an unknown connection or setting; the nearest known one is named.
    """
    from rskip.captioning.config import CaptioningConfig
    from rskip.captioning.model import CaptioningTransformer

    connections = {"encoder_connection": connection, "decoder_connection": connection}
    sizes = {"vocabulary": vocabulary, "feature_dim": feature_dim}
    return CaptioningTransformer(CaptioningConfig.from_dict({**sizes, **connections, **settings}))


def preact_resnet(
    depth: int = 20, connection: str = "1xskip", num_classes: int = 10, **settings: Any
) -> PreActResNet:
    """A pre-activation ResNet for CIFAR's images without trained weights, every block joined by `connection`.

    :param depth: 6n + 2 (20, 32, 44, 56, 110, ...), or 9n + 2 (164) with block="bottleneck".
    :param connection: such as "2rskip+ln"; `rskip.connections.list_connections()` has all.
    :param num_classes: of the logits.
    :param settings: shortcut=, shortcut_input= and block=, as in `rskip.vision.preact_resnet`.
    :raises ValueError: an unknown connection or another depth; the nearest known one is named.
    """
    from rskip.vision import preact_resnet

    return preact_resnet(depth, connection, num_classes, **settings)
