"""Translate text, a sentence a line: files or standard input, or a conversation at the terminal.

Output has a line for each line of input, blank lines included. With --output FILE it is written to FILE.partial, which
becomes FILE when whole; --resume goes on with what an interrupted run left. Under torchrun the processes share the
input files. Lines that come slowly through a pipe are translated as they come.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rskip.cli._model_arguments import add_model_arguments, model_settings
from rskip.cli._model_path import model_path

if TYPE_CHECKING:
    from rskip.generation import SearchOptions
    from rskip.machine.ranks import Ranks
    from rskip.translation import Translation, Translator
    from rskip.translation.jobs import Job
    from rskip.translation.lines import Window
    from rskip.translation.output_lines import LineForm
    from rskip.translation.progress import Progress
    from rskip.translation.resume import ResumableFile

EXAMPLES = """examples:
  rskip translate --model checkpoints/multi30k_en_de_2rskip_ln test.en --output test.de
  echo "A dog runs." | rskip translate --model checkpoints/multi30k_en_de_2rskip_ln --beam 8 --nbest 3
  rskip translate --model MODEL --interactive
  torchrun --nproc_per_node 4 -m rskip.cli.main translate --model MODEL --device cuda big.en --output big.de"""

PRECISIONS = ("float32", "bfloat16", "int8")
TOO_LONG = ("keep", "cut", "split")
WINDOW_CHARACTERS = 300_000
# PyTorch and oneDNN keep kernels for every shape of a batch, by default so many that memory grows for 100,000 lines.
KERNEL_CACHES, KERNEL_CACHE_SIZE = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"), "128"
LARGE = 300_000  # bytes of inputs that are worth the seconds in which worker processes start
MOST_WORKERS = 8  # unless asked for: each takes memory
LEAST = {"threads": 1, "workers": 1, "buffer_size": 1, "max_tokens": 1, "max_source_positions": 2}  # of arguments
WAIT = 0.1  # seconds without more input, after which what there is is translated


class SearchFlag(NamedTuple):
    """How a field of `SearchOptions` is given."""

    flag: str
    kind: type
    help: str


SEARCH_FLAGS = {
    "beam": SearchFlag("--beam", int, "hypotheses kept at every step; 1 is greedy search (default: 4)"),
    "nbest": SearchFlag(
        "--nbest", int, "translations for each sentence; more than 1: lines of number, score, text (default: 1)"
    ),
    "length_penalty": SearchFlag("--lenpen", float, "length penalty; more favours longer translations (default: 1)"),
    "length_penalty_kind": SearchFlag(
        "--length-penalty-kind", str, "fairseq: length^lenpen; gnmt: ((5+length)/6)^lenpen (default: fairseq)"
    ),
    "min_length": SearchFlag("--min-len", int, "fewest tokens (default: 1)"),
    "max_length_a": SearchFlag("--max-len-a", float, "at most A times the source's tokens + B (default: 2)"),
    "max_length_b": SearchFlag("--max-len-b", int, "(default: 50)"),
    "unknown_penalty": SearchFlag("--unkpen", float, "unknown-word penalty; inf forbids them (default: 0)"),
    "temperature": SearchFlag("--temperature", float, "(default: 1)"),
    "no_repeat_ngram": SearchFlag(
        "--no-repeat-ngram-size", int, "no sequence of so many tokens comes twice; 0 allows all (default: 0)"
    ),
    "sampling": SearchFlag("--sampling", bool, "draw tokens instead of searching for the most probable ones"),
    "top_k": SearchFlag("--sampling-topk", int, "draw from the K most probable tokens; 0 for all (default: 0)"),
    "top_p": SearchFlag("--sampling-topp", float, "draw from those whose probabilities reach P (default: 1)"),
    "seed": SearchFlag("--seed", int, "of the draws (default: 1)"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("files", nargs="*", metavar="FILE", help="text in UTF-8; none, or -: standard input")
    parser.add_argument(
        "--model", required=True, metavar="MODEL", help="its folder or checkpoint, or a name of `rskip zoo list`"
    )
    parser.add_argument("--interactive", action="store_true", help="ask for sentences at the terminal")

    output = parser.add_argument_group("output")
    output.add_argument(
        "--output", metavar="PATH", help="a file, or a folder for a file each of FILE (default: standard output)"
    )
    output.add_argument(
        "--resume",
        action="store_true",
        help="go on with an interrupted translation of the same input with the same settings; whole outputs stay",
    )
    output.add_argument("--scores", action="store_true", help="score and tab in front of each translation")
    output.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="json: an object a line, with tokens, their scores and alignment (default: %(default)s)",
    )
    output.add_argument(
        "--progress", action="store_true", help="tell progress on stderr also where that is no terminal"
    )
    output.add_argument("--quiet", action="store_true", help="no progress, notes or summary on stderr")

    model = parser.add_argument_group("model")
    add_model_arguments(model)
    model.add_argument("--precision", choices=PRECISIONS, default="float32", help="(default: %(default)s)")
    model.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda where there is one, otherwise cpu)")
    model.add_argument("--threads", type=int, metavar="N", help="of the CPU (default: PyTorch's)")
    model.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes that share the CPU's threads; each has a copy of the model (default: for files of more than "
        f"{LARGE // 1000} kB one a thread, {MOST_WORKERS} at most; otherwise 1)",
    )

    search = parser.add_argument_group("search")
    for field, (flag, kind, text) in SEARCH_FLAGS.items():
        if kind is bool:
            search.add_argument(flag, dest=field, action="store_true", default=None, help=text)
        else:
            search.add_argument(flag, dest=field, type=kind, metavar=flag[2].upper(), help=text)

    batches = parser.add_argument_group("batches")
    batches.add_argument(
        "--max-tokens", type=int, metavar="N", help="source tokens of a batch; memory grows with it (default: 4096)"
    )
    batches.add_argument(
        "--buffer-size", type=int, default=2000, metavar="N", help="lines in memory at a time (default: %(default)s)"
    )
    batches.add_argument(
        "--too-long",
        choices=TOO_LONG,
        default="keep",
        help="sentences of more than --max-source-positions tokens: translate them whole if the model can, cut them, "
        "or split them into parts (default: %(default)s)",
    )
    batches.add_argument("--max-source-positions", type=int, metavar="N", help="see --too-long (default: the model's)")


def run(args: argparse.Namespace) -> None:
    """Translates what the arguments say."""
    for cache in KERNEL_CACHES:
        os.environ.setdefault(cache, KERNEL_CACHE_SIZE)
    for name, least in LEAST.items():
        value = getattr(args, name)
        if value is not None and value < least:
            raise ValueError(f"--{name.replace('_', '-')} {value}: expected at least {least}")
    if args.interactive:
        translate_interactively(args)
    else:
        translate_files(args)


def translate_files(args: argparse.Namespace) -> None:
    """Files or standard input to files or standard output."""
    from rskip.machine.ranks import Ranks
    from rskip.translation.fingerprint import model_sha256
    from rskip.translation.jobs import known_sum, plan_jobs
    from rskip.translation.progress import Progress, duration, speed
    from rskip.translation.ranks import FOREVER

    ranks = Ranks.from_environment()
    jobs = plan_jobs(args.files or ["-"], args.output)
    check_jobs(jobs, args, ranks)
    options = search_options(args)
    with ranks.process_group("gloo", timeout=FOREVER):
        jobs = unfinished_jobs(jobs, args, ranks)
        if not jobs:
            return
        ranks.wait()
        import torch  # takes a second, and the mistakes above are found without it

        translator = load_translator(args, ranks)
        settings = {"model": model_sha256(args.model, translator), **described(args, options, translator)}
        progress = Progress(
            total=known_sum(job.size for job in jobs),
            live=ranks.first and not args.quiet and (args.progress or sys.stderr.isatty()),
            notes=not args.quiet,
            ranks=ranks.count,
        )
        if "-" in jobs[0].inputs and sys.stdin.isatty() and not args.quiet:
            print("a sentence a line, Ctrl-D ends (--interactive asks for them)", file=sys.stderr)
        started = time.perf_counter()
        workers = worker_count(args, jobs, translator)
        with translator.parallel(workers) if workers > 1 else nullcontext(translator) as translator:
            for job in jobs:
                translate_job(job, args, options, translator, settings, progress, ranks, workers)
                progress.before += job.size or 0
        progress.end()
        lines, tokens = ranks.sum(torch.tensor([progress.lines, progress.tokens])).tolist()
        seconds = progress.seconds if ranks.count == 1 else time.perf_counter() - started
        if ranks.first and not args.quiet:
            how = f"{translator.device}, {args.precision}{f', {workers} workers' if workers > 1 else ''}"
            what = f"{lines:,} line{'s' * (lines != 1)} in {duration(seconds)}"
            print(f"rskip translate: {what}: {speed(lines, tokens, seconds)} ({how})", file=sys.stderr)


def translate_interactively(args: argparse.Namespace) -> None:
    """A conversation at the terminal."""
    for given, flag in ((args.files, "FILE"), (args.output, "--output"), (args.resume, "--resume")):
        if given:
            raise ValueError(f"{flag} doesn't go with --interactive")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ValueError("--interactive is for a terminal: without it standard input is translated")
    from rskip.machine.ranks import Ranks
    from rskip.translation.interactive import converse

    ranks = Ranks.from_environment()
    if ranks.count > 1:
        raise ValueError("--interactive doesn't go with torchrun")
    with suppress(ModuleNotFoundError):
        import readline  # noqa: F401 - makes input() edit lines and remember them
    options = search_options(args)
    translator = load_translator(args, ranks)
    form = chosen_form(args, options)
    number = 0

    def translated(sentence: str) -> str:
        nonlocal number
        number += 1
        translation = translate(translator, [sentence], seeded(options, number - 1), args)[0]
        return form(translation, number) + "".join(f"({note})\n" for note in translation.notes)

    print("a sentence a line, Ctrl-D ends", file=sys.stderr)
    converse(translated, prompt=f"{translator.source_language}-{translator.target_language}> ")


def check_jobs(jobs: Sequence[Job], args: argparse.Namespace, ranks: Ranks) -> None:
    """Refuses what can't be done with these outputs or by so many processes."""
    to_files = all(job.to_file for job in jobs)
    if args.resume and not to_files:
        raise ValueError("--resume needs --output, a file or a folder")
    if ranks.count > 1 and not to_files:
        raise ValueError("several processes (torchrun) need --output, a file or a folder")
    if ranks.count > 1 and any(job.size is None or "-" in job.inputs for job in jobs):
        raise ValueError("several processes (torchrun) can share files alone, no pipes: give each input as a FILE")


def unfinished_jobs(jobs: Sequence[Job], args: argparse.Namespace, ranks: Ranks) -> list[Job]:
    """The jobs without those that --resume finds finished; refuses what earlier runs left in the way."""
    from rskip.translation.resume import check_unfinished, unfinished_parts

    missing = []
    for job in jobs:
        if job.to_file:
            assert job.output is not None
            check_unfinished(job.output, ranks.rank, ranks.count, resume=args.resume)
            if args.resume and job.output.exists() and not unfinished_parts(job.output):
                if ranks.first and not args.quiet:
                    print(f"{job.output} is whole: it stays as it is", file=sys.stderr)
                continue
        missing.append(job)
    return missing


def search_options(args: argparse.Namespace) -> SearchOptions:
    """The Translator's usual options with what was given changed."""
    from rskip.translation.translator import DEFAULT_OPTIONS

    given = {field: getattr(args, field) for field in SEARCH_FLAGS if getattr(args, field) is not None}
    json = args.format == "json"
    try:
        return replace(DEFAULT_OPTIONS, **given, token_scores=json, attention=json)
    except ValueError as error:
        field, _, rest = str(error).partition("=")
        raise ValueError(f"{SEARCH_FLAGS[field].flag} {rest}") from error


def load_translator(args: argparse.Namespace, ranks: Ranks) -> Translator:
    """The model on its device."""
    import torch

    from rskip.machine.device import bfloat16_is_slow
    from rskip.translation import Translator

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    device = args.device or ("cuda" if torch.cuda.is_available() and args.precision != "int8" else "cpu")
    if device == "cuda" and ranks.count > 1:
        device = f"cuda:{ranks.local_rank}"
    args.model = model_path(args.model, task="translation")
    if not args.model.exists():
        raise FileNotFoundError(
            f"no model {args.model}: expected the folder of one, its checkpoint, or a name that `rskip zoo list` shows"
            f"{models_nearby()}"
        )
    if args.precision == "bfloat16" and bfloat16_is_slow(torch.device(device)) and ranks.first and not args.quiet:
        print("this processor doesn't multiply bfloat16: float32 is faster on it", file=sys.stderr)
    return Translator.from_pretrained(
        args.model,
        **model_settings(args),
        precision=args.precision,
        device=device,
    )


def worker_count(args: argparse.Namespace, jobs: Sequence[Job], translator: Translator) -> int:
    """What was asked for, or what the inputs are worth."""
    import torch

    from rskip.translation.jobs import known_sum

    if args.workers is not None:
        return args.workers
    size = known_sum(job.size for job in jobs)
    if translator.device.type != "cpu" or size is None or size < LARGE:
        return 1
    return min(torch.get_num_threads(), MOST_WORKERS)


def models_nearby() -> str:
    """The models in the folder `checkpoints` or in the working folder, for a message."""
    found = sorted(path.parent for folder in (".", "checkpoints") for path in Path(folder).glob("*/model.safetensors"))
    return f", such as {', '.join(map(str, found))}" if found else ""


def chosen_form(args: argparse.Namespace, options: SearchOptions) -> LineForm:
    """How translations are written."""
    from rskip.translation.output_lines import line_form

    return line_form(as_json=args.format == "json", scores=args.scores, nbest=options.nbest)


def described(args: argparse.Namespace, options: SearchOptions, translator: Translator) -> dict[str, Any]:
    """All but the model and the input that decides what is written."""
    import rskip

    return {
        "rskip": rskip.__version__,
        **asdict(options),
        "precision": args.precision,
        "device": translator.device.type,
        "format": args.format,
        "scores": args.scores,
        "max_tokens": args.max_tokens,
        "buffer_size": args.buffer_size,
        "too_long": args.too_long,
        "max_source_positions": args.max_source_positions,
    }


def seeded(options: SearchOptions, window: int) -> SearchOptions:
    """The options with a seed for this window; a resumed translation has the same windows."""
    return replace(options, seed=options.seed + window) if options.sampling else options


def translate(
    translator: Translator, sentences: Sequence[str], options: SearchOptions, args: argparse.Namespace
) -> list[Translation]:
    """The sentences' translations."""
    from rskip.translation.translator import MAX_TOKENS

    try:
        return translator.translate(
            sentences,
            options,
            max_tokens=MAX_TOKENS if args.max_tokens is None else args.max_tokens,
            too_long=args.too_long,
            max_source_tokens=args.max_source_positions,
        )
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            raise ValueError("not enough memory: give a smaller --max-tokens or --beam, or --too-long split") from error
        raise


def translate_job(
    job: Job,
    args: argparse.Namespace,
    options: SearchOptions,
    translator: Translator,
    settings: dict[str, Any],
    progress: Progress,
    ranks: Ranks,
    workers: int,
) -> None:
    """One output."""
    from rskip.translation.lines import read_windows
    from rskip.translation.ranks import merge_parts
    from rskip.translation.resume import ResumableFile, part_name
    from rskip.translation.stream import translate_stream

    def translated(window: Window) -> list[Translation]:
        return translate(translator, window.lines, seeded(options, window.number), args)

    def windows(wait: float | None) -> Iterator[Window]:
        return ranks.share(read_windows(job.inputs, lines=args.buffer_size, characters=WINDOW_CHARACTERS, wait=wait))

    form = chosen_form(args, options)
    if not job.to_file:
        with opened_stream(job.output) as write:
            translate_stream(windows(WAIT), translated, form=form, write=write, report=progress)
        return
    assert job.output is not None
    job.output.parent.mkdir(parents=True, exist_ok=True)
    part = job.output.with_name(part_name(job.output.name, ranks.rank, ranks.count))
    file = ResumableFile(part, settings, resume=args.resume)
    try:
        with saying_what_is_kept(file):
            missing = file.missing(windows(None))
            translate_stream(
                missing, translated, form=form, write=file.write, report=progress, ahead=1 if workers > 1 else 0
            )
        if ranks.count == 1:
            file.finish(job.output)
    finally:
        file.close()
    ranks.wait()
    if ranks.first and ranks.count > 1:
        merge_parts(job.output, ranks.count)


@contextmanager
def opened_stream(output: Path | None) -> Iterator[Callable[[Window, bytes], None]]:
    """What writes to the standard output, or to a pipe or device."""
    from rskip.translation.resume import write_all

    name = "standard output" if output is None else str(output)
    descriptor = 1 if output is None else os.open(output, os.O_WRONLY)

    def write(window: Window, text: bytes) -> None:
        write_all(descriptor, text, name)

    try:
        yield write
    finally:
        if output is not None:
            os.close(descriptor)


@contextmanager
def saying_what_is_kept(file: ResumableFile) -> Iterator[None]:
    """Adds to the message of what interrupts the block what there is to go on with."""
    from rskip.cli.main import one_line
    from rskip.translation.resume import OtherInputError

    try:
        yield
    except OtherInputError:
        raise
    except (KeyboardInterrupt, ValueError, OSError) as error:
        if not file.lines:
            raise
        kept = f"what is translated up to line {file.lines:,} is in {file.path}: --resume goes on with it"
        if isinstance(error, KeyboardInterrupt):
            print(f"rskip translate: {kept}", file=sys.stderr)
            raise
        raise ValueError(f"{one_line(error)}; {kept}") from error
