"""Speed and memory of cleaning, tokenising and segmenting a corpus, compared with the usual pipeline of shell commands.

The commands are sacremoses' and subword-nmt's. They run in sequence for one language after the other, one process each,
as in preparation scripts. Ours uses the same settings in `rskip prepare`'s stages, with worker processes. The text is
Multi30k's training pairs, repeated, with the byte-pair codes of a published model. Both must write the same bytes. It
also measures the peak memory of all our processes together, for few and for many pairs. Prints tables, appends one JSON
line to study/results/benchmarks/prepare_speed.jsonl, and ends with one JSON object.

    python benchmarks/prepare_speed.py --mirror FOLDER [--rounds 5] [--workers 2] [--memory 100000 2000000]
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measuring.memory import memory
from measuring.multi30k import multi30k
from measuring.record import append_record, benchmark_parser
from measuring.rounds import median_min_max, ratios

from rskip.corpora import PrepareOptions
from rskip.corpora.formats import TextFile
from rskip.corpora.splits import SplitText
from rskip.corpora.stages import Setting, deduplicate, segment, tokenise
from rskip.machine.environment import available_cores
from rskip.text.pipeline import TextConfig, TextPipeline
from rskip.text.subwords import BytePairEncoding

LANGUAGES = ("en", "de")
CODES = Path(__file__).resolve().parents[1] / "checkpoints/multi30k_en_de/1xskip_ln/text/codes.bpe"
REPETITIONS = 10  # twice as many pairs as IWSLT'15 has


def write_texts(folder: Path, mirror: str | None, pairs: int | None) -> int:
    """Writes raw.en and raw.de: Multi30k's training pairs, repeated REPETITIONS times or up to `pairs` pairs."""
    texts = multi30k("train", mirror)
    count = REPETITIONS * len(texts["en"]) if pairs is None else pairs
    folder.mkdir()
    for language, lines in texts.items():
        with (folder / f"raw.{language}").open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in itertools.islice(itertools.cycle(lines), count))
    return count


def commands(folder: Path) -> Path:
    """Runs the shell commands. Returns the folder with the tokens."""
    programs = Path(sys.executable).parent
    for language in LANGUAGES:
        raw, words, tokens = (folder / f"{name}.{language}" for name in ("raw", "shell-words", "tokens"))
        tokenise = [programs / "sacremoses", "-q", "-l", language, "-j", "1", "tokenize", "-a", "-x"]
        segment = [programs / "subword-nmt", "apply-bpe", "-c", CODES]
        for command, source, target in ((tokenise, raw, words), (segment, words, tokens)):
            with source.open("rb") as given, target.open("wb") as made:
                subprocess.run(command, stdin=given, stdout=made, stderr=subprocess.DEVNULL, check=True)
    return folder


def ours(folder: Path, work: Path, pairs: int, workers: int) -> list[Path]:
    """Runs `rskip prepare`'s stages, with WMT'14's cleaning, but without removing duplicates.

    Returns the files with the tokens of LANGUAGES.
    """
    setting = Setting(
        options=PrepareOptions(
            size=10_000, remove_non_printing=True, empty=True, max_words=250, max_ratio=9.0, leaks=False
        ),
        config=TextConfig(source_language="en", target_language="de", normalise_punctuation=False),
        tokenised=False,
        work=work,
        workers=workers,
    )
    source, target = (TextFile(folder / f"raw.{language}") for language in LANGUAGES)
    text = SplitText(split="train", name="multi30k", sides=(source, target))
    tokenise(setting, [text], [pairs])
    pipeline = TextPipeline(setting.config, BytePairEncoding.load(CODES))
    pipeline.save(work / "text")
    segment(setting, deduplicate(setting), pipeline)
    return setting.sides("texts/shard1", "train")


def measure_speed(mirror: str | None, rounds: int, workers: int) -> dict[str, Any]:
    """Pairs per second of both systems, which alternate."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "texts")
        pairs = write_texts(folder, mirror, None)
        names = {"commands": None, "ours, 1 worker": 1, f"ours, {workers} workers": workers}
        times: dict[str, list[float]] = {name: [] for name in names}
        for number in range(rounds):
            for name, count in names.items():
                start = time.perf_counter()
                if count is None:
                    commands(folder)
                else:
                    made = ours(folder, Path(temporary, f"{number}-{count}"), pairs, count)
                times[name].append(time.perf_counter() - start)
                if count is not None and number == 0:
                    expected = b"".join((folder / f"tokens.{language}").read_bytes() for language in LANGUAGES)
                    if b"".join(path.read_bytes() for path in made) != expected:
                        raise SystemExit(f"{name}: the tokens differ from the commands'")
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    rows = []
    for name, seconds in times.items():
        rows.append(
            {
                "system": name,
                "seconds": round(statistics.median(seconds), 2),
                "pairs_per_second": round(pairs / statistics.median(seconds)),
                "ratio_to_commands": median_min_max(ratios(times, "commands", name)),
            }
        )
    return {"pairs": pairs, "workers": workers, "rounds": rounds, "rows": rows}


def measure_memory(mirror: str | None, pairs: list[int], workers: int) -> list[dict[str, Any]]:
    """Our peak memory for each number of pairs."""
    rows = []
    for count in pairs:
        with tempfile.TemporaryDirectory() as temporary:
            write_texts(Path(temporary, "texts"), mirror, count)
            with peak_memory() as peak:
                ours(Path(temporary, "texts"), Path(temporary, "work"), count, workers)
        rows.append({"pairs": count, "peak_mib": round(max(peak))})
    return rows


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """MiB of this process and its children together (proportional set size), sampled ten times per second."""
    seen: list[float] = [0.0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            seen.append(memory(os.getpid()))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def main() -> None:
    parser = benchmark_parser(__doc__, "prepare_speed")
    parser.add_argument("--mirror", help="folder or address with Multi30k's files (default: its publisher)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=available_cores())
    parser.add_argument("--memory", type=int, nargs="*", default=[100_000, 2_000_000], metavar="PAIRS")
    args = parser.parse_args()

    speed = measure_speed(args.mirror, args.rounds, args.workers)
    print(f"\n{speed['pairs']:,} pairs\n\n| system | seconds | pairs/s | × commands (min to max) |\n|---|---|---|---|")
    for row in speed["rows"]:
        ratio = "{:.2f} ({:.2f} to {:.2f})".format(*row["ratio_to_commands"])
        print(f"| {row['system']} | {row['seconds']} | {row['pairs_per_second']:,} | {ratio} |")
    memory = measure_memory(args.mirror, args.memory, args.workers)
    print("\n| pairs | peak memory, MiB |\n|---|---|")
    for row in memory:
        print(f"| {row['pairs']:,} | {row['peak_mib']:,} |")
    append_record(args.output, "prepare_speed", {"speed": speed, "memory": memory})
    print(f"\n{json.dumps({'ratio_to_commands': speed['rows'][-1]['ratio_to_commands'][0]})}")


if __name__ == "__main__":
    main()
