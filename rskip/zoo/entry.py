"""An entry of the registry: a pretrained model, its files, its figures and where it comes from.

Every field is checked when an entry is made. Nothing here imports PyTorch or any model.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rskip.settings.paper import Paper

TASKS = ("translation", "image-classification")
DTYPES = ("float32", "float16", "bfloat16")
WEIGHTS = "model.safetensors"
READ_WITH_WEIGHTS = {  # by task: what a model is built from besides, as shell patterns
    "translation": ("text/pipeline.json", "dict.*.txt"),
    "image-classification": ("config.json",),
}
PLAIN_SUFFIXES = (".json", ".txt", ".bpe", ".model")  # of what lies beside the weights: nothing that can hold a pickle
OF_WEIGHTS, OF_RUN = "published weights", "run"

_NAME = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*){1,3}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """A file of a model: its size in bytes and the SHA-256 sum of its content."""

    size: int
    sha256: str

    def __post_init__(self) -> None:
        """:raises ValueError: a field that is not what it has to be."""
        _expect("size", self.size, _is_count(self.size), "a whole number of bytes, 1 or more")
        _expect("sha256", self.sha256, _matches(_SHA256, self.sha256), "64 hexadecimal digits, in lower case")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of a model.

    :param dataset: such as multi30k-en-de.
    :param split: such as test_2016_flickr.
    :param metric: its name in records, such as sacrebleu or error; BLEU, chrF, error and accuracy are percentages.
    :param value: the figure, or the mean over `seeds`.
    :param spread: sample standard deviation over `seeds`; None where there is one.
    :param seeds: of the runs that it is of.
    :param signature: the scorer's, where it has one.
    :param of: "published weights": of the very file; "run": of the runs as they ended, before the weights of one were
        stored for publishing.
    """

    dataset: str
    split: str
    metric: str
    value: float
    spread: float | None
    seeds: tuple[int, ...]
    signature: str | None
    of: str

    def __post_init__(self) -> None:
        """:raises ValueError: a field that is not what it has to be."""
        for name in ("dataset", "split", "metric"):
            _expect(name, getattr(self, name), _is_text(getattr(self, name)), "text")
        _expect("value", self.value, _is_number(self.value), "a finite number")
        whole = isinstance(self.seeds, tuple) and all(type(seed) is int for seed in self.seeds)
        distinct = whole and 0 < len(self.seeds) == len(set(self.seeds))
        _expect("seeds", self.seeds, distinct, "a list of different whole numbers, 1 or more of them")
        if len(self.seeds) == 1:
            _expect("spread", self.spread, self.spread is None, "null, since there is one seed")
        else:
            valid = self.spread is not None and _is_number(self.spread) and self.spread >= 0
            _expect("spread", self.spread, valid, "a number of 0 or more, since there are several seeds")
        _expect("signature", self.signature, self.signature is None or _is_text(self.signature), "text or null")
        _expect("of", self.of, self.of in (OF_WEIGHTS, OF_RUN), f"{OF_WEIGHTS!r} or {OF_RUN!r}")


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """A pretrained model.

    :param name: see `rskip.zoo.names`.
    :param task: one of TASKS.
    :param architecture: such as transformer_tiny or preact_resnet20.
    :param connection: the canonical spec of its residual connections.
    :param parameters: how many the model has.
    :param folder: where its files lie in the repository; None where they are only served.
    :param url: base address of its files; None where none is known.
    :param files: path within the folder, with "/", to size and sum. The weights are model.safetensors.
    :param dtype: the number format that the weights are stored in.
    :param figures: what it reaches.
    :param recipe: the recipe of its run; `overrides`: what of it was overridden.
    :param records: of the runs that the figures are of, one a seed.
    :param commit: that the published run was made with; None where it was made outside a checkout.
    :param uncommitted_changes: whether there were changes beside that commit; None where it is not known.
    :param licence: of code and weights.
    :param data_terms: the terms of the data that it was trained on, and where that data is from.
    :param paper: that its connection is from.
    """

    name: str
    task: str
    architecture: str
    connection: str
    parameters: int
    folder: str | None
    url: str | None
    files: Mapping[str, ModelFile]
    dtype: str
    figures: tuple[Figure, ...]
    recipe: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    records: tuple[str, ...]
    commit: str | None
    uncommitted_changes: bool | None = None
    licence: str
    data_terms: str
    paper: Paper

    def __post_init__(self) -> None:
        """:raises ValueError: a field that is not what it has to be."""
        example = "a name such as transformer_tiny_2rskip_ln.multi30k.en-de"
        _expect("name", self.name, _matches(_NAME, self.name), example)
        _expect("task", self.task, self.task in TASKS, " or ".join(TASKS))
        for name in ("architecture", "connection", "licence", "data_terms"):
            _expect(name, getattr(self, name), _is_text(getattr(self, name)), "text")
        _expect("parameters", self.parameters, _is_count(self.parameters), "a whole number of 1 or more")
        _expect("folder", self.folder, self.folder is None or is_inside(self.folder), "a relative path, or null")
        check_url(self.url)
        _check_files(self.files, self.task)
        _expect("dtype", self.dtype, self.dtype in DTYPES, " or ".join(DTYPES))
        several = isinstance(self.figures, tuple) and len(self.figures) > 0
        _expect("figures", self.figures, several, "a list of 1 figure or more")
        _expect("recipe", self.recipe, is_inside(self.recipe), "a relative path")
        _expect("overrides", self.overrides, isinstance(self.overrides, Mapping), "keys and values")
        paths = isinstance(self.records, tuple) and len(self.records) > 0 and all(map(is_inside, self.records))
        _expect("records", self.records, paths, "a list of relative paths, 1 or more of them")
        known = self.commit is None or _matches(_COMMIT, self.commit)
        _expect("commit", self.commit, known, "40 hexadecimal digits, or null")
        changed = self.uncommitted_changes
        _expect("uncommitted_changes", changed, changed is None or isinstance(changed, bool), "true, false or null")

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files.values())

    def to_json(self) -> dict[str, Any]:
        """The entry as plain values, all but its name."""
        content = dataclasses.asdict(self)
        del content["name"]
        return content


def check_url(url: object) -> None:
    """:raises ValueError: neither a base address nor None."""
    served = isinstance(url, str) and re.fullmatch(r"https?://\S+", url) is not None
    _expect("url", url, url is None or served, "an address that begins with https:// and has no space, or null")


def is_inside(value: object) -> bool:
    """Whether the value is a path that stays in the folder that it is relative to, written with "/"."""
    return (
        isinstance(value, str)
        and re.search(r"[\\:\x00-\x1f]|^~", value) is None
        and not {"", ".", ".."} & set(value.split("/"))
    )


def _check_files(files: Mapping[str, ModelFile], task: str) -> None:
    if not isinstance(files, Mapping) or WEIGHTS not in files:
        raise ValueError(f"files has no {WEIGHTS}: expected the model's weights in it")
    for pattern in READ_WITH_WEIGHTS[task]:
        if not fnmatch.filter(files, pattern):
            raise ValueError(f"files has no {pattern}: expected it, since {task} reads it beside the weights")
    for path in files:
        if not is_inside(path):
            raise ValueError(f"files has {path!r}: expected paths within the model's folder, with / between names")
        if path != WEIGHTS and not path.endswith(PLAIN_SUFFIXES):
            suffixes = ", ".join(PLAIN_SUFFIXES)
            raise ValueError(f"files has {path!r}: expected {WEIGHTS}, and names that end in one of {suffixes}")


def _expect(name: str, value: object, valid: bool, expected: str) -> None:
    if not valid:
        raise ValueError(f"{name} is {value!r}: expected {expected}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
