"""An entry of the registry: a pretrained model, its files, its figures and where it comes from.

Every field is checked when an entry is made. Nothing here imports PyTorch or any model.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rskip.settings.check import check, to_plain
from rskip.settings.errors import SettingError
from rskip.settings.paper import Paper
from rskip.tasks.task import find_task

WEIGHTS = "model.safetensors"
OF_WEIGHTS, OF_RUN = "published weights", "run"

_INSIDE = r"^(?!~)(?!\.{0,2}(/|$))(?!.*/\.{0,2}(/|$))"  # no part of the path is empty, . or ..
_NAMES = r"[^\\:\x00-\x1f]+"

Text = Annotated[str, Meta(pattern=r"\S")]
Url = Annotated[str, Meta(pattern=r"^https?://\S+$", extra={"expected": "an https:// address without spaces"})]
RelativePath = Annotated[
    str,
    Meta(
        description="a relative path that stays in its folder, with / between names",
        pattern=f"{_INSIDE}{_NAMES}$",
        extra={"expected": "a relative path"},
    ),
]
FilePath = Annotated[
    str,
    Meta(
        description="a path within the model's folder; beside the weights nothing that can hold a pickle",
        pattern=rf"{_INSIDE}(model\.safetensors|{_NAMES}\.(json|txt|bpe|model))$",
        extra={"expected": f"a path within the folder: {WEIGHTS}, or one that ends in .json, .txt, .bpe or .model"},
    ),
]


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a model: its size in bytes and the SHA-256 sum of its content."""

    size: Annotated[int, Meta(ge=1, extra={"expected": "a whole number of bytes, 1 or more"})]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", extra={"expected": "64 hexadecimal digits, in lower case"})]


_SPREAD_OF_SEEDS = {  # in the schema, as Figure.__post_init__ has it
    "if": {"properties": {"seeds": {"maxItems": 1}}},
    "then": {"properties": {"spread": {"type": "null"}}},
    "else": {"properties": {"spread": {"type": "number"}}},
}


class Figure(msgspec.Struct, frozen=True, kw_only=True):
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

    dataset: Text
    split: Text
    metric: Text
    value: float
    spread: Annotated[float, Meta(ge=0)] | None
    seeds: Annotated[tuple[int, ...], Meta(min_length=1, extra_json_schema={"uniqueItems": True})]
    signature: Text | None
    of: Literal["published weights", "run"]

    def __post_init__(self) -> None:
        """:raises SettingError: a field that is not what it has to be."""
        check(self)
        if len(set(self.seeds)) != len(self.seeds):
            raise SettingError.of_value("seeds", list(self.seeds), "different whole numbers")
        if len(self.seeds) == 1 and self.spread is not None:
            raise SettingError.of_value("spread", self.spread, "null, since there is one seed")
        if len(self.seeds) > 1 and self.spread is None:
            raise SettingError.of_value("spread", None, "a number of 0 or more, since there are several seeds")


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A pretrained model.

    :param name: see `rskip.zoo.names`.
    :param task: of `rskip.tasks.tasks()`.
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

    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*){1,3}$",
            extra={"expected": "a name such as transformer_tiny_2rskip_ln.multi30k.en-de"},
        ),
    ]
    task: Annotated[str, Meta(description="of `rskip.tasks`: translation, image-classification, or one's own")]
    architecture: Annotated[Text, Meta(description="such as transformer_tiny or preact_resnet20")]
    connection: Annotated[Text, Meta(description="canonical spec, such as 2rskip+ln")]
    parameters: Annotated[int, Meta(ge=1)]
    folder: RelativePath | None
    url: Url | None
    files: Mapping[FilePath, ModelFile]
    dtype: Literal["float32", "float16", "bfloat16"]
    figures: Annotated[tuple[Annotated[Figure, Meta(extra_json_schema=_SPREAD_OF_SEEDS)], ...], Meta(min_length=1)]
    recipe: RelativePath
    overrides: Mapping[str, Any] = {}
    records: Annotated[tuple[RelativePath, ...], Meta(min_length=1)]
    commit: Annotated[str, Meta(pattern="^[0-9a-f]{40}$", extra={"expected": "40 hexadecimal digits"})] | None
    uncommitted_changes: bool | None = None
    licence: Text
    data_terms: Text
    paper: Paper

    def __post_init__(self) -> None:
        """:raises SettingError: a field that is not what it has to be."""
        check(self)
        for pattern in (WEIGHTS, *find_task(self.task).model_files):
            if not fnmatch.filter(self.files, pattern):
                raise SettingError("files", f"has no {pattern}", expected=f"what {self.task} reads")

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files.values())

    def to_json(self) -> dict[str, Any]:
        """The entry as plain values, all but its name."""
        content: dict[str, Any] = to_plain(self)
        del content["name"]
        return content
