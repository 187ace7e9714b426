"""Refuses to resume a training as another model, even if the parameters would fit.

If parameters don't fit, the error gives advice for resuming or for --finetune-from-model.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from fairseq_compat.one_line_errors import UsageError, usage_error_behind
from fairseq_compat.patch import Patch, wraps
from fairseq_compat.patches.checkpoint_paths import LAST
from rskip.checkpoint.average import TRAINING_ALONE
from rskip.connections import parse_connection
from rskip.fairseq_plugin.usage_errors import flag_of
from rskip.settings.errors import SettingError
from rskip.transformer import LanguageModelConfig, TransformerConfig


def compare_models(module: Any) -> None:
    """Wraps `Trainer.load_checkpoint`, to compare a checkpoint with the flags before it loads a parameter."""
    from rskip.fairseq_plugin.model import OtherArchitectureError

    checkpoint_utils = module.checkpoint_utils

    @wraps(module.Trainer, "load_checkpoint")
    def load_checkpoint(original: Any, self: Any, filename: str, *args: Any, **options: Any) -> Any:
        try:
            return compared(original, self, filename, *args, **options)
        except Exception as error:  # fairseq's own, behind which is ours
            if not isinstance(behind := usage_error_behind(error), OtherArchitectureError):
                raise
            raise UsageError(f"{filename}: {behind.difference}: {_advice(self.cfg.checkpoint, filename)}") from None

    def compared(
        original: Any, self: Any, filename: str, reset_optimizer: bool = False, *args: Any, **options: Any
    ) -> Any:
        if reset_optimizer:  # --finetune-from-model, --reset-optimizer: the user wants another run's parameters
            return original(self, filename, reset_optimizer, *args, **options)
        read = checkpoint_utils.load_checkpoint_to_cpu

        def read_and_compare(*args: Any, **options: Any) -> Any:
            state = read(*args, **options)
            if state.get("cfg") is not None:  # else not a training checkpoint, which fairseq reports itself
                _compare(state["cfg"]["model"], self.cfg.model, filename, advice=_advice(self.cfg.checkpoint, filename))
            last, criterion = (state.get("optimizer_history") or [{}])[-1], type(self.get_criterion()).__name__
            if {last.get("criterion_name"), criterion} == _SAME_LOSS:
                last["criterion_name"] = criterion
            return state

        checkpoint_utils.load_checkpoint_to_cpu = read_and_compare
        try:
            return original(self, filename, reset_optimizer, *args, **options)
        finally:
            checkpoint_utils.load_checkpoint_to_cpu = read


_SAME_LOSS = {"LabelSmoothedCrossEntropyCriterion", "ChunkedLabelSmoothedCrossEntropyCriterion"}
_SIDES = {"--encoder-connection", "--decoder-connection"}
_NOT_COMPARED = re.compile(rf"{TRAINING_ALONE.pattern}|max_\w+_positions|\w+_connection")  # connections: by side
_SETTINGS = sorted(
    name
    for name in {field.name for kind in (TransformerConfig, LanguageModelConfig) for field in fields(kind)}
    if not _NOT_COMPARED.fullmatch(name)
)


def _advice(flags: Any, filename: str) -> str:
    if filename == flags.finetune_from_model:
        other = "leave --finetune-from-model out"
    elif flags.restore_file != LAST:
        other = "leave --restore-file out"
    else:
        other = "another --save-dir"
    return f"use the same flags as in its training run, or {other}"


def _compare(there: Any, here: Any, filename: str, *, advice: str) -> None:
    """Raises `UsageError` if the checkpoint's model and the one to be trained have different flags."""
    before, now = _flags(there), _flags(here)
    if now and not before and getattr(there, "encoder_connection", None) is None:  # a model of fairseq
        before, now = ({"--arch": getattr(model, "arch", None) or model._name} for model in (there, here))
    if all(flags.keys() >= _SIDES and len({flags[side] for side in _SIDES}) == 1 for flags in (before, now)):
        before, now = ({"--connection": flags[min(_SIDES)], **flags} for flags in (before, now))
    for flag, value in before.items():
        if now.get(flag, value) != value:
            difference = f"with {flag} {value}, not {now[flag]}"
            if isinstance(value, bool):
                difference = f"with {flag}" if value else f"without {flag}"
            raise UsageError(
                f"{filename} was trained {difference}: {advice}; to start a new run from its weights, if they fit, "
                f"use --finetune-from-model {filename} with a new --save-dir"
            )


def _flags(model: Any) -> dict[str, Any]:
    """The settings that determine what the model computes; empty for a model that is not from this plug-in."""
    both = getattr(model, "connection", None)
    if both is None:
        return {}
    if hasattr(model, "encoder_embed_dim"):
        sides = {f"--{side}-connection": getattr(model, f"{side}_connection", None) for side in ("encoder", "decoder")}
    else:  # a language model
        sides = {"--connection": both}
    specs = {flag: _canonical(spec or both) for flag, spec in sides.items()}
    settings = {flag_of(name): getattr(model, name) for name in _SETTINGS if getattr(model, name, None) is not None}
    return {**specs, "--value-residual": "none", **settings}


def _canonical(spec: str) -> str:
    try:
        return str(parse_connection(spec))
    except SettingError:  # its family is not registered here, so it differs from the one to be trained
        return spec


RESUMED_MODELS = Patch(
    name="resumed-models",
    symptom="a training run is resumed with another --connection or number of heads, and continues as another model",
    after={"fairseq.trainer": compare_models},
)
