"""Makes and reads the names of published models."""

from __future__ import annotations

import re

from rskip.settings.errors import SettingError
from rskip.zoo.registry import ModelEntry


def model_name(
    *,
    architecture: str,
    connection: str,
    dataset: str,
    languages: tuple[str, str] | None = None,
    variant: str | None = None,
) -> str:
    """ARCHITECTURE_CONNECTION.DATASET[.SOURCE-TARGET][.VARIANT], such as `transformer_tiny_2rskip_ln.multi30k.en-de`.

    CONNECTION is the slug of the connection's spec. VARIANT distinguishes runs whose other parts are equal.

    :param architecture: the architecture, such as transformer_tiny.
    :param connection: a spec such as 2rskip+ln.
    :param dataset: the dataset, such as multi30k or cifar10.
    :param languages: source and target language of a translation model.
    :param variant: a word of lower-case letters, digits and _.
    :raises ValueError: `connection` or `variant` is not valid.
    """
    from rskip.connections import parse_connection  # imports PyTorch

    check_variant(variant)
    parts = [f"{architecture}_{parse_connection(connection).slug}", dataset]
    if languages is not None:
        parts.append("-".join(languages))
    if variant is not None:
        parts.append(variant)
    return ".".join(parts)


def check_variant(variant: str | None) -> None:
    """:raises SettingError: the variant is neither None nor a word of these characters."""
    if variant is not None and not re.fullmatch(r"[a-z0-9][a-z0-9_]*", variant):
        expected = "a word of lower-case letters, digits and _, such as fast"
        raise SettingError.of_value("variant", variant, expected)


def variant_of(entry: ModelEntry) -> str | None:
    """The variant in the model's name. It is a last part without a hyphen, which languages would have."""
    further = entry.name.split(".")[2:]
    return further[-1] if further and "-" not in further[-1] else None
