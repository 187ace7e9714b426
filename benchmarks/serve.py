"""Speed, latency, equality and endurance of `rskip serve`, beside the same server code around CTranslate2.

The model is Multi30k's Transformer with 1xskip+ln, which CTranslate2 can run, on the first sentences of the test set.
Each client sends one sentence, waits for its translation and sends the next. Systems alternate in rounds; the ratio is
that of requests per second in the same round, and the median over rounds is reported, as is the ratio of offline
translation in one process. The clients run on the same processor. Then 32 clients' outputs are compared with offline
translation, malformed requests are counted by status, and the memory over many requests is printed. Prints JSON lines
and appends the result to study/results/benchmarks/serve.jsonl.

    python benchmarks/serve.py --sentences FILE [--rounds 3] [--threads 2] [--requests 20000] [--quick]

With --endurance it only sends requests, and prints memory, speed and errors of each 5,000:

    python benchmarks/serve.py --sentences FILE --endurance --requests 100000
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from measuring.record import append_record, benchmark_parser
from serving.load import Load, post, send, translate_requests
from serving.systems import CTranslate2Translator, server

from rskip.serving.settings import ServerSettings
from rskip.translation import Translator

MODEL = Path(__file__).resolve().parents[1] / "checkpoints/multi30k_en_de/1xskip_ln"
REQUESTS_PER_ROW = 5_000  # of the memory
CLIENTS = (1, 8, 32, 128)
SYSTEMS = ("ours float32", "ct2 float32", "ours int8", "ct2 int8")


def parse_arguments() -> argparse.Namespace:
    parser = benchmark_parser(__doc__, "serve")
    parser.add_argument("--sentences", type=Path, help="English sentences, one per line; may be compressed by gzip")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=1000, help="sentences per measurement of speed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--requests", type=int, default=20_000, help="requests while memory is watched")
    parser.add_argument("--endurance", action="store_true", help="only watch the memory over --requests")
    parser.add_argument("--malformed", type=int, default=10_000, help="malformed requests")
    parser.add_argument("--batch-wait", type=float, default=ServerSettings().batch_wait)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--quick", action="store_true", help="few sentences and requests, without a record")
    parser.add_argument("--serve", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def translator_of(system: str, folder: Path | None, threads: int) -> Translator:
    """Ours or CTranslate2's."""
    name, precision = system.split()
    if name == "ours":
        return Translator.from_pretrained(MODEL, precision=precision)
    translator = CTranslate2Translator.from_pretrained(MODEL)
    assert isinstance(translator, CTranslate2Translator) and folder is not None
    translator.use(folder, precision=precision, threads=threads)
    return translator


def serve(args: argparse.Namespace) -> None:
    """Runs the server's code around CTranslate2."""
    from rskip.serving.app import build_app
    from rskip.serving.models import Models, ServedModel
    from rskip.serving.server import open_port, run_server
    from rskip.serving.service import Service

    settings = ServerSettings(batch_wait=args.batch_wait)
    model = ServedModel("model", translator_of(args.serve, args.folder, args.threads))
    with open_port("127.0.0.1", 0) as listening:
        print(f"serving at http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
        run_server(build_app(Service(Models([model]), settings)), listening, settings)


def started(args: argparse.Namespace, system: str, folder: Path | None) -> AbstractContextManager[tuple[int, int]]:
    """A server with the command's settings."""
    return server(system, MODEL, folder, threads=args.threads, batch_wait=args.batch_wait)


def measure_speed(args: argparse.Namespace, sentences: list[str], folder: Path) -> list[dict[str, Any]]:
    """Requests per second and latencies of each system and number of clients, in rounds."""
    rows = []
    for number in range(args.rounds):
        for system in args.systems:
            with started(args, system, folder) as (port, _):
                for clients, per_second, load in loads(port, sentences, CLIENTS):
                    rows.append(
                        {
                            "round": number, "system": system, "clients": clients, "per_second": per_second,
                            "p50_ms": round(1000 * load.quantile(0.5), 1),
                            "p99_ms": round(1000 * load.quantile(0.99), 1),
                        }
                    )  # fmt: skip
                    print(json.dumps(rows[-1]), flush=True)
            rows.append({"round": number, "system": system, "clients": 0, **offline(args, system, folder, sentences)})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def loads(port: int, sentences: list[str], clients: Iterable[int]) -> Iterator[tuple[int, float, Load]]:
    """Requests per second and the load for each number of clients, after a warm-up."""
    send(port, translate_requests(sentences[:64]), 8)
    for count in clients:
        few = sentences[: len(sentences) // 4] if count == 1 else sentences
        load = send(port, translate_requests(few), count)
        assert {*load.statuses} == {200}
        yield count, round(len(few) / load.seconds, 1), load


def offline(args: argparse.Namespace, system: str, folder: Path, sentences: list[str]) -> dict[str, float]:
    """Sentences per second in one call, in this process."""
    torch.set_num_threads(args.threads)
    translator = translator_of(system, folder, args.threads)
    translator.translate(sentences[:64])
    start = time.perf_counter()
    translator.translate(sentences)
    return {"per_second": round(len(sentences) / (time.perf_counter() - start), 1)}


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Median over rounds of our requests per second divided by CTranslate2's."""
    speed = {(row["round"], row["system"], row["clients"]): row["per_second"] for row in rows}
    found = {}
    for precision in ("float32", "int8"):
        for clients in (0, *CLIENTS):
            pairs = [
                value / speed[number, f"ct2 {precision}", clients]
                for (number, system, count), value in speed.items()
                if system == f"ours {precision}" and count == clients and (number, f"ct2 {precision}", clients) in speed
            ]
            if pairs:
                name = f"{clients} clients" if clients else "offline"
                found[f"{precision}, {name}"] = round(statistics.median(pairs), 2)
    return found


def compare(args: argparse.Namespace, sentences: list[str], folder: Path) -> dict[str, int]:
    """How many outputs of 32 clients differ from offline translation."""
    found = {}
    for system in ("ours float32", "ours int8"):
        expected = [each.text for each in translator_of(system, folder, args.threads).translate(sentences)]
        with started(args, system, folder) as (port, _):
            texts = send(port, translate_requests(sentences), 32).translations()
        found[system] = sum(one != other for one, other in zip(texts, expected, strict=True))
    return {"sentences": len(sentences), **found}


def refuse(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Statuses of malformed requests."""
    with started(args, "ours float32", folder) as (port, _):
        rng = random.Random(1)
        bad = send(port, [malformed(rng) for _ in range(args.malformed)], 32, keep=True)
        counts = {status: bad.statuses.count(status) for status in sorted({*bad.statuses})}
        return {"malformed": counts, "tracebacks": sum(b"Traceback" in content for content in bad.contents)}


def endure(args: argparse.Namespace, sentences: list[str]) -> dict[str, Any]:
    """Memory, speed and errors over many requests of 32 clients."""
    rng, rows, done = random.Random(1), list[dict[str, Any]](), 0
    with started(args, "ours float32", None) as (port, process):
        send(port, translate_requests(sentences[:64]), 8)  # warm
        rows.append({"requests": 0, "resident_mb": resident(process)})
        while done < args.requests:
            count = min(REQUESTS_PER_ROW, args.requests - done)
            load = send(port, translate_requests(rng.choices(sentences, k=count)), 32, keep=False)
            done += count
            rows.append(
                {
                    "requests": done, "resident_mb": resident(process), "per_second": round(count / load.seconds, 1),
                    "p99_ms": round(1000 * load.quantile(0.99), 1),
                    "errors": sum(status != 200 for status in load.statuses),
                }
            )  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
    return {"endurance": rows}


def malformed(rng: random.Random) -> bytes:
    """A request that no route accepts: damaged JSON or text, wrong types, unknown keys or languages."""
    good = json.dumps({"text": "A dog runs.", "nbest": 2}).encode()
    cut = rng.randrange(len(good))
    junk = rng.randbytes(rng.randint(1, 40))
    bodies = [
        good[:cut], good[:cut] + b"\xff" + good[cut:], junk, b"[" * rng.randint(1, 5000), b"null", b"[]",
        json.dumps({"text": rng.choice([None, 1, {}, [1], [[]], "a\nb"])}).encode(),
        json.dumps({"text": "a", rng.choice("abcdefg"): 1}).encode(),
        json.dumps({"text": "a", "nbest": rng.choice([0, -1, 1.5, "1", 10**30, None, 99])}).encode(),
        json.dumps({"text": "a", "target": rng.choice(["xx", "", "\x00", "de" * 500])}).encode(),
    ]  # fmt: skip
    if rng.random() < 0.2:
        return post("/translate", rng.choice([b"q=%ff", b"source=en", junk]), "application/x-www-form-urlencoded")
    return post("/v1/translate", rng.choice(bodies), rng.choice(["application/json"] * 9 + ["text/plain"]))


def resident(process: int) -> float:
    """The server's resident memory in MB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return round(int(found[1]) * 1024 / 1e6, 1)


def main() -> None:
    args = parse_arguments()
    if args.serve:
        serve(args)
        return
    if args.quick:
        args.rounds, args.requests, args.malformed = 1, 200, 200
    opened = gzip.open if args.sentences.suffix == ".gz" else open
    with opened(args.sentences, "rt", encoding="utf-8") as file:
        sentences = file.read().splitlines()[: 64 if args.quick else 1000]
    if args.endurance:
        found = {"threads": args.threads, **endure(args, sentences)}
        append_record(Path(os.devnull) if args.quick else args.output, "serve endurance", found)
        return
    from rskip.cli.main import main as rskip

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "ct2")
        assert rskip(["export", "ct2", "--model", str(MODEL), "--output", str(folder)]) == 0
        rows = measure_speed(args, sentences[: args.count], folder)
        found = {
            "rounds": args.rounds,
            "threads": args.threads,
            "count": args.count,
            "settings": {"batch_wait": args.batch_wait},
            "speed": rows,
            "ratios": ratios(rows),
            "different": compare(args, sentences, folder),
            **refuse(args, folder),
            **endure(args, sentences),
        }
    append_record(Path(os.devnull) if args.quick else args.output, "serve", found)
    print(json.dumps({name: value for name, value in found.items() if name != "speed"}))


if __name__ == "__main__":
    main()
