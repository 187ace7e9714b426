"""Language models in our own format: written, read, and told from models of other tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.checkpoint import (
    build_transformer,
    language_model_checkpoint,
    read_checkpoint,
    read_language_model,
    write_checkpoint,
    write_model,
)
from rskip.settings.errors import SettingError
from rskip.transformer import LanguageModel, LanguageModelConfig

SIZES = {
    "decoder_embed_dim": 16, "decoder_ffn_embed_dim": 24, "decoder_attention_heads": 4, "decoder_layers": 2,
    "max_target_positions": 12,
}  # fmt: skip
LLAMA3 = {"rotary_theta": 100.0, "rotary_scaling": {"kind": "llama3", "factor": 8.0}, "gated_ffn": True}


def language_model(connection: str = "sas", *, padding: int | None = None, **fields: Any) -> LanguageModel:
    config = LanguageModelConfig.from_dict({**SIZES, "decoder_connection": connection, **fields})
    return LanguageModel(config, 23, padding).eval()


@pytest.mark.parametrize("padding", [None, 1])
@pytest.mark.parametrize(
    "fields", [{"decoder_learned_pos": True, "share_decoder_input_output_embed": True, "biases": False}, LLAMA3]
)
@pytest.mark.parametrize("name", ["folder", "model.safetensors"])
def test_what_is_written_is_read(fields: dict[str, Any], padding: int | None, name: str, tmp_path: Path) -> None:
    model = language_model(padding=padding, **fields)
    path, checkpoint = tmp_path / name, language_model_checkpoint(model, arch="transformer_lm_sas")
    if name == "folder":
        write_model(path, checkpoint)
    else:
        write_checkpoint(path, checkpoint)
    read = read_language_model(path)
    assert (read.config, read.padding, read.vocabulary_size) == (model.config, padding, 23)
    own, found = model.state_dict(), read.state_dict()
    assert own.keys() == found.keys() and all(torch.equal(own[each], found[each]) for each in own)
    tied = read.decoder.output_projection.weight is read.decoder.embed_tokens.weight
    assert tied == model.config.output_is_embedding
    assert not any(each.requires_grad for each in read.parameters()) and not read.training


def test_models_of_other_tasks(tmp_path: Path) -> None:
    write_model(tmp_path, language_model_checkpoint(language_model()))
    with pytest.raises(SettingError, match=r"checkpoint of the task 'language_modeling', not of translation; use"):
        build_transformer(read_checkpoint(tmp_path / "model.safetensors"), source_vocabulary=23, target_vocabulary=23)
    change(tmp_path, task="translation", arch="transformer_sas")
    with pytest.raises(SettingError) as error:
        read_language_model(tmp_path)
    problem = "a checkpoint of the task 'translation' (architecture 'transformer_sas'), not of language_modeling"
    assert problem in str(error.value) and str(tmp_path) in str(error.value)
    change(tmp_path, format=2)
    with pytest.raises(SettingError, match="format is 2: expected 1; install a newer rskip"):
        read_language_model(tmp_path)


def change(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"decoder_layers": 3}, "decoder_layers is 3: expected 2, as the weights have"),
        ({"decoder_layers": 1}, "the file has decoder.layers.1."),
        ({"decoder_connection": "prenorm+ln"}, "another kind than the language model that its settings describe (pren"),
        ({"decoder_connection": "mine"}, "decoder_connection is 'mine': expected a registered connection; import"),
        ({"vocabulary": 24}, "decoder.embed_tokens.weight has the shape (23, 16), expected (24, 16)"),
        ({"vocabulary": None}, "vocabulary is None: expected a whole number"),
        ({"of_a_later_version": 1}, "unknown key of_a_later_version"),
        ({"gated_ffn": True}, "the file has no decoder.layers.0.fc3."),
    ],
)
def test_settings_that_do_not_fit(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    checkpoint = language_model_checkpoint(language_model(), arch="transformer_lm")
    checkpoint.config["model"].update(fields)
    write_model(tmp_path, checkpoint)
    with pytest.raises(SettingError) as error:
        read_language_model(tmp_path)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("connection", ["deepnorm", "mixln", "askip+ln:form=depth", "siamese", "x0"])
@pytest.mark.parametrize(("stored", "layers"), [(2, 3), (3, 2)])
def test_weights_of_another_depth_are_refused(connection: str, stored: int, layers: int) -> None:
    """These connections have constants that depend on the depth, so such a model would compute something else."""
    state = language_model(connection, decoder_layers=stored).state_dict()
    with pytest.raises(RuntimeError, match="decoder.layers.2"):
        language_model(connection, decoder_layers=layers).load_state_dict(state)
