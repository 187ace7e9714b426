"""Small models in files, and opened without PyTorch."""

from __future__ import annotations

import torch

from rskip.checkpoint import Checkpoint, write_model
from rskip.checkpoint.arrays import ModelFile
from rskip.generation.runtime import RuntimeModel
from rskip.transformer import Transformer, TransformerConfig

WORDS = {"source_vocabulary": 40, "target_vocabulary": 90}
ONE_DICTIONARY = {"source_vocabulary": 90, "target_vocabulary": 90}


def saved(folder, connection="2rskip+ln", *, words=WORDS, dtype=None, change=lambda model: None, **settings):
    """A folder with a small model whose probabilities are uneven, and the model's checkpoint."""
    torch.manual_seed(3)
    sizes = {"embed_dim": 32, "ffn_embed_dim": 48, "attention_heads": 4, "layers": 2, "connection": connection}
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
    config = TransformerConfig(**{**words, **sides, **settings})
    model = Transformer(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "gate" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
        model.decoder.output_projection.weight.mul_(3)
        change(model)
    values = {name: value for name, value in config.to_dict().items() if name not in words}
    task = {"task": "translation", "arch": "transformer_tiny", "source_lang": "en", "target_lang": "de"}
    checkpoint = Checkpoint(model=model.state_dict(), config={**task, "structured": True, "model": values})
    write_model(folder, checkpoint, dtype=dtype)
    return folder / "model.safetensors", checkpoint


def opened(file, precision="float32", **words):
    return RuntimeModel(ModelFile(file), precision=precision, **{"source_words": 40, "target_words": 90, **words})
