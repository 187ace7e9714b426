"""What commands say of a model: which one and what belongs to it, and the folder that it is written to."""

from __future__ import annotations

import argparse
import gc
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rskip.files.lock import one_at_a_time
from rskip.files.whole import whole_folder

_TEXT_FLAGS = {
    "lowercase": "lowercase the source",
    "normalise_punctuation": "typographic quotes and dashes become plain ones",
    "dash_splits": "Moses: split words at hyphens (@-@)",
    "escape": "Moses: escape quotes and brackets (&quot;)",
}


def add_model_arguments(parser: Any, *, dictionaries_required: bool = False) -> None:
    """Adds --dictionaries, --text and its settings, --source-lang, --target-lang, --user-dir to a parser or a group."""
    where = "" if dictionaries_required else " (default: the model's)"
    parser.add_argument(
        "--dictionaries",
        type=Path,
        required=dictionaries_required,
        metavar="PATH",
        help=f"folder with dict.*.txt, such as data-bin, or a multilingual model's one dictionary{where}",
    )
    parser.add_argument(
        "--text",
        metavar="PATH",
        help="text pipeline, BPE codes, SentencePiece model, or `tokens` if the text is tokens (default: the model's, "
        "or next to the dictionaries)",
    )
    parser.add_argument(
        "--tokenizer",
        dest="tokeniser",
        choices=("moses", "none"),
        help="tokeniser before subword units (default of this and the next four flags: from pipeline.json, or else "
        "inferred from the dictionary)",
    )
    for name, what in _TEXT_FLAGS.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=what)
    parser.add_argument(
        "--source-lang",
        metavar="LANG",
        help="default of both: from the checkpoint or the files' names; a multilingual model needs them",
    )
    parser.add_argument("--target-lang", metavar="LANG")
    parser.add_argument(
        "--user-dir",
        type=Path,
        metavar="FOLDER",
        help="the user-dir of fairseq-train, if the model has your own connection",
    )


def model_settings(args: argparse.Namespace) -> dict[str, Any]:
    """These arguments as `Translator.from_pretrained` takes them; --user-dir is imported.

    :raises SettingError: --user-dir can't be imported.
    """
    if args.user_dir is not None:
        from rskip.settings.errors import SettingError
        from rskip.translation.recipe import import_user_dir

        try:
            import_user_dir(args.user_dir)
        except SettingError as error:
            raise error.named("--user-dir") from None
    given = {name: getattr(args, name) for name in ("tokeniser", *_TEXT_FLAGS)}
    return {
        "dictionaries": args.dictionaries,
        "text": args.text,
        "text_settings": {name: value for name, value in given.items() if value is not None},
        "source_language": args.source_lang,
        "target_language": args.target_lang,
    }


@contextmanager
def saying_what_is_assumed(*, quiet: bool = False) -> Iterator[None]:
    """Within the block, prints `AssumedText` as one line on stderr, with the flags that change it. `quiet`: nothing."""
    from rskip.text.assumed import AssumedText

    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not isinstance(message, AssumedText):
            shown(message, category, *place, **more)
        elif not quiet:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in ("tokenizer", *_TEXT_FLAGS))
            print(f"{message.assumption} ({flags} and their --no- forms change it)", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def model_path(model: str | Path, *, task: str) -> Path:
    """The path, where something is there; else the weights of the pretrained model of that name.

    Its files are looked for, and fetched, as `rskip.load` does it. What is neither is returned as a path: the reader of
    the model says what it expects there.

    :param task: that the model must be for, of `rskip.tasks.tasks()`.
    :raises ValueError: a pretrained model for another task, or a damaged file.
    :raises FileNotFoundError: nearly the name of one, or its files are nowhere to be had.
    :raises OSError: the server can't be reached, or the cache can't be written.
    """
    path = Path(model)
    if path.exists() or len(path.parts) != 1:
        return path

    from rskip.settings.errors import did_you_mean
    from rskip.zoo.files import model_folder
    from rskip.zoo.registry import WEIGHTS, read_registry, registry_file

    registry = registry_file()
    models = read_registry(registry)
    if path.name in models:
        entry = models[path.name]
        if entry.task != task:
            raise ValueError(f"{entry.name} is a model for {entry.task}: expected one for {task}")
        return model_folder(entry, root=registry.parent) / WEIGHTS  # the file, whose sum was compared
    if near := did_you_mean(path.name, models):
        raise FileNotFoundError(f"no model {path}{near}: expected a path, or a name that `rskip zoo list` shows")
    return path


@contextmanager
def loading_for_good() -> Iterator[None]:
    """For the block that loads what the process keeps to its end, PyTorch among it: no garbage is looked for in it.

    Python otherwise searches those 200,000 objects for cycles while they are imported, and once more at exit, which
    takes as long as a third of the import. Only the first such block of a process does so.
    """
    if gc.get_freeze_count() or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def check_replaceable(output: Path, *, replace: bool) -> None:
    """FileExistsError where `output` is there and is not to be replaced."""
    if output.exists() and not replace:
        raise FileExistsError(f"{output} is there already: give another --output, or --force to replace it")


@contextmanager
def output_folder(output: Path, *, replace: bool, contents: Sequence[str]) -> Iterator[Path]:
    """Gives an empty folder that becomes `output` if the block ends well, or is removed.

    Waits for another command that writes `output`.

    :param replace: an `output` that is there already is replaced, if the same command can have written it.
    :param contents: patterns of the names that the command writes.
    :raises FileExistsError: `output` is there and is not to be replaced.
    """
    output = output.absolute()
    if not output.name:
        raise FileExistsError(f"{output} can't be replaced: give another --output, a folder")
    with one_at_a_time(output):
        if output.exists():
            if not output.is_dir():
                raise FileExistsError(f"{output} is a file: give another --output, a folder")
            check_replaceable(output, replace=replace)
            for path in sorted(output.iterdir()):
                if not any(path.match(pattern) for pattern in contents):
                    raise FileExistsError(f"{output} holds {path.name}, which would be lost: give another --output")
        with whole_folder(output) as building:
            yield building
