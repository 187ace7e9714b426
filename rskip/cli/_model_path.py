"""What a command's MODEL means: a path, or the name of a pretrained model."""

from __future__ import annotations

from pathlib import Path


def model_path(model: str | Path, *, task: str) -> Path:
    """The path, where something is there; else the weights of the pretrained model of that name.

    Its files are looked for, and fetched, as `rskip.load` does it. What is neither is returned as a path: the reader of
    the model says what it expects there.

    :param task: that the model must be for, of `rskip.tasks.tasks()`.
    :raises ValueError: a pretrained model for another task, or a damaged file.
    :raises FileNotFoundError: nearly the name of one, or its files are nowhere to be had.
    :raises OSError: the server can't be reached, or the cache can't be written.
    """
    path = Path(model)
    if path.exists() or len(path.parts) != 1:
        return path

    from rskip.settings.nearest import did_you_mean
    from rskip.zoo.entry import WEIGHTS
    from rskip.zoo.files import model_folder
    from rskip.zoo.registry import read_registry, registry_file

    registry = registry_file()
    models = read_registry(registry)
    if path.name in models:
        entry = models[path.name]
        if entry.task != task:
            raise ValueError(f"{entry.name} is a model for {entry.task}: expected one for {task}")
        return model_folder(entry, root=registry.parent) / WEIGHTS  # the file, whose sum was compared
    if near := did_you_mean(path.name, models):
        raise FileNotFoundError(f"no model {path}{near}: expected a path, or a name that `rskip zoo list` shows")
    return path
