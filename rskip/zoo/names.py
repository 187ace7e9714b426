"""Names of pretrained models: how they are made, and which of them a user means.

    ARCHITECTURE_CONNECTION.DATASET[.SOURCE-TARGET][.VARIANT]

such as `transformer_tiny_2rskip_ln.multi30k.en-de` and `preact_resnet20_2rskip_ln.cifar10`. CONNECTION is the slug of
the connection's spec (`rskip.connections.ConnectionSpec.slug`); VARIANT tells runs apart whose other parts are equal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from rskip.settings.errors import SettingError
from rskip.settings.nearest import nearest
from rskip.tasks import find_task
from rskip.zoo.entry import ModelEntry
from rskip.zoo.registry import read_registry


def model_name(
    *,
    architecture: str,
    connection: str,
    dataset: str,
    languages: tuple[str, str] | None = None,
    variant: str | None = None,
) -> str:
    """The name of a model.

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


def find_model(models: Mapping[str, ModelEntry], name: str) -> ModelEntry:
    """The model of that name.

    :raises ValueError: there is none; names the nearest.
    """
    if not isinstance(name, str):
        raise ValueError(f"a pretrained model's name is a string, not {name!r}")
    if name in models:
        return models[name]
    near = nearest(name.lower(), models, count=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(models) or 'none'};"
    raise ValueError(f"no pretrained model {name!r}: {hint} `rskip zoo list` shows all")


def list_models(
    pattern: str | Sequence[str] | None = None,
    task: str | None = None,
    connection: str | None = None,
    *,
    models: Mapping[str, ModelEntry] | None = None,
) -> list[str]:
    """The names of pretrained models, sorted.

    :param pattern: a shell pattern such as `*.cifar10`, text that the name holds (`multi30k`), or several of these, of
        which one has to match.
    :param task: translation or image-classification.
    :param connection: a spec, however it is written: `2RSKIP+LN` is `2rskip+ln`.
    :param models: to choose from; default: those of checkpoints.json.
    :raises ValueError: no task of this name, or no connection.
    """
    patterns = [pattern] if isinstance(pattern, str) else pattern
    several = isinstance(patterns, Sequence) and all(isinstance(each, str) for each in patterns)
    if not (patterns is None or several):
        raise ValueError(f"pattern is {pattern!r}: expected text, such as '*.cifar10', or several")
    if task is not None:
        find_task(task)
    if connection is not None:
        from rskip.connections import parse_connection  # imports PyTorch

        connection = str(parse_connection(connection))
    return sorted(
        name
        for name, entry in (read_registry() if models is None else models).items()
        if (patterns is None or any(_matches(name, each) for each in patterns))
        and task in (None, entry.task)
        and connection in (None, entry.connection)
    )


def _matches(name: str, pattern: str) -> bool:
    pattern = pattern.lower()
    return fnmatchcase(name, pattern) if re.search(r"[*?\[]", pattern) else pattern in name
