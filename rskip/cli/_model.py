"""Models and output folders of commands."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rskip.checkpoint.hugging_face import hub_folder, is_hub_name
from rskip.cli._model_arguments import STEP_FLAGS
from rskip.files.lock import one_at_a_time
from rskip.files.whole import real_path, whole_folder
from rskip.settings.errors import did_you_mean
from rskip.text.finding import AssumedText

TEXT_FILES = tuple(f"text/{name}" for name in (
    "pipeline.json", "codes.bpe", "sentencepiece.model", "source.spm", "target.spm"
))  # fmt: skip


@contextmanager
def saying_what_is_assumed(*, quiet: bool = False) -> Iterator[None]:
    """Within the block, prints `AssumedText` as one line on stderr, with the flags that change it, unless `quiet`."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not isinstance(message, AssumedText):
            shown(message, category, *place, **more)
        elif not quiet:
            flags = ", ".join(STEP_FLAGS.values())
            print(f"{message.assumption} ({flags} and their --no- forms change it)", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def model_path(model: str | Path, *, task: str) -> Path:
    """The path of a model: `model` itself if it exists, the folder of `hf:OWNER/NAME`, or weights of the zoo.

    Files of a pretrained model are found and downloaded as by `rskip.load`. If `model` is neither, it is returned as a
    path; the reader of the model then raises the error.

    :param task: the task that the model must be for, from `rskip.tasks.tasks()`.
    :raises ValueError: the pretrained model is for another task, or a file is damaged.
    :raises FileNotFoundError: `model` is close to the name of a pretrained model, or the files can't be found.
    :raises OSError: the server can't be reached, or the cache can't be written.
    """
    if is_hub_name(model):
        if task != "translation":
            raise ValueError(f"{model} is a model of the Hugging Face Hub, for translation: expected one for {task}")
        return hub_folder(model)
    path = Path(model)
    if path.exists() or len(path.parts) != 1:
        return path

    from rskip.zoo.files import model_folder  # importing these lengthens the start of a translation, which has a path
    from rskip.zoo.registry import WEIGHTS, read_registry, registry_file

    registry = registry_file()
    models = read_registry(registry)
    if path.name in models:
        entry = models[path.name]
        if entry.task != task:
            raise ValueError(f"{entry.name} is a model for {entry.task}: expected one for {task}")
        return model_folder(entry, root=registry.parent) / WEIGHTS  # the file, whose checksum was compared
    if near := did_you_mean(path.name, models):
        raise FileNotFoundError(f"no model {path}{near}: expected a path, or a name from `rskip zoo list`")
    return path


def check_replaceable(output: Path, *, replace: bool, suffix: str = "") -> None:
    """:raises FileExistsError: `output` exists, and `replace` is False; ValueError: it doesn't end in `suffix`."""
    if not output.name.endswith(suffix):
        raise ValueError(f"--output {output}: expected a name that ends in {suffix}")
    if output.exists() and not replace:
        raise FileExistsError(f"{output} exists: choose another --output, or use --force to replace it")


@contextmanager
def output_folder(output: Path, *, replace: bool, contents: Sequence[str]) -> Iterator[Path]:
    """Yields an empty folder that becomes `output` if the block succeeds, and is removed otherwise.

    Waits for any other command that writes `output`.

    :param replace: replace an existing `output`, if it holds only files that the same command writes.
    :param contents: patterns of the files that the command writes.
    :raises FileExistsError: `output` exists and may not be replaced.
    """
    output = real_path(output)
    with one_at_a_time(output):
        if output.exists():
            check_replaceable(output, replace=replace)
            for path in sorted(output.rglob("*")) if output.is_dir() else [output]:
                name = path.relative_to(output).as_posix()
                if path == output or not (path.is_dir() or any(fnmatchcase(name, pattern) for pattern in contents)):
                    raise FileExistsError(f"{path} would be lost: choose another --output")
        with whole_folder(output) as building:
            yield building


def model_of_the_hub(name: str) -> str:
    """`, or hf:OWNER/NAME ...` if `name` looks like a model of the Hugging Face Hub; "" otherwise."""
    owner, _, rest = name.rpartition("/")
    alike = re.fullmatch(r"[\w-][\w.-]*", owner) if owner else rest.startswith("opus-mt-")
    if not alike or Path(owner or name).exists():
        return ""
    return f", or hf:{owner or 'Helsinki-NLP'}/{rest} for the model of the Hugging Face Hub"
