"""Ends fairseq's programs in one line and exit status 2 after a user's mistake, instead of a traceback."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

MISTAKE = 2  # exit status
Ending = tuple[str, int]  # line (empty: print none) and exit status
STATUSES = {MISTAKE}  # exit statuses of a process that has printed its line


class UsageError(ValueError):
    """A user's mistake: what was given, what was expected, what to do."""


def usage_error_behind(error: BaseException | None) -> UsageError | None:
    """The first `UsageError` among `error` and its causes and contexts, or None."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, UsageError):
            return error
        seen.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def mistake(error: BaseException) -> Ending | None:
    """The ending of a program that met a `UsageError`."""
    usage_error = usage_error_behind(error)
    return None if usage_error is None else (str(usage_error), MISTAKE)


def reported_by_child(error: BaseException) -> Ending | None:
    """The ending of a program whose child process printed its own line, which a status of STATUSES says."""
    from torch.multiprocessing import ProcessExitedException

    if isinstance(error, ProcessExitedException) and error.exit_code in STATUSES:
        return "", error.exit_code
    return None


_WRONG_PATHS: dict[type[OSError], str] = {
    FileNotFoundError: "no such file or folder",
    NotADirectoryError: "this is a file: give a folder, such as one from fairseq-preprocess or `rskip prepare`",
    IsADirectoryError: "this is a folder: give a file in it, such as its checkpoint_best.pt",
}
_REWRITTEN = {  # fairseq's messages for a user's mistakes, and our lines
    re.compile(r"Dataset not found: (\S+) \((.+)\)"): r"no split \1 in \2: give one that was prepared, such as test",
    re.compile(r"Model file not found: (.+)"): r"\1: no such checkpoint: give an existing file",
    re.compile(r"Could not infer language pair, please provide it explicitly"): (
        "the data folder holds no language pair: give a folder from fairseq-preprocess or `rskip prepare`, or a --task "
        "other than translation"
    ),
    re.compile(r"Must specify batch size either with --max-tokens or --batch-size"): (
        "the batch size is missing: give --max-tokens or --batch-size, such as --max-tokens 4000"
    ),
    re.compile(r"Error merging override lr_scheduler\.total_num_update=null.*", re.DOTALL): (
        "--total-num-update is missing: give the number of updates after which the learning rate is 0"
    ),
    re.compile(r"Sentences lengths should not exceed max_tokens=(\d+)"): (
        r"a sentence has more than \1 tokens: give a larger --max-tokens"
    ),
    re.compile(r"Size of sample #(\d+) is invalid .* since max_positions=(.+), skip this example with (\S+)"): (
        r"sample \1 is longer than the limits \2: give a larger --max-source-positions and --max-target-positions, "
        r"or \3"
    ),
    re.compile(r"(?:System output|Reference) file (.+) does not exist"): r"\1: no such file or folder",
    re.compile(r"(Criterion|Optimizer) does not match; please reset the optimizer .*", re.DOTALL): (
        r"\1 of the checkpoint is another: use the flags of its training run (also --bf16 or --fp16), or "
        "--reset-optimizer"
    ),
    re.compile(r"(--path required.*|--batch-size cannot.*|--sampling requires.*)"): r"\1",
    re.compile(r"optimizer is required!"): "--optimizer is missing: give one, such as --optimizer adam",
    re.compile(r"(--finetune-from-model and --restore-file) \(non-default value\) can not be .*", re.DOTALL): (
        r"\1: give only one of them"
    ),
    re.compile(r"--finetune-from-model can not be set together with either (--reset-optimizer) or .*"): (
        r"--finetune-from-model and \1 (or another --reset flag): give only one of them"
    ),
    re.compile(r"Cannot load model parameters from checkpoint (.+); please ensure that the architectures match\."): (
        r"\1 has another architecture: use the same flags as in its training run, or another --save-dir"
    ),
    re.compile(r"loaded state dict contains a parameter group that doesn't match the size of optimizer's group"): (
        "the checkpoint's optimizer state doesn't fit the model: use the same flags as in its training run, or "
        "--reset-optimizer"
    ),
}


def wrong_path_or_flag(error: BaseException) -> Ending | None:
    """The ending of a program with a wrong path, or with a missing or contradictory flag."""
    for kind, problem in _WRONG_PATHS.items():
        if isinstance(error, kind) and error.filename is not None:
            return f"{error.filename}: {problem}", MISTAKE
    for pattern, line in _REWRITTEN.items():
        if match := pattern.fullmatch(str(error)):
            return match.expand(line), MISTAKE
    return None


# Each function returns an error's ending or None. The first ending wins.
ENDINGS: list[Callable[[BaseException], Ending | None]] = [mistake, reported_by_child, wrong_path_or_flag]


def add_ending(find: Callable[[BaseException], Ending | None], *, status: int = MISTAKE) -> None:
    """Adds a plug-in's function to ENDINGS, once, and the exit status of its endings to STATUSES."""
    if find not in ENDINGS:
        ENDINGS.append(find)
    STATUSES.add(status)


def program() -> str | None:
    """The name of the running program if it is one of fairseq's."""
    name = Path(sys.argv[0]).name if sys.argv else ""
    return name if name.startswith("fairseq-") else None


def end_in_one_line(error: BaseException) -> None:
    """Prints the line of `error`'s ending and raises SystemExit. Does nothing without an ending or outside fairseq."""
    name = program()
    ending = next(filter(None, (find(error) for find in ENDINGS)), None) if name else None
    if ending is None:
        return
    line, status = ending
    if line:
        print(f"{name}: error: {line}", file=sys.stderr)
    raise SystemExit(status)


@contextmanager
def ended_in_one_line() -> Iterator[None]:
    """Ends the program in one line if the block raises an error that has an ending; re-raises other errors."""
    try:
        yield
    except Exception as error:
        end_in_one_line(error)
        raise


def install() -> None:
    """Installs an excepthook that ends fairseq's programs in one line; doesn't change other programs."""
    previous = sys.excepthook
    if program() is None or getattr(previous, "ends_in_one_line", False):
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        end_in_one_line(error)
        previous(kind, error, trace)

    hook.ends_in_one_line = True  # type: ignore[attr-defined]
    sys.excepthook = hook
