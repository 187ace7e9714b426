"""Trains a language-model run with `rskip lm train` in a separate process, and scores its last iterate in float32."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import torch

from rskip.checkpoint import untrained_language_model
from rskip.checkpoint.config_file import WEIGHTS
from rskip.corpora import TEXT_CORPORA, find_text_corpus
from rskip.language_modeling.data import TextData, load_data
from rskip.language_modeling.evaluation import TextScore, token_losses
from rskip.language_modeling.generator import TextGenerator
from rskip.language_modeling.model_file import load_language_model, model_config
from rskip.language_modeling.preparation import prepare_text
from rskip.language_modeling.settings import LanguageModelingSettings, TrainingSettings
from rskip.language_modeling.training import CurvePoint, read_curve
from rskip.machine.device import set_gpu_arithmetic
from rskip.machine.terminal import duration
from rskip.tasks.process import launched
from rskip.tasks.run import EpochLines, Run, once, precision_here
from rskip.tasks.task import Outcome
from rskip.tasks.training import TrainingFolder


def ensure_data(settings: LanguageModelingSettings, *, mirror: str | None) -> TextData:
    """The text of a run. A corpus that is not prepared yet is prepared in data-bin/.

    :raises SettingError: the name is unknown.
    :raises FileNotFoundError, ValueError: as `prepare_text` or `load_data`.
    """
    name = settings.data
    if name not in TEXT_CORPORA and Path(name).exists():
        return load_data(name)
    folder = data_folder(settings)
    prepare_text(find_text_corpus(name), folder, mirror=mirror)
    return load_data(folder)


def data_folder(settings: LanguageModelingSettings) -> Path:
    """The folder of a run's prepared text."""
    name = settings.data
    return Path("data-bin", name) if name in TEXT_CORPORA or not Path(name).exists() else Path(name)


def train(run: Run[LanguageModelingSettings]) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    ensure_data(run.settings, mirror=run.mirror)
    print(f"{run.name}, seed {run.seed}", flush=True)
    folder = training_folder(run)
    if not scored_file(run).exists():
        run.train(
            lambda precision: train_command(run, precision=precision),
            asked=run.settings.train.precision,
            resumed=folder.checkpoint.exists(),
            report=EpochLines(folder.curve, lambda path: [_line(point) for point in read_curve(path)]),
        )


def training_folder(run: Run[LanguageModelingSettings]) -> TrainingFolder:
    """The folder that `rskip lm train` writes."""
    return TrainingFolder(run.folder.path / "training")


def scored_file(run: Run[LanguageModelingSettings]) -> Path:
    """The last iterate, which is scored."""
    return training_folder(run).path / WEIGHTS


def commands(run: Run[LanguageModelingSettings]) -> list[list[str]]:
    """The equivalent commands of a run: prepare and train."""
    precision = precision_here(run.settings.train.precision, gpus=run.gpus)
    folder, name = data_folder(run.settings), run.settings.data
    mirror = [] if run.mirror is None else ["--mirror", run.mirror]
    prepare = [] if str(folder) == name else [["rskip", "prepare", name, "--output", str(folder), *mirror]]
    return [*prepare, train_command(run, precision=precision)]


def train_command(run: Run[LanguageModelingSettings], *, precision: str) -> list[str]:
    """The command `rskip lm train`, under `torchrun` for several GPUs. It resumes from a checkpoint.

    :param precision: precision of the training, which overrides the settings.
    """
    defaults, settings = TrainingSettings().to_dict(), {**run.settings.train.to_dict(), "precision": precision}
    changes = [f"{name}={json.dumps(value)}" for name, value in settings.items() if value != defaults[name]]
    return [
        *launched("rskip", gpus=run.gpus),
        *("lm", "train", str(data_folder(run.settings)), *(["--set", *changes] if changes else [])),
        *("--seed", str(run.seed), "--output", str(training_folder(run).path)),
        *run.probe_flags,
        *(["--device", "cpu"] if run.gpus == 0 else []),
    ]


def _line(point: CurvePoint) -> str:
    return (
        f"  iteration {point.iteration:6,}   train loss {point.train_loss:.4f}   valid loss {point.valid_loss:.4f}   "
        f"{duration(point.seconds)}"
    )


DECIMALS = 4
SAMPLE_LENGTH = 200


def score(run: Run[LanguageModelingSettings]) -> Outcome:
    """Evaluates the last iterate in float32, unless that is done already.

    Metrics: loss (nats per token), perplexity and bits_per_character on the validation text, and the loss on each half
    of it, so that settings can be chosen on one half and reported on the other. train_loss is the mean over the
    training batches since the curve's point before the last one.
    """
    data = ensure_data(run.settings, mirror=run.mirror)

    def evaluated() -> dict[str, Any]:
        print(f"evaluating in float32 for the run record, on {len(data.splits['valid']):,} tokens", flush=True)
        return evaluate_model(scored_file(run), data=data, gpus=run.gpus)

    evaluation = once(evaluation_file(run), evaluated)
    curve = read_curve(training_folder(run).curve, finished=True)
    return _outcome(run, {**evaluation, "train_loss": curve[-1].train_loss}, curve, data)


def diverged(run: Run[LanguageModelingSettings]) -> Outcome:
    """The outcome of a diverged training: its curve until then."""
    curve = training_folder(run).curve
    data = ensure_data(run.settings, mirror=run.mirror)
    return _outcome(run, {}, read_curve(curve) if curve.exists() else [], data)


def _outcome(
    run: Run[LanguageModelingSettings], figures: Mapping[str, float], curve: Sequence[CurvePoint], data: TextData
) -> Outcome:
    last = curve[-1] if curve else None
    training: dict[str, Any] = {"seconds": 0.0, "iterations": None}
    if last is not None:
        speed = round(fmean(point.tokens_per_second for point in curve), 1)
        training = {"seconds": last.seconds, "iterations": last.iteration, "tokens_per_second": speed}
    with torch.device("meta"):
        model = untrained_language_model(model_config(run.settings.train, len(data.tokens.dictionary)))
    return Outcome(
        metrics={name: round(value, DECIMALS) for name, value in figures.items()},
        signatures={},
        curve=[msgspec.to_builtins(point) for point in curve],
        training=training,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        data=data.described,
    )


def evaluate_model(path: Path, *, data: TextData, gpus: int = 0) -> dict[str, Any]:
    """Evaluates a model on the validation text, in float32.

    :param gpus: 0 for the CPU. With any other number, one GPU is used.
    """
    found = load_language_model(path)
    device = torch.device("cuda" if gpus > 0 else "cpu")
    set_gpu_arithmetic(device, training=False, same_shapes=True)
    text = data.splits["valid"]
    losses = token_losses(
        found.model.to(device),
        text,
        context=found.model.config.max_target_positions,
        start=data.tokens.dictionary.eos_index,
    ).double()
    characters = len(data.tokens.decode(text.tolist()))
    whole = TextScore(nats=float(losses.sum()), tokens=len(losses), characters=characters)
    half = len(losses) // 2
    return {
        "loss": whole.loss,
        "loss_first_half": float(losses[:half].mean()),
        "loss_second_half": float(losses[half:].mean()),
        "perplexity": whole.perplexity,
        "bits_per_character": whole.bits_per_character,
    }


def evaluation_file(run: Run[LanguageModelingSettings]) -> Path:
    """The file with the evaluation of the last iterate."""
    return run.folder.path / "evaluation.json"


def sample_outputs(run: Run[LanguageModelingSettings], count: int) -> str:
    """Texts that the model generates after a line end; empty if its files are missing."""
    if not scored_file(run).exists():
        return ""
    model = TextGenerator.from_pretrained(scored_file(run))
    texts = (model.generate("\n", length=SAMPLE_LENGTH, seed=number) for number in range(1, count + 1))
    return "\n".join(f"\n--- sample {number}\n{text}" for number, text in enumerate(texts, start=1))


def artifacts(run: Run[LanguageModelingSettings]) -> dict[str, str]:
    """See `Task.artifacts`."""
    return {
        str(run.folder.train_log): "output of the training",
        str(evaluation_file(run)): "loss on the validation text",
        str(scored_file(run).parent): "the model, for `rskip generate --model`",
    }
