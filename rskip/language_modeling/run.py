"""Runs of language models: `rskip lm train` trains, the last iterate is scored in float32, and may be published."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from rskip.checkpoint import Checkpoint, untrained_language_model, write_model
from rskip.checkpoint.config_file import WEIGHTS, read_config
from rskip.connections import ConnectionSpec, Paper, parse_connection
from rskip.corpora import TEXT_CORPORA, find_text_corpus
from rskip.corpora.corpus import TextCorpus
from rskip.language_modeling.data import TextData, load_data
from rskip.language_modeling.evaluation import TextScore, token_losses
from rskip.language_modeling.generator import TextGenerator
from rskip.language_modeling.model_file import TASK, load_language_model, model_config
from rskip.language_modeling.preparation import prepare_text
from rskip.language_modeling.settings import LanguageModelingSettings, TrainingSettings
from rskip.language_modeling.training import CurvePoint
from rskip.machine.device import set_gpu_arithmetic
from rskip.records import Record
from rskip.tasks import ModelDescription, Outcome, looped
from rskip.tasks.looped import DECIMALS, evaluation_file, scored_file
from rskip.tasks.run import Run, precision_here

METRICS = ("loss", "loss_first_half", "loss_second_half", "perplexity", "bits_per_character")
SAMPLE_LENGTH = 200
_BASELINE = ConnectionSpec("prenorm", None, "ln")  # GPT-2's original connection, of this paper
_GPT2 = Paper(
    title="Language Models are Unsupervised Multitask Learners",
    authors="Alec Radford, Jeffrey Wu, Rewon Child, David Luan, Dario Amodei, Ilya Sutskever",
    url="https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
)


def ensure_data(settings: LanguageModelingSettings, *, mirror: str | None) -> TextData:
    """The text of a run. A corpus that is not prepared yet is prepared in data-bin/.

    :raises SettingError: the name is unknown.
    :raises FileNotFoundError, ValueError: as `prepare_text` or `load_data`.
    """
    folder = data_folder(settings)
    if (corpus := _corpus(settings)) is not None:
        prepare_text(corpus, folder, mirror=mirror)
    return load_data(folder)


def data_folder(settings: LanguageModelingSettings) -> Path:
    """The folder of a run's prepared text."""
    return Path(settings.data) if _corpus(settings) is None else Path("data-bin", settings.data)


def _corpus(settings: LanguageModelingSettings) -> TextCorpus | None:
    """The corpus of a run; None: its data are a prepared folder."""
    prepared = settings.data not in TEXT_CORPORA and Path(settings.data).exists()
    return None if prepared else find_text_corpus(settings.data)


def train(run: Run[LanguageModelingSettings]) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    ensure_data(run.settings, mirror=run.mirror)
    looped.train(run, partial(train_command, run))


def commands(run: Run[LanguageModelingSettings]) -> list[list[str]]:
    """The equivalent commands of a run: prepare and train."""
    precision = precision_here(run.settings.train.precision, gpus=run.gpus)
    mirror = [] if run.mirror is None else ["--mirror", run.mirror]
    prepare = ["rskip", "prepare", run.settings.data, "--output", str(data_folder(run.settings)), *mirror]
    return [*([prepare] if _corpus(run.settings) else []), train_command(run, precision)]


def train_command(run: Run[LanguageModelingSettings], precision: str) -> list[str]:
    """The command `rskip lm train`, in this precision instead of that of the settings."""
    defaults, settings = TrainingSettings().to_dict(), {**run.settings.train.to_dict(), "precision": precision}
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
    return looped.command(run, ["lm", "train", str(data_folder(run.settings))], changed)


def score(run: Run[LanguageModelingSettings]) -> Outcome:
    """Evaluates the last iterate in float32, unless that is done already. A diverged training has none, and no metrics.

    Metrics: loss (nats per token), perplexity and bits_per_character on the validation text, and the loss on each half
    of it, so that settings can be chosen on one half and reported on the other. train_loss is the mean over the
    training batches since the curve's point before the last one.
    """
    data = ensure_data(run.settings, mirror=run.mirror)

    def evaluated() -> dict[str, Any]:
        print(f"evaluating in float32 for the run record, on {len(data.splits['valid']):,} tokens", flush=True)
        return evaluate_model(scored_file(run), data=data, gpus=run.gpus)

    with torch.device("meta"):
        untrained = untrained_language_model(model_config(run.settings.train, len(data.tokens.dictionary)))
    return looped.score(
        run,
        evaluated,
        metrics={name: name for name in METRICS},
        points=CurvePoint,
        untrained=untrained,
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
    )
    characters = len(data.tokens.decode(text.tolist()))
    whole = TextScore(nats=float(losses.sum()), tokens=len(losses), characters=characters)
    half = len(losses) // 2
    halves = float(losses[:half].mean()), float(losses[half:].mean())
    values = (whole.nats_per_token, *halves, whole.perplexity, whole.bits_per_character)
    return dict(zip(METRICS, values, strict=True))


def sample_outputs(run: Run[LanguageModelingSettings], count: int) -> str:
    """Texts that the model generates after a line end; empty if its files are missing."""
    if not scored_file(run).exists():
        return ""
    model = TextGenerator.from_pretrained(scored_file(run))
    texts = (model.generate("\n", length=SAMPLE_LENGTH, seed=number) for number in range(1, count + 1))
    return "\n".join(f"\n--- sample {number}\n{text}" for number, text in enumerate(texts, start=1))


def artifacts(run: Run[LanguageModelingSettings]) -> dict[str, str]:
    """Files of a run for the user."""
    return {
        str(run.folder.train_log): "output of the training",
        str(evaluation_file(run)): "loss on the validation text",
        str(scored_file(run).parent): "the model, for `rskip generate --model`",
    }


def check_publishable(record: Record) -> None:
    """:raises ValueError: the run was trained on your own text."""
    if (data := record.config["data"]) not in TEXT_CORPORA:
        raise ValueError(
            f"{record.run} was trained on your own text, {data}: a published model names a corpus and its terms; "
            "share the folder of the training run, which `rskip.load` reads, instead"
        )


def export_weights(run: Run[LanguageModelingSettings], record: Record, folder: Path) -> dict[str, Any]:
    """Writes model.safetensors (float32), config.json and the tokens, which `load_language_model` reads.

    :returns: the loss of the exported weights.
    """
    found = load_language_model(scored_file(run))
    found.tokens.save(folder)
    config = {"task": TASK, "model": found.config, "corpus": found.corpus}
    write_model(folder, Checkpoint(model=found.model.state_dict(), config=config))
    data = ensure_data(run.settings, mirror=run.mirror)
    return {"loss": round(evaluate_model(folder / WEIGHTS, data=data)["loss"], DECIMALS)}


def describe(folder: Path, record: Record) -> ModelDescription:
    """Describes the model in a published folder, from its config.json."""
    config = read_config(folder / WEIGHTS)
    model, corpus = config["model"], config["corpus"]
    shape = "gpt2" if model["decoder_learned_pos"] else "llama"
    connection = model["decoder_connection"]
    spec, text = parse_connection(connection), TEXT_CORPORA[corpus]
    return ModelDescription(
        architecture=f"{shape}_{model['decoder_layers']}x{model['decoder_embed_dim']}",
        connection=connection,
        dataset=corpus.replace("-", "_"),
        measured_on=corpus,
        split="valid",
        data_terms=f"{text.licence}; source: {text.citation}, {text.homepage}",
        paper=_GPT2 if spec == _BASELINE else spec.paper,
    )
