"""What `rskip.adapt` can do with every architecture of the installed libraries, on small models with random weights.

    python benchmarks/adapt_coverage.py run LIBRARY RECORD.jsonl [--only NAME ...] [--jobs 2] [--limit 240] [--build]
    python benchmarks/adapt_coverage.py page RECORD.jsonl ... > docs/adapt_coverage.md

LIBRARY is transformers, timm, torchvision or torch.nn. Each model runs in a process of its own, so that one that hangs
or crashes costs only itself; --limit is its time in seconds. A name that the record has already is not run again.
--build only builds the models and runs them once.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring.small_models import BUILDERS, loss_of, names_of, seed, tensors
from torch import Tensor, nn

import rskip
from rskip.nn import adaptation
from rskip.settings.errors import SettingError

OWN = "own connection"
PRELOADED = {"transformers": "llama", "timm": "vision_transformer", "torchvision": "vit", "torch.nn": "Transformer"}
SPECS = ("2rskip+ln", "mhc", "attnres")
Row = dict[str, Any]


def _state(model: nn.Module, inputs: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs in evaluation, and gradients in training."""
    seed()
    with torch.no_grad():
        outputs = list(tensors(model.eval()(*inputs) if isinstance(inputs, tuple) else model(**inputs)))
    loss_of(model.train(), inputs).backward()
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    model.zero_grad()
    return outputs, gradients


def _same(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def _adapted(model: nn.Module, inputs: Any, spec: str) -> nn.Module:
    """An adapted copy. adapt finds its own example first, as for a user who passes none."""
    copied = copy.deepcopy(model)
    try:
        return rskip.adapt(copied, spec)
    except SettingError:
        return rskip.adapt(copied, spec, example=inputs)


def _own(model: nn.Module, inputs: Any, name: str | None) -> str:
    """Adapts a copy to the connection that it has, and compares it with the model."""
    if name is None:  # the blocks' connections differ, or have no name in rskip: adapt itself compares the sums
        return "equal, without a name"
    before, adapted = _state(copy.deepcopy(model), inputs), _adapted(model, inputs, name)
    outputs, gradients = _state(adapted, inputs)
    if not _same(before[0], outputs):
        if not _same(before[0], _state(copy.deepcopy(model), inputs)[0]):
            return "the model itself is not deterministic"
        apart = max(float((a - b).abs().max()) for a, b in zip(before[0], outputs, strict=True))
        return f"{name}: outputs differ by {apart:.1g}"
    return f"{name}: {'equal' if _same(before[1], gradients) else 'gradients differ'}"


def _trained(model: nn.Module, inputs: Any, spec: str, row: Row) -> str:
    """Adapts a copy and trains it for three steps."""
    begin = time.perf_counter()
    model = _adapted(model, inputs, spec)
    done = adaptation(model)
    assert done is not None
    row.setdefault("seconds", round(time.perf_counter() - begin, 2))
    row |= {"own": done.own, "stacks": done.stacks, "unchanged": done.unchanged}
    new = dict(model.named_parameters())
    new = {name: new[name] for name in done.new if new[name].requires_grad}
    optimizer, losses, idle = torch.optim.AdamW(model.parameters(), lr=1e-3), [], set(new)
    for _ in range(3):
        optimizer.zero_grad()
        loss = loss_of(model.train(), inputs)
        loss.backward()
        idle -= {name for name in idle if (each := new[name].grad) is not None and bool(each.any())}
        optimizer.step()
        losses.append(loss.item())
    if not np.isfinite(losses).all() or losses[0] == losses[-1]:
        return f"losses {losses}"
    return f"no gradient: {', '.join(sorted(idle)[:3])} ({len(idle)} of {len(new)})" if idle else "trains"


def _attempt(work: Callable[[], str]) -> str:
    try:
        return work()
    except Exception as error:
        problem = " ".join(str(error).split())[:300]
        return f"refused: {problem}" if isinstance(error, SettingError) else f"{type(error).__name__}: {problem}"


def _group(model: nn.Module, library: str, inputs: Any) -> str:
    if library != "transformers":
        return library
    if type(model).__name__.endswith(("CausalLM", "LMHeadModel", "LMHead")) and set(inputs) == {"input_ids"}:
        return "causal language models"
    if not any("attention" in type(each).__name__.lower() for each in model.modules()):
        return "without attention"
    if "decoder_input_ids" in inputs:
        return "encoder-decoders"
    kinds = {name.split("_")[0] for name in inputs} & {"input", "pixel"}
    if len(kinds) > 1:
        return "multimodal"
    return "vision" if kinds == {"pixel"} else "text" if "input_ids" in inputs else "others"


def measure(library: str, name: str, build_only: bool) -> Row:
    """The row of one model."""
    begin, row = time.perf_counter(), {"library": library, "name": name}
    try:
        model, inputs = BUILDERS[library](name)
    except Exception as error:
        return row | {"reason": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    row |= {"group": _group(model, library, inputs), "class": type(model).__name__}
    row["parameters"] = sum(each.numel() for each in model.parameters())
    refused = ""
    if not build_only:
        for spec in SPECS:
            row[spec] = refused or _attempt(partial(_trained, model, inputs, spec, row))
            if row[spec].startswith("refused: model"):  # not for the connection: the next would be refused as well
                refused = row[spec]
        row[OWN] = _attempt(partial(_own, model, inputs, row["own"])) if "own" in row else row[SPECS[0]]
    return row | {"total": round(time.perf_counter() - begin, 1)}


def _run_one(args: argparse.Namespace, name: str) -> None:
    """Measures a model in a process of its own, and appends its row."""
    receiver, sender = multiprocessing.get_context("fork").Pipe(duplex=False)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
        sender.send(measure(args.library, name, args.build))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    sender.close()
    row: Row = {"library": args.library, "name": name}
    try:
        row = receiver.recv() if receiver.poll(args.limit) else row | {"reason": f"took over {args.limit} s"}
    except EOFError:
        process.join()
        row |= {"reason": f"the process ended with {process.exitcode}"}
    process.kill()
    process.join()
    row["version"] = importlib.import_module(args.library.partition(".")[0]).__version__
    with args.record.open("a") as record:
        record.write(json.dumps(row) + "\n")
    print(name, *(row.get(key, "") for key in ("reason", OWN, *SPECS)), sep=" | ", flush=True)


def run(args: argparse.Namespace) -> None:
    """Measures all models of a library."""
    torch.set_num_threads(1)
    if args.library == "transformers":
        importlib.import_module("transformers").logging.set_verbosity_error()
    measure(args.library, PRELOADED[args.library], args.build)  # the processes inherit what this imports
    done = {json.loads(line)["name"] for line in args.record.open()} if args.record.exists() else set()
    names = [name for name in args.only or names_of(args.library) if name not in done]
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(partial(_run_one, args), names))


def _cell(text: str) -> str:
    return text.replace("|", "\\|") or "-"


def page(args: argparse.Namespace) -> None:
    """Prints the page."""
    rows = [json.loads(line) for record in args.record for line in record.open()]
    built = [row for row in rows if "reason" not in row]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(built, key=lambda row: (row["library"], row["version"], row["group"], row["name"])):
        groups.setdefault((f"{row['library']} {row['version']}", row["group"]), []).append(row)
    print(HEAD)
    print(f"| library | group | built | {OWN} | {' | '.join(SPECS)} |\n|---|---|" + "---:|" * (2 + len(SPECS)))
    for (library, group), each in groups.items():
        counts = [sum("equal" in row[OWN] for row in each)]
        counts += [sum(row[spec] == "trains" for row in each) for spec in SPECS]
        print(f"| {library} | {group} | {len(each)} | {' | '.join(map(str, counts))} |")
    for (library, group), each in groups.items():
        print(f"\n## {library}: {group}\n\n| architecture | stacks | {OWN} | {' | '.join(SPECS)} |")
        print("|---" * (3 + len(SPECS)) + "|")
        for row in each:
            stacks = "; ".join(row.get("stacks", ""))
            results = ["same" if row[spec] == row[OWN] else row[spec] for spec in SPECS]
            print("|", " | ".join(map(_cell, (row["name"], stacks, row[OWN], *results))), "|")
    print("\n## Not built\n\n| library | architecture | reason |\n|---|---|---|")
    for row in rows:
        if "reason" in row:
            print(f"| {row['library']} {row['version']} | {row['name']} | {_cell(row['reason'])} |")


HEAD = f"""# Architectures that adapt changes

`benchmarks/adapt_coverage.py` writes this page. It builds each architecture of the installed libraries small, with
random weights, and adapts copies of it. [How to adapt a model](adapt.md) describes the call.

- **{OWN}**: the connection that adapt found in the model. `equal`: a copy that is adapted to this connection has the
  model's outputs in evaluation and its gradients in training, bit by bit. Where the connection has no name, adapt
  itself has compared the library's sums.
- **{", ".join(f"`{spec}`" for spec in SPECS)}**: `trains` if three steps of AdamW change a finite loss, and each new
  parameter gets a gradient.
- `refused` is adapt's message. The model is then unchanged.
- **stacks**: the blocks that adapt found, with the branch of each residual addition.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run")
    runs.add_argument("library", choices=BUILDERS)
    runs.add_argument("record", type=Path)
    runs.add_argument("--only", nargs="*")
    runs.add_argument("--jobs", type=int, default=2)
    runs.add_argument("--limit", type=int, default=240)
    runs.add_argument("--build", action="store_true")
    runs.set_defaults(work=run)
    pages = commands.add_parser("page")
    pages.add_argument("record", type=Path, nargs="+")
    pages.set_defaults(work=page)
    args = parser.parse_args()
    args.work(args)


if __name__ == "__main__":
    main()
