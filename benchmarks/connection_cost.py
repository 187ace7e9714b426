"""The cost of each family of connections in training: in Transformers, language models and models of images.

    python benchmarks/connection_cost.py [--counts | --times] [--rounds 9] [--only hyper sas] [--models translation]

It counts parameters, forward and backward operator calls, and the bytes that they read and write, as on a GPU
(tests/emulated_device.py). On a CPU it measures the memory that a forward pass saves for the backward pass, and times a
full update, alternating with the baseline in the same process. The ratio is the median over rounds. It also measures
the mean cosine similarity between positions of a sentence after the untrained encoder (docs/analysis.md), for random
sentences and several initialisations. It covers rskip's families with their default specs, and some variants; in
language models and vision transformers, the connections of recipes/lm_field.yaml and cifar10_vit.yaml, with the model
and the update of the recipe, on one thread.

Prints tables and appends one JSON line to study/results/benchmarks/connection_cost.jsonl. docs/costs.md shows the last
values of each connection.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch
from measuring.compared_models import MODELS, Model
from measuring.record import append_record, benchmark_parser
from measuring.rounds import compare
from torch import nn

from rskip.analysis.signals import similarity
from rskip.comparison.plan import kept_bytes
from rskip.connections import ConnectionSpec, Family, list_connections, parse_connection
from rskip.machine.memory import keep_freed_memory
from rskip.settings.errors import SettingError
from tests.emulated_device import emulated_cuda

INITIALISATIONS = 5  # the cosine similarity is a mean over these
Row = dict[str, Any]


def specs(model: Model) -> list[str]:
    """The baseline, then each family that the model supports, by name, with its variants; or the model's own list."""
    if model.only is not None:
        return list(model.only)
    found = dict.fromkeys([model.baseline])
    for family in list_connections():
        own = [text for text in map(str, _default_specs(family)) if builds(model, text)]
        variants = [text for text in model.variants if _spec(text).family == family.name]
        found |= dict.fromkeys([*own[:1], *variants])
    return list(found)


def builds(model: Model, connection: str) -> bool:
    """Whether the model takes the connection."""
    try:
        model.build(connection)
    except SettingError:
        return False
    return True


def _spec(text: str) -> ConnectionSpec:
    """The connection of a text in MODELS. The text may contain further settings of the model after a space."""
    return parse_connection(text.split(" ")[0])


def _default_specs(family: Family) -> Iterator[ConnectionSpec]:
    """The family with LN and without normalisation; the first that the model supports is compared."""
    factor = None if family.factor is None else 2 if family.factor.integer else 1
    for norm in ("ln", None):
        if norm in family.norms:
            yield ConnectionSpec(family.name, factor, norm)


def kept(model: Model, connection: str) -> Row:
    """Parameters, and bytes that a forward pass keeps on a CPU in float32 and training mode; without the loss."""
    torch.manual_seed(1)
    built = model.build(connection).train()
    inputs = model.inputs()
    return {
        "parameters": sum(each.numel() for each in built.parameters()),
        "kept_megabytes": round(kept_bytes(built, lambda: model.outputs(built, inputs)) / 1e6, 3),
    }


def count(model: Model, connection: str) -> Row:
    """Calls and bytes as on a GPU in float32 and training mode, without the loss."""
    inputs = model.inputs()
    with emulated_cuda(values=False) as counts:
        torch.manual_seed(1)
        built = model.build(connection).train().to("cuda")
        on_device = tuple(each.to("cuda") for each in inputs)
        model.outputs(built, on_device)  # builds caches before counting
        counts.clear()
        outputs = model.outputs(built, on_device)
        row: Row = {"calls_forward": counts.calls.total(), "megabytes_forward": round(counts.traffic.total() / 1e6, 3)}
        counts.clear()
        outputs.backward(torch.ones_like(outputs))
        row |= {"calls_backward": counts.calls.total(), "megabytes_backward": round(counts.traffic.total() / 1e6, 3)}
    return row


def cosine_similarity(model: Model, connection: str) -> float:
    """The mean cosine similarity between two positions of a sentence before training, as in `rskip analyse signals`."""
    assert model.encode is not None
    found = []
    for seed in range(INITIALISATIONS):
        torch.manual_seed(seed)
        built = model.build(connection).eval()
        with torch.no_grad():
            positions = model.encode(built, model.inputs())
        found.append(similarity(positions, positions.new_ones(positions.shape[:2], dtype=torch.bool)).mean())
    return float(torch.stack(found).mean())


def update(model: Model, connection: str) -> Callable[[], None]:
    """One update on one batch: forward, loss, backward, the optimiser's step."""
    torch.manual_seed(1)
    built = model.build(connection).train()
    inputs = model.inputs()
    optimizer = model.optimiser(built)

    def step() -> None:
        optimizer.zero_grad()
        model.loss(built, model.outputs(built, inputs), inputs[-1]).backward()
        if model.clip_norm is not None:
            nn.utils.clip_grad_norm_(built.parameters(), model.clip_norm)
        optimizer.step()

    return step


def measure(model: Model, connection: str, rounds: int) -> Row:
    """Milliseconds of an update and of the baseline's update, which alternate, and the median ratio over rounds."""
    threads = torch.get_num_threads()
    torch.set_num_threads(model.threads or threads)
    found = compare(update(model, connection), update(model, model.baseline), rounds)
    torch.set_num_threads(threads)
    return {"update_ms": found["before_ms"], "baseline_ms": found["now_ms"], "update_ratio": found["ratio"]}


def main() -> None:
    parser = benchmark_parser(__doc__, "connection_cost")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--counts", action="store_true", help="only count, without timing")
    parts.add_argument("--times", action="store_true", help="no calls, bytes and similarity, which no machine changes")
    parser.add_argument("--rounds", type=int, default=9, help="number of timed pairs of updates (default: 9)")
    parser.add_argument("--only", nargs="+", metavar="SPEC", help="connections to measure (default: all)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS], help="default: all")
    args = parser.parse_args()
    try:
        for text in args.only or ():
            _spec(text)
    except SettingError as error:
        parser.error(str(error))
    keep_freed_memory()  # as trainings do
    rows: list[Row] = []
    for name in args.models:
        model = MODELS[name]
        print(f"\n{name}: {model.description}")
        for connection in specs(model) if args.only is None else [each for each in args.only if builds(model, each)]:
            row = {"model": name, "connection": connection, **kept(model, connection)}
            if not args.times:
                row |= count(model, connection)
            if model.encode is not None and not args.times:
                row["alike"] = round(cosine_similarity(model, connection), 3)
            if not args.counts:
                row |= measure(model, connection, args.rounds)
            gc.collect()  # tensors of an emulated device are in reference cycles
            print("  " + "  ".join(f"{key} {value}" for key, value in row.items() if key != "model"), flush=True)
            rows.append(row)
    described = {
        name: {"description": MODELS[name].description, "baseline": MODELS[name].baseline} for name in args.models
    }
    timed = {} if args.counts else {"rounds": args.rounds}
    append_record(args.output, "connection_cost", {**timed, "models": described, "rows": rows})


if __name__ == "__main__":
    main()
