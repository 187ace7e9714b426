"""Language models on disk: a folder with config.json, model.safetensors and the tokens, or a checkpoint of fairseq."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rskip.checkpoint import Checkpoint, build_language_model, read_checkpoint
from rskip.checkpoint.checkpoint import of_other_task
from rskip.checkpoint.config_file import CONFIG, WEIGHTS
from rskip.checkpoint.language_model import language_model_of_fairseq
from rskip.files.names import line_name
from rskip.language_modeling.settings import TrainingSettings
from rskip.language_modeling.tokens import DICTIONARY, SETTINGS, TextTokens
from rskip.settings.errors import SettingError, errors_about
from rskip.transformer import LanguageModel, LanguageModelConfig

TASK = "language_modeling"
_INNER_MULTIPLE = 32  # Llama's FFN dimension is 8/3 of the features, rounded up to a multiple
# a model in its folder, in that of a run, or of fairseq
_FILES = (WEIGHTS, f"training/{WEIGHTS}", "checkpoint_best.pt", "checkpoint_last.pt")


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A language model and its tokens.

    :param model: in float32 and evaluation mode, on the CPU.
    :param config: the argument of `untrained_language_model`.
    :param corpus: the name of the text that it was trained on; empty if unknown.
    """

    model: LanguageModel
    config: dict[str, Any]
    tokens: TextTokens
    corpus: str


def load_language_model(path: str | Path, *, tokens: str | Path | None = None) -> LoadedModel:
    """Loads a language model.

    :param path: the folder of a model, of a run (`runs/RECIPE/VARIANT/SEED`) or of fairseq's checkpoints; or a .pt
        file.
    :param tokens: for a checkpoint of fairseq, the folder of its data; None: the folder that the checkpoint names, or
        its own.
    :raises FileNotFoundError: no model there, or its tokens are missing.
    :raises ValueError: a file is damaged, or the model is of another task or has parts that rskip lacks.
    """
    found = _find(Path(path))
    checkpoint = read_checkpoint(found)
    published = found.name == WEIGHTS
    source = str(found.with_name(CONFIG) if published else found)
    if checkpoint.config["task"] != TASK:
        raise of_other_task(checkpoint.config, TASK).within(source=source)
    if published and tokens is not None:
        raise ValueError(f"{line_name(found.parent)} has its own tokens: --tokens is only for a checkpoint of fairseq")
    folder = found.parent if published else _tokens_of(checkpoint, found, tokens)
    read = TextTokens.load(folder)
    with errors_about(source):
        if not published:
            checkpoint = language_model_of_fairseq(checkpoint, len(read.dictionary))
        config = dict(checkpoint.config["model"])
        if (size := config.get("vocabulary")) != len(read.dictionary):
            problem = f"has {len(read.dictionary):,} tokens, but the model {size}"
            raise SettingError("", f"{folder / DICTIONARY} {problem}", advice="give the folder of its training data")
        model = build_language_model(checkpoint)
    return LoadedModel(model=model, config=config, tokens=read, corpus=str(checkpoint.config.get("corpus") or ""))


def _find(path: Path) -> Path:
    """The file of a model's weights."""
    for file in (path, *(path / name for name in _FILES)):
        if file.is_file():
            return file
    for unfinished in (path / "checkpoint.pt", path / "training/checkpoint.pt"):
        if unfinished.is_file():
            advice = "repeat its command to finish it"
            raise FileNotFoundError(f"{line_name(unfinished)} belongs to an unfinished training run: {advice}")
    problem = "holds no model" if path.is_dir() else "no such file or folder"
    raise FileNotFoundError(
        f"{line_name(path)}: {problem}: expected the folder of a language model, of its run, or a checkpoint of fairseq"
    )


def _tokens_of(checkpoint: Checkpoint, path: Path, given: str | Path | None) -> Path:
    """The folder of the tokens of fairseq's checkpoint."""
    places = [Path(given)] if given is not None else [path.parent, *map(Path, checkpoint.trained_on)]
    for place in places:
        if (place / SETTINGS).is_file():
            return place
    raise FileNotFoundError(
        f"{line_name(path)}: its tokens are not in {' or '.join(map(line_name, places))}: give the folder that "
        "`rskip prepare` made for its training"
    )


def model_config(settings: TrainingSettings, vocabulary: int) -> dict[str, Any]:
    """The config of a training's model, for `rskip.checkpoint.untrained_language_model`.

    :param vocabulary: size of the dictionary.
    """
    common: dict[str, Any] = {
        "decoder_embed_dim": settings.features,
        "decoder_attention_heads": settings.heads,
        "decoder_layers": settings.layers,
        "decoder_connection": settings.connection,
        "dropout": settings.dropout,
        "attention_dropout": settings.dropout,
        "share_decoder_input_output_embed": True,
        "no_scale_embedding": True,
        "max_target_positions": settings.context,
        "initial_std": 0.02,
    }
    if settings.shape == "gpt2":
        common |= {"decoder_ffn_embed_dim": 4 * settings.features, "activation_fn": "gelu"}
        common |= {"decoder_learned_pos": True, "biases": settings.bias}
    else:
        inner = -(-8 * settings.features // (3 * _INNER_MULTIPLE)) * _INNER_MULTIPLE
        common |= {"decoder_ffn_embed_dim": inner, "activation_fn": "swish", "gated_ffn": True}
        common |= {"rotary_theta": 10_000.0, "biases": False}
    return {"vocabulary": vocabulary, **LanguageModelConfig(**common).to_dict()}
