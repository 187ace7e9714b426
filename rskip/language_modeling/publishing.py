"""Exports a language-model run's weights as safetensors, and describes them for the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rskip.checkpoint.config_file import WEIGHTS, read_config
from rskip.connections import ConnectionSpec, Paper, parse_connection
from rskip.corpora import TEXT_CORPORA
from rskip.language_modeling.model_file import load_language_model, write_language_model
from rskip.language_modeling.run import DECIMALS, ensure_data, evaluate_model, scored_file
from rskip.language_modeling.settings import LanguageModelingSettings
from rskip.records import Record
from rskip.tasks.run import Run
from rskip.tasks.task import ModelDescription

_BASELINE = ConnectionSpec("prenorm", None, "ln")  # GPT-2's original connection, of this paper
_GPT2 = Paper(
    title="Language Models are Unsupervised Multitask Learners",
    authors="Alec Radford, Jeffrey Wu, Rewon Child, David Luan, Dario Amodei, Ilya Sutskever",
    url="https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
)


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
    write_language_model(folder, found.config, found.model.state_dict(), tokens=found.tokens, corpus=found.corpus)
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
