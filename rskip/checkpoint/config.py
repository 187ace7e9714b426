"""The settings of a model out of fairseq's settings of a run, and back."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

# Transformers' settings by name. They are kept wherever fairseq files them (its task has two as well).
_TRANSFORMER_SETTING = re.compile(
    r"(encoder|decoder|share|quant_noise|adaptive|tie_adaptive)_.*|max_(source|target)_positions"
    r"|(attention_|activation_|relu_)?dropout|activation_fn|layernorm_embedding|connection"
    r"|no_(token_positional_embeddings|scale_embedding|cross_attention|decoder_final_norm)|cross_self_attention"
    r"|checkpoint_activations|offload_activations"
)
# Where `state_from_config` leaves the config as it is: fairseq's old form would lose what no Transformer has.
_CONFIG = "rskip_config"
# Names of places on a machine, and of what `config` holds beside the model's settings.
_LEFT_OUT = re.compile(r".*(path|dir|dirs|file|files|filename|data)|_.*|arch|task|source_lang|target_lang")


def config_from_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON-able `config` of a Checkpoint, from the dictionary that fairseq's .pt file holds.

    The settings of a run that are not the model's (optimiser, data, folders, hosts) are left out: those that
    fairseq files under another group than the model, or, in files from before fairseq had groups, those that
    no Transformer has. Values that look like paths are left out in any case.
    """
    if _CONFIG in state:
        return dict(state[_CONFIG])
    groups: Mapping[str, Any] = state.get("cfg") or {}
    settings = groups.get("model") if groups else state.get("args")
    flat = vars(settings) if isinstance(settings, Namespace) else dict(settings or {})
    task = groups.get("task") if groups else settings
    task_values = vars(task) if isinstance(task, Namespace) else dict(task or {})

    run_options = set(groups)
    for name, group in groups.items():
        if name != "model" and isinstance(group, Mapping):
            run_options.update(group)
    model = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in flat.items()
        if not _LEFT_OUT.fullmatch(name)
        and (_TRANSFORMER_SETTING.fullmatch(name) or (groups and name not in run_options))
        and _is_plain(value)
    }
    return {
        "arch": flat.get("arch") or flat.get("_name"),
        "task": task_values.get("_name") or task_values.get("task") or "translation",
        "source_lang": task_values.get("source_lang") or flat.get("source_lang"),
        "target_lang": task_values.get("target_lang") or flat.get("target_lang"),
        "model": model,
    }


def state_from_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """fairseq's dictionary for a .pt file, all but the model's tensors.

    It is the form from before fairseq had groups of settings: fairseq fills the rest in with its defaults.
    """
    args = Namespace(
        arch=config["arch"],
        task=config["task"],
        source_lang=config["source_lang"],
        target_lang=config["target_lang"],
        **config["model"],
    )
    return {
        _CONFIG: dict(config),
        "args": args,
        "cfg": None,
        "criterion": None,
        "optimizer_history": [
            {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0},
        ],
        "task_state": {},
        "extra_state": {},
    }


def _is_plain(value: Any) -> bool:
    """Whether the value is a JSON scalar or a list of them, and no path."""
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    if isinstance(value, str):
        return not re.search(r"[/\\]|^~", value)
    return value is None or isinstance(value, (bool, int, float))
