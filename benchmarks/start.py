"""Time from the shell to one translated line: rskip translate, CTranslate2, fairseq-interactive, and `import torch`.

Each system is a separate process that reads one sentence and prints its translation. They alternate, after one round
that does not count. CTranslate2 and fairseq use the weights of the 1xskip+ln model. CTranslate2's program imports it,
loads model and text pipeline, and translates. `import torch` is a lower bound for programs that use PyTorch. Wall time
is the user's waiting time. Processor time (user and system, of all threads) is meaningful on a busy machine too. With
--cold the operating system's caches are dropped before each start, if permitted. Prints a table and appends one JSON
line to study/results/benchmarks/start.jsonl.

    python benchmarks/start.py [--rounds 7] [--cold]
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

from measuring.record import append_record, benchmark_parser
from measuring.rounds import median_min_max

CHECKPOINTS = Path(__file__).resolve().parents[1] / "checkpoints"
STOCK, RECURSIVE = CHECKPOINTS / "multi30k_en_de/1xskip_ln", CHECKPOINTS / "multi30k_en_de/2rskip_ln"
NAME = "transformer_tiny_2rskip_ln.multi30k.en-de"
SENTENCE, TRANSLATION = "A man sleeps.\n", "Ein Mann schläft."
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
CTRANSLATE2 = """
import sys
import ctranslate2
from rskip.text import TextPipeline
folder = sys.argv[1]
text = TextPipeline.load(f"{folder}/text")
translator = ctranslate2.Translator(folder, device="cpu")
tokens = text.encode(sys.stdin.readline()).split()
print(text.decode(" ".join(translator.translate_batch([tokens], beam_size=4)[0].hypotheses[0])))
"""


def commands(folder: Path) -> dict[str, list[str]]:
    """The commands by name. Writes the models of CTranslate2 and fairseq into `folder`."""
    programs = Path(sys.executable).parent
    rskip, python = str(programs / "rskip"), sys.executable
    for arguments in (["ct2", "--output", f"{folder}/ct2"], ["fairseq", "--vanilla", "--output", f"{folder}/stock.pt"]):
        subprocess.run([rskip, "export", *arguments, "--model", str(STOCK)], check=True, stdout=subprocess.DEVNULL)
    fairseq = [
        str(programs / "fairseq-interactive"), str(STOCK), "--path", f"{folder}/stock.pt", "--cpu",
        "--source-lang", "en", "--target-lang", "de", "--beam", "4", "--tokenizer", "moses",
        "--bpe", "subword_nmt", "--bpe-codes", f"{STOCK}/text/codes.bpe",
    ]  # fmt: skip
    return {
        "rskip translate, 2rskip+ln": [rskip, "translate", "--quiet", "--model", str(RECURSIVE)],
        "rskip translate, 2rskip+ln, by its name": [rskip, "translate", "--quiet", "--model", NAME],
        "rskip translate, 1xskip+ln": [rskip, "translate", "--quiet", "--model", str(STOCK)],
        "CTranslate2, 1xskip+ln": [python, "-c", CTRANSLATE2, f"{folder}/ct2"],
        "fairseq-interactive, 1xskip+ln": fairseq,
        "import torch": [python, "-c", f"import torch; print({TRANSLATION!r})"],
    }


def start(command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of one process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, started = getrusage(RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.run(command, input=SENTENCE, capture_output=True, text=True, env=environment)
    wall, after = time.perf_counter() - started, getrusage(RUSAGE_CHILDREN)
    assert process.returncode == 0 and TRANSLATION in process.stdout, process.stderr[-1000:]
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(systems: dict[str, list[str]], rounds: int, *, cold: bool) -> list[dict[str, Any]]:
    """One row per system: median, minimum and maximum of wall seconds and processor seconds."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
    for number in range(rounds + 1):
        for name, command in systems.items():
            if cold:
                os.sync()
                DROP_CACHES.write_text("3")
            found = start(command)
            if number:
                times[name].append(found)
    return [
        {"system": name}
        | {
            kind: median_min_max(seconds, 3)
            for kind, seconds in zip(("wall", "processor"), zip(*pairs, strict=True), strict=True)
        }
        for name, pairs in times.items()
    ]


def show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n| {title} | wall, s (min to max) | processor, s (min to max) |\n|---|---|---|")
    for row in rows:
        columns = ["{:.2f} ({:.2f} to {:.2f})".format(*row[kind]) for kind in ("wall", "processor")]
        print(f"| {row['system']} | {' | '.join(columns)} |")


def can_drop_caches() -> bool:
    with contextlib.suppress(OSError):
        DROP_CACHES.write_text("1")
        return True
    return False


def main() -> None:
    parser = benchmark_parser(__doc__, "start")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cold", action="store_true", help="also with cold caches (drops the whole machine's)")
    args = parser.parse_args()
    values: dict[str, Any] = {"rounds": args.rounds}
    with tempfile.TemporaryDirectory() as temporary:
        systems = commands(Path(temporary))
        values["warm"] = measure(systems, args.rounds, cold=False)
        show("warm", values["warm"])
        if args.cold and can_drop_caches():
            values["cold"] = measure(systems, args.rounds, cold=True)
            show("cold", values["cold"])
        elif args.cold:
            print(f"\nnot measured cold: {DROP_CACHES} can't be written")
    append_record(args.output, "start", values)


if __name__ == "__main__":
    main()
