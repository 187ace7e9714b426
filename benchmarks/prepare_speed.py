"""Speed of cleaning, tokenising and segmenting a corpus, compared with the usual pipeline of shell commands.

The commands are sacremoses' and subword-nmt's. They run in sequence for one language after the other, one process each,
as in preparation scripts. Ours uses the same settings in `rskip prepare`'s stages, with worker processes, and also
binarises the tokens. The text is Multi30k's training pairs, repeated, with the byte-pair codes of a published model.
Both must write the same tokens. Prints a table and appends one JSON line to
study/results/benchmarks/prepare_speed.jsonl. memory_over_size.py has the memory.

    python benchmarks/prepare_speed.py --mirror FOLDER [--rounds 5] [--workers 2]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from measuring.multi30k import multi30k
from measuring.record import append_record, benchmark_parser
from measuring.rounds import median_min_max, ratios, seconds, take_turns

from rskip.corpora import PrepareOptions
from rskip.corpora.binarised import MmapSentences
from rskip.corpora.formats import TextFile, read_pairs
from rskip.corpora.stages import Setting, binarise, deduplicate, segment, tokenise, write_dictionary, write_raw
from rskip.machine.environment import available_cores
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import TextConfig, TextPipeline
from rskip.text.subwords import BytePairEncoding

LANGUAGES = ("en", "de")
CODES = Path(__file__).resolve().parents[1] / "checkpoints/multi30k_en_de/1xskip_ln/text/codes.bpe"
REPETITIONS = 10  # twice as many pairs as IWSLT'15 has


def write_texts(folder: Path, mirror: str | None) -> int:
    """Writes raw.en and raw.de: Multi30k's training pairs, repeated. Returns their number."""
    folder.mkdir()
    for language, lines in multi30k("train", mirror).items():
        text = "".join(f"{line}\n" for line in lines) * REPETITIONS
        (folder / f"raw.{language}").write_text(text, encoding="utf-8")
    return REPETITIONS * len(lines)


def commands(folder: Path) -> list[Path]:
    """Runs the shell commands. Returns the files with the tokens of LANGUAGES."""
    programs = Path(sys.executable).parent
    for language in LANGUAGES:
        raw, words, tokens = (folder / f"{name}.{language}" for name in ("raw", "shell-words", "tokens"))
        tokenise = [programs / "sacremoses", "-q", "-l", language, "-j", "1", "tokenize", "-a", "-x"]
        segment = [programs / "subword-nmt", "apply-bpe", "-c", CODES]
        for command, source, target in ((tokenise, raw, words), (segment, words, tokens)):
            with source.open("rb") as given, target.open("wb") as made:
                subprocess.run(command, stdin=given, stdout=made, stderr=subprocess.DEVNULL, check=True)
    return [folder / f"tokens.{language}" for language in LANGUAGES]


def ours(folder: Path, work: Path, workers: int) -> list[Path]:
    """Runs `rskip prepare`'s stages, with WMT'14's cleaning, but without removing duplicates.

    Returns the prefixes of the binarised files of LANGUAGES.
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
    write_raw((("train", "multi30k", pair) for pair in read_pairs(source, target, sentences=None)), work / "raw")
    blocks, _ = deduplicate(setting.options.cleaning, tokenise(setting, work / "raw", []))
    pipeline = TextPipeline(setting.config, BytePairEncoding.load(CODES))
    pipeline.save(work / "text")
    files = segment(setting, blocks)
    dictionary = write_dictionary(setting, pipeline, files, work / "dict.txt")
    binarise(setting, files, dictionary, [work])
    return [work / f"train.en-de.{language}" for language in LANGUAGES]


def as_text(prefixes: list[Path]) -> bytes:
    """The tokens of binarised files, as the commands write them."""
    dictionary = Dictionary.load(prefixes[0].with_name("dict.txt"))
    sides = map(MmapSentences, prefixes)
    lines = (dictionary.decode(side.sentence(row).tolist()) + "\n" for side in sides for row in range(len(side)))
    return "".join(lines).encode()


def measure_speed(mirror: str | None, rounds: int, workers: int) -> dict[str, Any]:
    """Pairs per second of both systems, which alternate."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, made = Path(temporary, "texts"), dict[str, list[Path]]()
        pairs = write_texts(folder, mirror)

        def run(name: str, workers: int) -> None:
            work = Path(tempfile.mkdtemp(dir=temporary))
            made[name] = ours(folder, work, workers) if workers else commands(folder)

        names = {"commands": 0, "ours, 1 worker": 1, f"ours, {workers} workers": workers}
        calls = {name: partial(seconds, partial(run, name, count)) for name, count in names.items()}
        times = take_turns(calls, rounds, title="prepare")
        expected = b"".join(path.read_bytes() for path in made.pop("commands"))
        if any(as_text(prefixes) != expected for prefixes in made.values()):
            raise SystemExit("our tokens differ from the commands'")
    rows = []
    for name, found in times.items():
        rows.append(
            {
                "system": name,
                "seconds": round(statistics.median(found), 2),
                "pairs_per_second": round(pairs / statistics.median(found)),
                "ratio_to_commands": median_min_max(ratios(times, "commands", name)),
            }
        )
    return {"pairs": pairs, "workers": workers, "rounds": rounds, "rows": rows}


def main() -> None:
    parser = benchmark_parser(__doc__, "prepare_speed")
    parser.add_argument("--mirror", help="folder or address with Multi30k's files (default: its publisher)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=available_cores())
    args = parser.parse_args()

    speed = measure_speed(args.mirror, args.rounds, args.workers)
    print(f"\n{speed['pairs']:,} pairs\n\n| system | seconds | pairs/s | × commands (min to max) |\n|---|---|---|---|")
    for row in speed["rows"]:
        ratio = "{:.2f} ({:.2f} to {:.2f})".format(*row["ratio_to_commands"])
        print(f"| {row['system']} | {row['seconds']} | {row['pairs_per_second']:,} | {ratio} |")
    append_record(args.output, "prepare_speed", {"speed": speed})


if __name__ == "__main__":
    main()
