"""Translates files, standard input, or sentences typed at the terminal, for `rskip translate`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path

import rskip
from rskip.cli._model import model_of_the_hub, model_path, saying_what_is_assumed
from rskip.cli._model_arguments import STEP_FLAGS, model_settings
from rskip.cli._options import flag_of, refuse_flags, with_flags
from rskip.cli._resuming import stopping_tells
from rskip.cli.main import loading_for_good, termination_raises, with_flag_names
from rskip.cli.translate import NOT_FLAGS
from rskip.cpu.threads import set_threads
from rskip.extras import has_torch
from rskip.files.resumable import complete, how_to_resume
from rskip.generation.options import SearchOptions
from rskip.machine.device import bfloat16_is_slow, finds_gpu, usable_device
from rskip.machine.ranks import Ranks
from rskip.machine.terminal import duration
from rskip.settings.errors import nearest
from rskip.text import TextPipeline
from rskip.translation import Translator
from rskip.translation.files import FileTranslation, translate_window, worth_workers
from rskip.translation.jobs import Job, known_sum, plan_jobs, unfinished_jobs
from rskip.translation.model_files import find_model_files, model_parts, model_sha256
from rskip.translation.onnx_settings import ONNX_FILE
from rskip.translation.options import DEFAULT_OPTIONS, BatchSettings, CpuSettings
from rskip.translation.terminal import TranslationProgress, converse, speed
from rskip.translation.translation import line_form

# PyTorch and oneDNN cache kernels per batch shape. With their defaults, memory grows for 100,000 lines.
KERNEL_CACHES, KERNEL_CACHE_SIZE = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"), "128"
MANY_UNKNOWN = 0.05  # share of unknown tokens from which on a warning is printed
FOREVER = timedelta(days=365)  # the last rank may end much later than the first


def run(args: argparse.Namespace) -> None:
    """Translates files, standard input, or sentences typed at the terminal."""
    for cache in KERNEL_CACHES:
        os.environ.setdefault(cache, KERNEL_CACHE_SIZE)
    if args.interactive:
        translate_interactively(args)
    else:
        translate_files(args)


def translate_files(args: argparse.Namespace) -> None:
    """Translates files or standard input to files or standard output."""
    ranks = Ranks.from_environment()
    jobs = plan_jobs(args.files or ["-"], args.output)
    check_jobs(jobs, args, ranks)
    options, batches, cpu = search_options(args), with_flags(BatchSettings(), args), with_flags(CpuSettings(), args)
    verbose = ranks.first and not args.quiet
    alone = ranks.count == 1  # under torchrun, SIGTERM ends processes that wait for each other
    with ranks.process_group("gloo", timeout=FOREVER):
        jobs, whole = unfinished_jobs(jobs, ranks, resume=args.resume)
        if whole and verbose:
            print("\n".join(map(complete, whole)), file=sys.stderr)
        if not jobs:
            return
        ranks.wait()
        outputs = [job.output for job in jobs if job.to_file and job.output is not None]
        with termination_raises(how_to_resume(outputs)) if alone else nullcontext():
            translator = load_translator(args, ranks)
        work = FileTranslation(
            translator=translator,
            options=options,
            batches=batches,
            form=line_form(as_json=args.format == "json", scores=args.scores, nbest=options.nbest),
            journal=journal_settings(args, options, batches, translator) if jobs[0].to_file else {},
            resume=args.resume,
            ranks=ranks,
            progress=TranslationProgress(
                total=known_sum(job.size for job in jobs),
                live=verbose and (args.progress or sys.stderr.isatty()),
                notes=not args.quiet,
                ranks=ranks.count,
                named=partial(with_flag_names, args=args),
            ),
            workers=cpu.workers or worth_workers(jobs, translator),
        )
        if "-" in jobs[0].inputs and sys.stdin.isatty() and not args.quiet:
            print("type one sentence per line, press Ctrl-D to end (see also --interactive)", file=sys.stderr)
        with stopping_tells("rskip translate", outputs, "lines up to {} are", alone=alone):
            lines, tokens, seconds, unknown = work.run(jobs)
        if verbose:
            if unknown >= MANY_UNKNOWN:
                share = f"{100 * unknown:.0f} % of the input's tokens are not in the model's dictionary"
                print(f"rskip translate: warning: {share}: expect poor translations", file=sys.stderr)
            workers = f", {work.workers} workers" if work.workers > 1 else ""
            how = f"{translator.device}, {translator.precision}{workers}"
            what = f"{lines:,} line{'s' * (lines != 1)} in {duration(seconds)}"
            print(f"rskip translate: {what}: {speed(lines, tokens, seconds)} ({how})", file=sys.stderr)


def translate_interactively(args: argparse.Namespace) -> None:
    """Translates sentences typed at the terminal."""
    flags = {"FILE": args.files, "--output": args.output, "--resume": args.resume, "--progress": args.progress}
    refuse_flags(flags, "can't be combined with --interactive")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ValueError("--interactive needs a terminal: leave it out to translate standard input")
    ranks = Ranks.from_environment()
    refuse_flags({"--interactive": ranks.count > 1}, "can't be combined with torchrun")
    options, batches = search_options(args), with_flags(BatchSettings(), args)
    translator = load_translator(args, ranks)
    with suppress(ModuleNotFoundError):
        import readline  # noqa: F401 - makes input() edit lines and remember them
    form = line_form(as_json=args.format == "json", scores=args.scores, nbest=options.nbest)
    numbers, named = count(), partial(with_flag_names, args=args)

    def translated(sentence: str) -> str:
        number = next(numbers)
        (translation,) = translate_window(translator, [sentence], options, batches, number=number)
        return form(translation, number + 1) + "".join(f"({named(note)})\n" for note in translation.notes)

    print("type one sentence per line, press Ctrl-D to end", file=sys.stderr)
    converse(translated, prompt=f"{translator.source_language}-{translator.target_language}> ", named=named)


def check_jobs(jobs: Sequence[Job], args: argparse.Namespace, ranks: Ranks) -> None:
    """Raises an error if the outputs or the number of processes don't fit the other arguments."""
    to_files = all(job.to_file for job in jobs)
    if not to_files:
        flags = {"--resume": args.resume, "torchrun with several processes": ranks.count > 1}
        refuse_flags(flags, "needs --output, a file or a folder")
    if ranks.count > 1 and any(job.size is None or "-" in job.inputs for job in jobs):
        raise ValueError("several processes (torchrun) can share only files, not pipes: give each input as a FILE")


def search_options(args: argparse.Namespace) -> SearchOptions:
    """The default options of the Translator with the given changes."""
    json = args.format == "json"
    options = with_flags(DEFAULT_OPTIONS, args)
    if not options.sampling:
        refuse_flags({"--seed": args.seed}, "is only for --sampling")
    return replace(options, token_scores=json, attention=json)


def journal_settings(
    args: argparse.Namespace, options: SearchOptions, batches: BatchSettings, translator: Translator
) -> dict[str, object]:
    """Everything except the input that determines the output."""
    tokenizer, place = translator.tokenizer, str(args.model)
    steps = asdict(tokenizer.text.config) if isinstance(tokenizer.text, TextPipeline) else {}
    settings = [
        (flag_of(type(each), name), value)
        for each in (options, batches)
        for name, value in asdict(each).items()
        if name not in NOT_FLAGS
    ]
    return {
        "--model": {"path": place, "sha256": model_sha256(args.model)},
        "--dictionaries": {"path": str(args.dictionaries or place), "sha256": tokenizer.dictionaries_sha256},
        "--text": {"path": str(args.text or place), "sha256": tokenizer.text.sha256},
        "--source-lang": tokenizer.source_language,
        "--target-lang": tokenizer.target_language,
        **{flag: steps.get(name) for name, flag in STEP_FLAGS.items()},
        "rskip's version": rskip.__version__,
        **dict(settings),
        "--precision": translator.precision,
        "--device": translator.device.type,
        "--format": args.format,
        "--scores": args.scores,
    }


@loading_for_good()
def load_translator(args: argparse.Namespace, ranks: Ranks) -> Translator:
    """Loads the model on its device."""
    if (threads := with_flags(CpuSettings(), args).threads) is not None:
        set_threads(threads)
    paths = [model_path(part, task="translation") for part in model_parts(args.model)]
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(
                f"no model {path}: expected a model folder or checkpoint{model_nearby(path.as_posix())}, or a "
                f"name from `rskip zoo list`{model_of_the_hub(path.as_posix())}"
            )
    args.model = ":".join(map(str, paths))
    first, *others = files = find_model_files(args.model)
    on_cpu = args.precision == "int8" or any(file.name == ONNX_FILE for file in files)
    device = args.device or ("cuda" if not on_cpu and finds_gpu() else "cpu")
    if device == "cuda" and ranks.count > 1:
        device = f"cuda:{ranks.local_rank}"
    says_slow = not args.quiet and (ranks.first or device.startswith("cuda"))  # of several GPUs one may be older
    if args.precision == "bfloat16" and says_slow and has_torch() and bfloat16_is_slow(usable_device(device)):
        print(f"{device} has no bfloat16 instructions: --precision float32 is faster on it", file=sys.stderr)
    if ranks.first and not args.quiet:
        if others:
            print(f"the model is an ensemble of {', '.join(map(str, files))}", file=sys.stderr)
        elif first.name.startswith("checkpoint") and paths[0].is_dir():
            print(f"the model is {first}", file=sys.stderr)  # one of several of a training
    with saying_what_is_assumed(quiet=args.quiet or not ranks.first):
        return Translator.from_pretrained(
            args.model,
            **model_settings(args),
            precision=args.precision,
            device=device,
        )


def model_nearby(name: str) -> str:
    """`, such as PATH` with the model in the working folder or `checkpoints` whose name is closest; "" if none is."""
    found: dict[str, Path] = {}
    for place in (".", "checkpoints"):
        for folder in sorted({path.parent for path in Path(place).glob("*/**/dict.*.txt")}):
            if (folder / "model.safetensors").is_file():
                found[folder.relative_to(place).as_posix()] = folder
    names = nearest(name, found) or [*found][:1]
    return f", such as {found[names[0]]}" if names else ""
