"""Names the missing `--user-dir` if a checkpoint's model or task isn't registered.

Formatting fairseq's own message raises an `IndexError`, because the text contains the configuration's braces.
Otherwise the message lists hundreds of names. The model's configuration says which --user-dir it was trained with.
"""

from __future__ import annotations

from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch, wraps


def unknown(kind: str, name: str, user_dir: str | None) -> UsageError:
    """The error for a model or task that isn't registered."""
    given = f"--user-dir {user_dir}" if user_dir else "the --user-dir of its training run"
    return UsageError(f"the checkpoint's {kind} {name} is unknown: give {given} (in Python: user_dir=...)")


def name_model(module: Any) -> None:
    """Wraps `fairseq.models.build_model`."""

    @wraps(module, "build_model")
    def build_model(original: Any, cfg: Any, task: Any, from_checkpoint: bool = False) -> Any:
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
        if name and name not in module.ARCH_MODEL_REGISTRY and name not in module.MODEL_DATACLASS_REGISTRY:
            raise unknown("model", name, getattr(cfg, "user_dir", None))
        return original(cfg, task, from_checkpoint)


def name_task(module: Any) -> None:
    """Wraps `fairseq.tasks.setup_task`."""

    @wraps(module, "setup_task")
    def setup_task(original: Any, cfg: Any, **kwargs: Any) -> Any:
        legacy = getattr(cfg, "task", None)
        name = legacy if isinstance(legacy, str) else getattr(cfg, "_name", None)
        if name and name not in module.TASK_REGISTRY:
            raise unknown("task", name, getattr(cfg, "user_dir", None))
        return original(cfg, **kwargs)


UNKNOWN_MODELS = Patch(
    name="unknown-models",
    symptom="a model without the --user-dir that defines it: IndexError: Replacement index 1 out of range",
    after={"fairseq.models": name_model, "fairseq.tasks": name_task},
)
