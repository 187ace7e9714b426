"""What `rskip.adapt` can do with every architecture of the installed libraries, on small models with random weights.

    python benchmarks/adapt_coverage.py [LIBRARY ...] [--only NAME ...] [--specs SPEC ...] [--jobs 2] [--limit 240]
                                       [--build] [--page]

A library is transformers, timm, torchvision, torch.nn or diffusers (`pip install diffusers`); by default all. Each
model runs in a process of its own, so that one that hangs or crashes costs only itself; --limit is its time in seconds.
What the record has already for the installed version is not measured again, except with --only. For another version,
put it first in PYTHONPATH.
--build only builds the models and runs them once, without recording it. --specs measures fewer connections; a later run
without it measures these models again, with all of them.

Appends to study/results/benchmarks/adapt_coverage.jsonl, and then writes docs/adapt_coverage.md from it, as --page
alone does.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import multiprocessing
import re
import resource
import time
from collections.abc import Callable, Collection, Iterator
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

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "study" / "results" / "benchmarks" / "adapt_coverage.jsonl"
OWN = "own connection"
PRELOADED = {
    "transformers": "llama", "timm": "vision_transformer", "torchvision": "vit", "torch.nn": "Transformer",
    "diffusers": "DiTTransformer2DModel",
}  # fmt: skip
SPECS = ("2rskip+ln", "mhc", "attnres")
# Files without a residual addition, and what they have. They are not counted.
WITHOUT = {
    "densenet": "concatenates",
    "inception_v3": "concatenates",
    "inception_v4": "concatenates",
    "rdnet": "concatenates",
    "selecsls": "concatenates",
    "vgg": "a chain of convolutions",
}
Row = dict[str, Any]


def _state(model: nn.Module, inputs: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs in evaluation, and gradients in training."""
    seed()
    model.eval()
    with torch.no_grad():
        outputs = list(tensors(model(*inputs) if isinstance(inputs, tuple) else model(**inputs)))
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
        problem = re.sub(r"\S*/site-packages/", "", " ".join(str(error).split()))[:300]
        return f"refused: {problem}" if isinstance(error, SettingError) else f"{type(error).__name__}: {problem}"


def _group(model: nn.Module, library: str, inputs: Any) -> str:
    if library != "transformers":
        return library
    # Not counted among the Transformers: CNNs, audio codecs, recurrent models and tokenizers.
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


def measure(library: str, name: str, specs: Collection[str]) -> Row:
    """The row of one model."""
    begin, row = time.perf_counter(), {"library": library, "name": name}
    try:
        model, inputs = BUILDERS[library](name)
    except Exception as error:
        return row | {"reason": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    row |= {"group": _group(model, library, inputs), "class": type(model).__name__}
    row["parameters"] = sum(each.numel() for each in model.parameters())
    refused = ""
    if specs:
        for spec in specs:
            row[spec] = refused or _attempt(partial(_trained, model, inputs, spec, row))
            if row[spec].startswith("refused: model"):  # not for the connection: the next would be refused as well
                refused = row[spec]
        if not refused and "own" not in row:  # it takes none of them: what does it have?
            refused = _attempt(partial(_trained, model, inputs, "rezero", row)).removeprefix("trains")
        row[OWN] = _attempt(partial(_own, model, inputs, row["own"])) if "own" in row else refused
    return row | {"total": round(time.perf_counter() - begin, 1)}


def _run_one(args: argparse.Namespace, library: str, name: str) -> None:
    """Measures a model in a process of its own, and appends its row."""
    receiver, sender = multiprocessing.get_context("fork").Pipe(duplex=False)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
        sender.send(measure(library, name, args.specs))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    sender.close()
    row: Row = {"library": library, "name": name}
    try:
        row = receiver.recv() if receiver.poll(args.limit) else row | {"reason": f"took over {args.limit} s"}
    except EOFError:
        process.join()
        row |= {"reason": f"the process ended with {process.exitcode}"}
    process.kill()
    process.join()
    row["version"] = _version(library)
    if not args.build:
        with args.record.open("a") as record:
            record.write(json.dumps(row) + "\n")
    print(name, *(row.get(key, "") for key in ("reason", OWN, *args.specs)), sep=" | ", flush=True)


def _version(library: str) -> str:
    return str(importlib.import_module(library.partition(".")[0]).__version__)


def _read(record: Path) -> dict[tuple[str, str, str], Row]:
    """The last values of each library, version and architecture: a row adds to earlier ones with other --specs."""
    found: dict[tuple[str, str, str], Row] = {}
    for row in map(json.loads, record.read_text().splitlines() if record.exists() else ()):
        key = (row["library"], row["version"], row["name"])
        earlier = {} if "reason" in row else found.get(key, {})
        found[key] = row if "reason" in earlier else {**earlier, **row}
    return found


def run(args: argparse.Namespace, library: str) -> None:
    """Measures all models of a library."""
    torch.set_num_threads(1)
    if library == "transformers":
        importlib.import_module("transformers").logging.set_verbosity_error()
    measure(library, PRELOADED[library], args.specs)  # the processes inherit what this imports
    done = {key: {*row, *args.specs} if "reason" in row else row.keys() for key, row in _read(args.record).items()}
    version = _version(library)
    left = (name for name in names_of(library) if not done.get((library, version, name), set()) >= set(args.specs))
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(partial(_run_one, args, library), args.only or left))


def _cell(text: str) -> str:
    return text.replace("|", "\\|") or "-"


def page(rows: Collection[Row]) -> Iterator[str]:
    """The lines of the page."""
    built = [row for row in rows if "reason" not in row and row["name"] not in WITHOUT]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(built, key=lambda row: (row["library"], row["version"], row["group"], row["name"])):
        groups.setdefault((f"{row['library']} {row['version']}", row["group"]), []).append(row)
    yield HEAD
    yield f"| library | group | built | {OWN} | {' | '.join(SPECS)} |\n|---|---|" + "---:|" * (2 + len(SPECS))
    for (library, group), each in groups.items():
        counts = [str(sum("equal" in row[OWN] for row in each))]
        for spec in SPECS:
            measured = [row[spec] for row in each if spec in row]
            count = str(measured.count("trains"))
            counts.append(count if len(measured) == len(each) else f"{count} of {len(measured)}" if measured else "-")
        yield f"| {library} | {group} | {len(each)} | {' | '.join(counts)} |"
    for (library, group), each in groups.items():
        yield f"\n## {library}: {group}\n\n| architectures | {OWN} | {' | '.join(SPECS)} |"
        yield "|---" * (2 + len(SPECS)) + "|"
        names: dict[tuple[str, ...], list[str]] = {}
        for row in each:
            results = ["same" if row.get(spec) == row[OWN] else row.get(spec, "not run") for spec in SPECS]
            names.setdefault((row[OWN], *results), []).append(row["name"])
        for outcome, named in names.items():
            yield f"| {' | '.join(map(_cell, (', '.join(named), *outcome)))} |"
    yield "\n## Without residual additions\n"
    yield from (f"- timm {name}: {what}" for name, what in WITHOUT.items())
    yield "\n## Not built\n\n| library | architecture | reason |\n|---|---|---|"
    for row in rows:
        if "reason" in row and not row["reason"].startswith("KeyError"):  # a name that this version does not have
            yield f"| {row['library']} {row['version']} | {row['name']} | {_cell(row['reason'])} |"


HEAD = f"""# Architectures that adapt changes

`benchmarks/adapt_coverage.py` writes this page. It builds each architecture of the installed libraries small, with
random weights and without LayerDrop, and [adapts](adapt.md) copies of it. The record has the blocks that adapt found in
each.

- **{OWN}**: the connection that adapt found in the model. `equal`: a copy that is adapted to this connection has the
  model's outputs in evaluation and its gradients in training, bit by bit. Where the connection has no name, adapt
  itself has compared the library's sums.
- **{", ".join(f"`{spec}`" for spec in SPECS)}**: `trains` if three steps of AdamW change a finite loss, and each new
  parameter gets a gradient. (Some models ignore one of two streams that their last block returns, such as text, so its
  parameters get none in the library either.) `refused` is adapt's message; the model is then unchanged. `not run`: not
  measured.
- **built**: architectures that can be built small and trained for a step. `without attention` are those of transformers
  in which no module is an attention. Files of timm without residual additions are left out.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help=", ".join(BUILDERS))
    parser.add_argument("--only", nargs="*", metavar="NAME")
    parser.add_argument("--specs", nargs="*", metavar="SPEC", default=SPECS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=240)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--record", type=Path, default=RECORD)
    args = parser.parse_args()
    args.specs = () if args.build else args.specs
    for library in () if args.page else args.libraries or BUILDERS:
        run(args, library)
    if not args.build:
        (ROOT / "docs" / "adapt_coverage.md").write_text("\n".join(page(_read(args.record).values())) + "\n")


if __name__ == "__main__":
    main()
