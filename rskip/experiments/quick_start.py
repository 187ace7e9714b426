"""Trains and scores a model on a data folder, by writing a recipe and running it (`rskip train`).

The output folder holds the model (config.json, model.safetensors, text/, dictionaries), recipe.yaml, the run's folder
and its run record. `rskip run OUTPUT/recipe.yaml --seeds 2 3` runs further seeds.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import torch

from rskip.checkpoint.config_file import WEIGHTS
from rskip.corpora.prepared import find_pairs
from rskip.experiments.recipe import OwnFields, load_recipe
from rskip.experiments.runner import plan_runs, run_seed
from rskip.files.lock import one_at_a_time
from rskip.files.whole import atomic_file
from rskip.machine.device import bfloat16_is_slow
from rskip.machine.environment import gpus_to_use
from rskip.records import Record
from rskip.settings.check import convert, field_names
from rskip.settings.errors import SettingError
from rskip.settings.text import parse_overrides, read_yaml, set_dotted
from rskip.settings.user_dir import suggested_command
from rskip.tasks.fairseq.flags import Flag, check_fairseq_flags
from rskip.tasks.process import executable
from rskip.tasks.run import Run
from rskip.transformer.architectures import CONNECTIONS, SIZES, architecture
from rskip.translation.continuing import START, further, model_flags, size_of, write_start
from rskip.translation.corpus_size import measure
from rskip.translation.metric_table import METRICS
from rskip.translation.plan import Choices, Hardware, Plan, cautions, few_updates, make_plan
from rskip.translation.publishing import write_files
from rskip.translation.recipe import TranslationSettings
from rskip.translation.speed import minutes_of, updates_within
from rskip.translation.training import fairseq_flags

RECIPE, _RUNS, _RESULTS = "recipe.yaml", "runs", "results"
_BEGUN = (_RUNS, _RESULTS, WEIGHTS)  # each shows that a training was begun
_SHOWN = 3  # translations at the end


@dataclass(frozen=True, kw_only=True)
class Request:
    """The request of a training.

    :param data: a folder that `rskip prepare` made.
    :param output: the folder to write.
    :param choices: the user's choices for the plan.
    :param minutes: time limit of the training on this machine; None: no limit.
    :param start: folder of the model to train further; None: a new model.
    :param seed: random seed.
    :param overrides: texts `dotted.key=value` that change settings of the recipe.
    :param gpus: number of GPUs; 0: the CPU; None: one if available.
    """

    data: str
    output: Path
    choices: Choices = field(default_factory=Choices)
    minutes: float | None = None
    start: Path | None = None
    seed: int = 1
    overrides: Sequence[str] = ()
    gpus: int | None = None

    @property
    def command(self) -> str:
        """The equivalent `rskip train` command, without the output folder and the number of GPUs."""
        default, words = Choices(), ["rskip", "train", self.data]
        for name in Choices.__struct_fields__:
            if (value := getattr(self.choices, name)) != getattr(default, name):
                words += [f"--{name}", str(value)]
        if self.start is not None:
            words += ["--from", str(self.start)]
        if self.minutes is not None:
            words += ["--minutes", f"{self.minutes:g}"]
        if self.seed != 1:
            words += ["--seed", str(self.seed)]
        return shlex.join([*words, *(["--set", *self.overrides] if self.overrides else [])])


def train_model(request: Request) -> Record:
    """Trains, scores and writes the model. An existing model is not trained again; an interrupted training is resumed.

    :returns: the run record. If the training diverged, it has no metrics, and there is no model.
    :raises ValueError: the data, settings or output folder are wrong.
    :raises FileNotFoundError: the data folder doesn't exist, or fairseq is not set up.
    :raises CommandFailed: the training failed; repeating the call resumes it.
    """
    executable("fairseq-train")
    gpus = gpus_to_use(request.gpus)
    with one_at_a_time(request.output):
        path = request.output / RECIPE
        if not path.exists() or not any((request.output / name).exists() for name in _BEGUN):
            _check_free(request.output)
            _write_recipe(path, _plan_recipe(request, gpus=gpus))
        else:
            _check_same(path, request)
        recipe = load_recipe(path)
        ((_, run),) = plan_runs([recipe], seeds=[request.seed], mirror=None, gpus=gpus)
        if request.start is not None and not (request.output / START).exists():
            write_start(request.start, request.output / START, arch=run.settings.train["arch"])
        (request.output / _RUNS).mkdir(exist_ok=True)  # the training has begun: a second process keeps the recipe
    done = recipe.record_path(run.seed).exists()
    if not done:
        print("\n".join(map(shlex.join, recipe.task.work().commands(run))), flush=True)
    record = run_seed(recipe, run)
    if not record.diverged and not (done and (request.output / WEIGHTS).exists()):
        _write_model(run, request.output)
    return record


def planned(request: Request) -> tuple[str, list[str]]:
    """The recipe that `train_model` would write, and the commands that it would run. Writes nothing.

    :raises ValueError: as `train_model`.
    """
    gpus = gpus_to_use(request.gpus)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, RECIPE)
        _write_recipe(path, _plan_recipe(request, gpus=gpus))
        recipe = load_recipe(path)
        ((_, run),) = plan_runs([recipe], seeds=[request.seed], mirror=None, gpus=gpus)
        return path.read_text(encoding="utf-8"), [shlex.join(words) for words in recipe.task.work().commands(run)]


def _check_free(output: Path) -> None:
    """:raises ValueError: the folder holds other files."""
    held = sorted(each.name for each in output.iterdir()) if output.is_dir() else []
    if held and held != [RECIPE]:
        what = "another model" if WEIGHTS in held else held[0]
        raise ValueError(f"{output} holds {what}, but no {RECIPE} from `rskip train`: choose another --output")


def _check_same(path: Path, request: Request) -> None:
    """:raises ValueError: the folder holds another training run, or its recipe names the folders of another place."""
    content = read_yaml(path)
    content = content if isinstance(content, dict) else {}
    begun = content.get("description")
    if begun != request.command:
        raise ValueError(
            f"{path.parent} was started with `{begun}`, not with `{request.command}`: repeat the first command to "
            "resume it, or choose another --output"
        )
    wanted = {name: str(request.output / name) for name in (_RUNS, _RESULTS)}
    for name, folder in wanted.items():
        if os.path.realpath(given := str(content.get(name, name))) != os.path.realpath(folder):
            lines = " and ".join(f"`{key}: {value}`" for key, value in wanted.items())
            raise ValueError(
                f"{path} has `{name}: {given}`, which is not in {path.parent}: if you moved or copied this folder, "
                f"write {lines} in that file"
            )


def _plan_recipe(request: Request, *, gpus: int) -> dict[str, Any]:
    """The content of the recipe."""
    data = find_pairs(request.data)
    device = torch.device("cuda", 0) if gpus else torch.device("cpu")
    corpus, hardware = measure(data), Hardware(gpus=gpus, bfloat16=not bfloat16_is_slow(device))
    print(f"{data.path}: {corpus.pairs:,} pairs, {data.source} to {data.target}; {corpus.vocabulary:,} subwords")
    choices, flags = request.choices, dict[str, Flag]()
    if request.start is not None:
        flags = model_flags(request.start, data)
        own = {"size": size_of(flags), "connection": str(flags.get("connection") or flags["encoder-connection"])}
        choices = msgspec.structs.replace(choices, **own)  # sas has another rate
        print(f"continues {request.start}: {flags['arch']}")
    plan = make_plan(corpus, hardware, choices)
    content = _content(request, plan, flags)
    if request.minutes is not None:
        train = {name: value for name, value in content["train"].items() if name != "finetune-from-model"}
        settings = _settings({**content, "train": train})  # the start, which isn't written yet, is as fast
        run = Run(name="speed", seed=request.seed, settings=settings, gpus=gpus)
        print("measuring the training speed", flush=True)
        limit, seconds = updates_within(request.minutes, run)
        print(f"measured: {seconds:.2f} s per update; {request.minutes:g} min allow {limit:,} updates")
        if limit < plan.updates:
            full = minutes_of(plan.updates, seconds)
            print(f"without the limit: {plan.updates:,} updates, about {full:,.0f} min")
        plan = make_plan(corpus, hardware, choices, limit=limit)
        content = _content(request, plan, flags)
    settings = _settings(content)
    changed = f"changed by --set: {shlex.join(request.overrides)}" if request.overrides else ""
    print("; ".join(part for part in (plan.described(settings.train), changed) if part), flush=True)
    for line in cautions(plan, corpus.pairs) if request.start is None else ():
        print(f"warning: {line}", file=sys.stderr, flush=True)
    check_fairseq_flags(fairseq_flags(settings))
    return content


def _content(request: Request, plan: Plan, flags: Mapping[str, Flag]) -> dict[str, Any]:
    """The content of the recipe.

    :param flags: those of the model that is trained further; empty: a new one.
    :raises SettingError: an override sets the connection or size, from which the plan's rate and clipping follow.
    """
    content: dict[str, Any] = {
        "kind": "translation",
        "description": request.command,
        "runs": str(request.output / _RUNS),
        "results": str(request.output / _RESULTS),
        "data": request.data,
        **plan.settings(),
        "evaluate": {"split": "test"},
        "show": _SHOWN,
    }
    if flags:
        content["train"] = further(content["train"], flags, request.output / START)
    for key, value in parse_overrides(request.overrides).items():
        if key == "train.connection":
            raise SettingError(key, "can't be set here", instead="connection")
        for (name, spec), size in product(CONNECTIONS.items(), SIZES):
            if key == "train.arch" and value == architecture(name, size):
                raise SettingError(key, f"can't be {value} here", advice=f"use --connection {spec} --size {size}")
        set_dotted(content, key, value)
    return content


def _settings(content: Mapping[str, Any]) -> TranslationSettings:
    """:raises SettingError: an override is wrong."""
    own = field_names(OwnFields)
    return convert({key: value for key, value in content.items() if key not in own}, TranslationSettings)


def _write_recipe(path: Path, content: Mapping[str, Any]) -> None:
    import yaml

    heading = (
        "# Written by `rskip train`. The same settings with other seeds: rskip run THIS_FILE --seeds 2 3\n"
        "# Add `variants:` to compare settings, such as connections (docs/recipes.md).\n"
    )
    text = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120)
    with atomic_file(path) as temporary:
        temporary.write_text(heading + text, encoding="utf-8")


def _write_model(run: Run[TranslationSettings], output: Path) -> None:
    """Moves the model's files into the output folder. The weights come last: if they exist, the model is complete."""
    building = output / ".model.partial"
    shutil.rmtree(building, ignore_errors=True)
    write_files(run, building)
    for each in sorted(building.iterdir(), key=lambda path: path.name == WEIGHTS):
        if (output / each.name).is_dir():
            shutil.rmtree(output / each.name)
        os.replace(each, output / each.name)
    building.rmdir()


def caution(request: Request, record: Record) -> str:
    """A line that says that the training was too short, with the command for a full one; "" if it was long enough."""
    corpus = measure(find_pairs(request.data))
    choices = msgspec.structs.replace(request.choices, epochs=None, updates=None)
    hardware, train = Hardware(gpus=gpus_to_use(request.gpus), bfloat16=False), record.config["train"]
    plan = make_plan(corpus, hardware, choices)
    ends = [train.get("max-update") or math.inf, (train.get("max-epoch") or math.inf) * plan.per_epoch]
    if math.isinf(end := min(ends)) or not (line := few_updates(int(end), plan)):
        return ""
    words = shlex.split(replace(request, choices=choices, minutes=None).command)
    return f"{line}. For the full training, run: {suggested_command(*words, '--output', f'{request.output}-full')}"


def ending(request: Request, record: Record) -> str:
    """The scores and the next commands, on several lines."""
    raw = "sacrebleu" in record.metrics
    shown = [each.name for each in METRICS if not (raw and each.tokens)]  # tokenised BLEU only if there is no other
    signed = [metric for metric in shown if metric in record.signatures]
    tokens = [] if raw else ["--text", "tokens"]
    translate = ["rskip", "translate", "--model", str(request.output), *tokens, "FILE", "--output", "TRANSLATION"]
    more_seeds = ["rskip", "run", str(request.output / RECIPE), "--seeds", "2", "3"]
    return "\n".join(
        [
            "",
            *(f"{metric}: {record.signatures[metric]}" for metric in signed),
            f"{request.output} holds the model",
            f"  {suggested_command(*translate)}",
            f"  {suggested_command(*more_seeds)}",
        ]
    )
