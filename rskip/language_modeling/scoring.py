"""Scores a language-model run: its last iterate on the validation text, in float32."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypedDict

import msgspec
import torch

from rskip.checkpoint import untrained_language_model
from rskip.files.state import read_state
from rskip.files.whole import atomic_file
from rskip.language_modeling.data import TextData
from rskip.language_modeling.evaluation import TextScore, token_losses
from rskip.language_modeling.generator import TextGenerator
from rskip.language_modeling.model_file import load_language_model
from rskip.language_modeling.models import model_config
from rskip.language_modeling.recipe import LanguageModelingSettings
from rskip.language_modeling.run import scored_file, training_folder
from rskip.language_modeling.run_data import ensure_data
from rskip.language_modeling.training.curve import CurvePoint, read_curve
from rskip.machine.device import set_gpu_arithmetic
from rskip.tasks.run import Run
from rskip.tasks.task import Outcome

DECIMALS = 4
SAMPLE_LENGTH = 200


class _Evaluation(TypedDict):
    """The content of evaluation.json."""

    loss: float
    loss_first_half: float
    loss_second_half: float
    perplexity: float
    bits_per_character: float


def score(run: Run[LanguageModelingSettings]) -> Outcome:
    """Evaluates the last iterate in float32, unless that is done already.

    Metrics: loss (nats per token), perplexity and bits_per_character on the validation text, and the loss on each half
    of it, so that settings can be chosen on one half and reported on the other. train_loss is the mean over the
    training batches since the curve's point before the last one.
    """
    folder, file = training_folder(run), evaluation_file(run)
    data = ensure_data(run.settings, mirror=run.mirror)
    if not file.exists():
        print(f"evaluating in float32 for the run record, on {len(data.splits['valid']):,} tokens", flush=True)
        found = evaluate_model(scored_file(run), data=data, gpus=run.gpus)
        with atomic_file(file) as temporary:
            temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    evaluation: Any = read_state(file, _Evaluation, advice="delete it to evaluate again")
    curve = read_curve(folder.curve, finished=True)
    if not curve or curve[-1].iteration != run.settings.train.iterations:
        raise ValueError(f"{folder.curve} doesn't match the trained model: move {run.folder.path} away and run again")
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


def evaluate_model(path: Path, *, data: TextData, gpus: int = 0) -> dict[str, float]:
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
