"""The names of published models."""

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

    CONNECTION is the slug of the connection's spec; VARIANT tells runs apart whose other parts are equal.

    :param architecture: such as transformer_tiny.
    :param connection: a spec such as 2rskip+ln.
    :param dataset: such as multi30k or cifar10.
    :param languages: what a translation model translates from and to.
    :param variant: a word of lower-case letters, digits and _.
    :raises ValueError: no connection, or no such word.
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
    """:raises SettingError: neither such a word nor None."""
    if variant is not None and not re.fullmatch(r"[a-z0-9][a-z0-9_]*", variant):
        expected = "a word of lower-case letters, digits and _, such as fast"
        raise SettingError.of_value("variant", variant, expected)


def variant_of(entry: ModelEntry) -> str | None:
    """The last part of the model's name where that is a variant: one word, where languages have a hyphen."""
    further = entry.name.split(".")[2:]
    return further[-1] if further and "-" not in further[-1] else None
