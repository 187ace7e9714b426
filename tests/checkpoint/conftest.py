"""Small files of the kind that fairseq 0.12.2 writes."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

SETTINGS = {
    "encoder_embed_dim": 4,
    "dropout": 0.1,
    "activation_fn": "relu",
    "connection": "2rskip+ln",
    "adaptive_softmax_cutoff": (2, 3),
}


def both(**values: Any) -> dict[str, Any]:
    """Settings of the encoder and the decoder: `encoder_layers` and `decoder_layers` for `layers`."""
    return {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in values.items()}


def fairseq_state(
    model: dict[str, Tensor],
    *,
    settings: dict[str, Any] | None = None,
    arch: str = "transformer_rskip_ln_tiny",
    score: float | None = None,
    maximize: bool = False,
) -> dict[str, Any]:
    """What fairseq-train saves, in small: settings in groups, and all of them in the model's again."""
    groups: dict[str, Any] = {
        "_name": None,
        "common": {"seed": 1, "user_dir": "/home/someone/rskip", "tensorboard_logdir": "logs"},
        "distributed_training": {"distributed_init_method": "tcp://somehost:12345", "device_id": 0},
        "checkpoint": {"save_dir": "ck", "maximize_best_checkpoint_metric": maximize},
        "task": {
            "_name": "translation", "data": "mydata", "source_lang": "en", "target_lang": "de",
            "max_source_positions": 1024, "max_target_positions": 256, "eval_bleu": True,
        },
        "criterion": {"_name": "cross_entropy", "sentence_avg": False},
        "optimizer": {"_name": "adam", "adam_betas": [0.9, 0.98]},
        "bpe": None,
    }  # fmt: skip
    flat = {name: value for group in groups.values() if isinstance(group, dict) for name, value in group.items()}
    flat |= {"criterion": "cross_entropy", "optimizer": "adam", "encoder_embed_path": None, "bpe": None}
    flat |= {
        "task": "translation",
        "_name": arch,
        "arch": arch,
        "my_plugin_flag": 3,
        "my_model_home": "/home/x",
    }
    groups["model"] = Namespace(**flat, **(SETTINGS if settings is None else settings))
    return {
        "args": None,
        "cfg": groups,
        "model": model,
        "criterion": None,
        "optimizer_history": [{"optimizer_name": "FairseqAdam", "num_updates": 7}],
        "task_state": {},
        "extra_state": {
            "val_loss": score,
            "metrics": [numpy.float64(3.5), numpy.array([1, 2, 3]), numpy.float32(0.5)],
        },
        "last_optimizer_state": {"state": {0: {"exp_avg": torch.ones(3)}}},
    }


@pytest.fixture
def save_fairseq(tmp_path: Path) -> Callable[..., Path]:
    """Writes such a file into tmp_path: `save_fairseq("checkpoint1.pt", model, **options)`."""

    def save(name: str, model: dict[str, Tensor], **options: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        torch.save(fairseq_state(model, **options), path)
        return path

    return save


@pytest.fixture
def tied_model() -> dict[str, Tensor]:
    """Embeddings of three names, one matrix, one integer buffer."""
    torch.manual_seed(0)
    embedding = torch.randn(5, 4)
    return {
        "encoder.version": torch.tensor([3.0]),
        "encoder.embed_tokens.weight": embedding,
        "decoder.embed_tokens.weight": embedding,
        "decoder.layers.0.fc1.weight": torch.randn(4, 3).t(),
        "decoder.output_projection.weight": embedding,
        "decoder.steps": torch.tensor([2**40]),
    }
