"""The analyses behind `rskip analyse`: what happens in models' residual blocks.

    from rskip.analysis.analyses import gradients

    gradients(["1xskip", "2rskip+ln"], depths=[20, 110], data="data/cifar10").rows

A model under analysis is a connection string (a model at initialisation), the path of a trained model, a name from
`rskip zoo list`, or a `Subject`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rskip.analysis import hugging_face
from rskip.analysis.blocks import Block, residual_blocks
from rskip.analysis.gates import GateRecorder, named_gates
from rskip.analysis.measurement import Measurement
from rskip.analysis.ratios import RatioRecorder
from rskip.analysis.registry import ANALYSES
from rskip.analysis.signals import SignalRecorder
from rskip.analysis.streams import StreamRecorder
from rskip.checkpoint.fairseq_file import TrainingFileError
from rskip.connections import StackConnection, list_connections, name_of, parse_connection
from rskip.connections.norms import kind_of
from rskip.machine.environment import describe_environment
from rskip.machine.progress import Progress
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, nearest
from rskip.tasks import find_task, tasks
from rskip.tasks.subject import Batch, Conditions, NotAnalysable, Subject
from rskip.zoo.files import model_folder
from rskip.zoo.registry import WEIGHTS, read_registry, registry_file

Model = str | Path | Subject
Rows = list[dict[str, Any]]

TASK = "vision"  # default for connections
_FAMILY = re.compile(r"([+-]?[\d.]*)([a-z][a-z0-9_]*)((?:[+:].*)?)")
_BatchNorm = nn.modules.batchnorm._BatchNorm


def signals(models: Model | Sequence[Model], **options: Any) -> Measurement:
    """RMS of x, f and y at every block, and on text the cosine similarity of y's positions. See `SignalRecorder`.

    :param options: `depths` and `task`, see `find_subjects`; `progress`, which shows a bar if stderr is a terminal; and
        fields of `Conditions`.
    """
    return _measure("signals", models, _signal_rows, **options)


def gradients(models: Model | Sequence[Model], **options: Any) -> Measurement:
    """The norm of the loss gradient at every block's output. See `SignalRecorder`; options are those of `signals`.

    :raises ValueError: a parameter gets no gradient, such as a frozen one.
    """
    return _measure("gradients", models, _gradient_rows, **options)


def ratios(models: Model | Sequence[Model], **options: Any) -> Measurement:
    """Ratios of x to F(x) at every block. See `rskip.analysis.ratios`; options are those of `signals`."""
    return _measure("ratios", models, _ratio_rows, **options)


def gates(models: Model | Sequence[Model], **options: Any) -> Measurement:
    """Means and histograms of the gates at every block. See `GateRecorder`; options are those of `signals`.

    :raises ValueError: a model has no gates.
    """
    return _measure("gates", models, _gate_rows, **options)


def streams(models: Model | Sequence[Model], **options: Any) -> Measurement:
    """How alike the streams are after every block, and how they are mixed. See `StreamRecorder`.

    Options are those of `signals`.

    :raises ValueError: a model's blocks pass on only x.
    """
    return _measure("streams", models, _stream_rows, **options)


def depth(models: Model | Sequence[Model], **options: Any) -> Measurement:
    """The weights of the stack's input and of earlier sublayer outputs in every block's input. See `StreamRecorder`.

    Options are those of `signals`.

    :raises ValueError: a model's connection does not describe its step as a weighted sum.
    """
    return _measure("depth", models, _depth_rows, **options)


def find_subjects(
    models: Model | Sequence[Model],
    conditions: Conditions,
    *,
    depths: int | Sequence[int] = (),
    task: str | None = None,
) -> list[Subject]:
    """All models under analysis; connections at every depth.

    :param models: one or several; each is a connection string, an existing path, or a name from `rskip zoo list`,
        tried in this order.
    :param depths: one or several depths of models at initialisation; empty: the task's default.
    :param task: the task whose model gets a connection (default: TASK), and the expected task of a trained model.
    :raises SettingError: a model is none of these, a trained model is given a depth, or two models have the same label
        and depth.
    :raises ValueError: see `rskip.tasks.Work`.
    :raises OSError: see `rskip.tasks.Work`.
    """
    found: dict[tuple[str, int], Subject] = {}
    for model in [models] if isinstance(models, Model) else models:
        for subject in _find(model, conditions, [depths] if isinstance(depths, int) else depths, task):
            if found.setdefault((subject.label, subject.depth), subject) is not subject:
                problem = f"contain the model {subject.label}, depth {subject.depth}, twice"
                raise SettingError("models", problem, expected="each once")
    return list(found.values())


def _find(model: Model, conditions: Conditions, depths: Sequence[int], task: str | None) -> Iterator[Subject]:
    if not isinstance(model, Subject):
        text = str(model)
        try:
            spec = parse_connection(text)
        except SettingError as error:
            no_spec = error
        else:
            for depth in depths or (None,):
                yield find_task(task or TASK).work().subject(spec, depth=depth, conditions=conditions)
            return
    if isinstance(model, Subject):
        _no_depth(model.label, depths)
        yield model
        return
    path = Path(text)
    entries = {} if path.exists() else read_registry()
    if text not in entries and not path.exists():
        raise _unknown(text, no_spec, list(entries))
    _no_depth(text, depths)
    if text in entries:
        entry = entries[text]
        if task not in (None, entry.task):
            raise SettingError("task", f"is {task!r}, but {text} is a model for {entry.task}")
        weights = model_folder(entry, root=registry_file().parent) / WEIGHTS
        subject = find_task(entry.task).work().subject(weights, depth=None, conditions=conditions)
        yield replace(subject, label=text)
    else:
        yield _trained(path, conditions, task)


def _no_depth(name: str, depths: Sequence[int]) -> None:
    if depths:
        problem = f"is given, but {name} is a trained model"
        raise SettingError("depth", problem, advice="leave it out")


def _trained(path: Path, conditions: Conditions, task: str | None) -> Subject:
    """The model at a path, of transformers, or read by `task`, or by the first task that can read it."""
    label = _label(path.absolute())
    if task is None and hugging_face.is_hugging_face(path):
        return hugging_face.subject(path, conditions)
    own: TrainingFileError | None = None
    for each in [find_task(task)] if task else tasks().values():
        try:
            return replace(each.work().subject(path, depth=None, conditions=conditions), label=label)
        except (ValueError, OSError) as error:
            if task or isinstance(error, NotAnalysable):
                raise
            if isinstance(error, TrainingFileError):
                own = error
    problem = f"{path} is not a model that can be analysed"
    raise own or ValueError(f"{problem}; to see what is wrong, give --task {' or '.join(tasks())}")


def _label(path: Path) -> str:
    """The end of a path, from the folder of a variant if the path is in a run's folder (RECIPE/VARIANT/SEED)."""
    place = path if path.is_dir() else path.parent
    while place.name.isdigit():
        place = place.parent
    return path.relative_to(place.parent).as_posix()


def _unknown(text: str, no_spec: SettingError, names: Sequence[str]) -> SettingError:
    """The error for a text that is none of these. For a known family it says what is wrong with the rest."""
    families = list_connections()
    match = _FAMILY.fullmatch(text.lower())
    if match and match[2] in [family.name for family in families]:
        return no_spec
    specs = [(match[1] if each.factor else "") + each.name + match[3] for each in families] if match else []
    near = nearest(text, [*names, *specs])
    expected = "a connection, a path, or a name from `rskip zoo list`"
    return SettingError.of_value("model", text, expected, advice=f"did you mean {near[0]}?" if near else "")


def _measure(
    analysis: str,
    models: Model | Sequence[Model],
    rows_of: Callable[[Subject, Sequence[Block], Iterator[Batch], Conditions], Rows],
    *,
    depths: int | Sequence[int] = (),
    task: str | None = None,
    progress: bool = False,
    **fields: Any,
) -> Measurement:
    conditions = convert(fields, Conditions)
    subjects = find_subjects(models, conditions, depths=depths, task=task)
    rows: Rows = []
    modes = set()
    count = len(subjects) * math.ceil(conditions.examples / conditions.batch_size)
    with Progress(analysis, total=count, unit=" batches", shown=progress) as bar:
        for subject in subjects:
            mode = conditions.batch_norm or ("evaluation" if subject.trained else "batch")
            with _batch_norm(subject.model, mode) as normalised:
                batches = _counted(subject.batches(conditions), bar)
                blocks = residual_blocks(subject.model, streams=ANALYSES[analysis].streams)
                for row in rows_of(subject, blocks, batches, conditions):
                    rows.append({"model": subject.label, "depth": subject.depth, **row})
            if normalised:
                modes.add(mode)
    return Measurement(
        analysis=analysis,
        conditions={
            "examples": conditions.examples,
            "data": ", ".join(sorted({subject.data + f" {conditions.split}" * subject.splits for subject in subjects})),
            "seed": conditions.seed,
            "batch_size": conditions.batch_size,
            "batch_norm": " and ".join(sorted(modes)) or None,
            **({"shortcut_input": conditions.shortcut_input} if conditions.shortcut_input else {}),
            "precision": "float32",
            **describe_environment(),
        },
        rows=rows,
    )


def _counted(batches: Iterator[Batch], bar: Progress) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        bar.update()


@contextmanager
def _batch_norm(model: nn.Module, mode: str) -> Iterator[bool]:
    """A context in which batch normalisations use the batch's statistics, or the running ones, without updating them.

    It yields whether the model has any. The rest of the model is in evaluation mode.
    """
    training = {module: module.training for module in model.modules()}
    norms = [module for module in model.modules() if issubclass(kind_of(module), _BatchNorm)]
    buffers = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers()]
    model.eval()
    for norm in norms:
        norm.train(mode == "batch")
    try:
        yield bool(norms)
    finally:
        for module, before in training.items():
            module.training = before
        for buffer, content in buffers:
            buffer.copy_(content)


_Recorder = SignalRecorder | RatioRecorder | GateRecorder | StreamRecorder


def _take_in(recorder: _Recorder, batches: Iterator[Batch]) -> None:
    """Runs the forward pass of every batch."""
    with torch.no_grad():
        for batch in batches:
            with recorder.recording(batch.masks):
                _losses(batch)


def _losses(batch: Batch) -> torch.Tensor:
    """The loss of each example: the gradients of a mean would be smaller."""
    losses = batch.losses()
    if losses.dim() != 1:
        problem = f"Batch.losses returned a tensor of shape {tuple(losses.shape)}"
        raise ValueError(f"{problem}: expected one per example, (B), such as cross_entropy(..., reduction='none')")
    return losses


def _signal_rows(subject: Subject, blocks: Sequence[Block], batches: Iterator[Batch], conditions: Conditions) -> Rows:
    _take_in(recorder := SignalRecorder(blocks), batches)
    names = ("x_rms", "f_rms", "y_rms", "similarity")
    found = [recorder.values(block) for block in blocks]
    there = [name for name in names if any(name in values for values in found)]  # images have no similarity
    return [block.place | _only(values, *there) for block, values in zip(blocks, found, strict=True)]


def _gradient_rows(subject: Subject, blocks: Sequence[Block], batches: Iterator[Batch], conditions: Conditions) -> Rows:
    recorder = SignalRecorder(blocks)
    for batch in batches:
        with recorder.recording(batch.masks):
            _losses(batch).sum().backward()
        missing = [name for name, parameter in subject.model.named_parameters() if parameter.grad is None]
        subject.model.zero_grad(set_to_none=True)
        if missing:
            raise ValueError(f"{subject.label}: the loss has no gradient for {missing[0]}: expected one per parameter")
    return [block.place | _only(recorder.values(block), "gradient") for block in blocks]


def _ratio_rows(subject: Subject, blocks: Sequence[Block], batches: Iterator[Batch], conditions: Conditions) -> Rows:
    _take_in(recorder := RatioRecorder(blocks, examples=conditions.examples, seed=conditions.seed), batches)
    return recorder.rows()


def _gate_rows(subject: Subject, blocks: Sequence[Block], batches: Iterator[Batch], conditions: Conditions) -> Rows:
    if not any(named_gates(block.connection) for block in blocks):
        raise ValueError(f"{subject.label} has no gates: expected a connection with gates, such as sas or highway")
    _take_in(recorder := GateRecorder(blocks), batches)
    return recorder.rows()


def _stream_rows(subject: Subject, blocks: Sequence[Block], batches: Iterator[Batch], conditions: Conditions) -> Rows:
    if all(block.connection.passes_x for block in blocks):
        raise ValueError(f"{subject.label} passes on only x: expected a connection with streams, such as hyper or mhc")
    _take_in(recorder := StreamRecorder(blocks, _stacks(subject)), batches)
    return recorder.stream_rows()


def _depth_rows(subject: Subject, blocks: Sequence[Block], batches: Iterator[Batch], conditions: Conditions) -> Rows:
    recorder = StreamRecorder(blocks, _stacks(subject))
    if block := recorder.undescribed:
        problem = f"{subject.label}: {name_of(block.connection)} is not a weighted sum of earlier outputs"
        raise ValueError(f"{problem}: expected a connection that defines `as_mixing`, such as attnres or prenorm")
    _take_in(recorder, batches)
    return recorder.depth_rows()


def _stacks(subject: Subject) -> list[StackConnection]:
    return [module for module in subject.model.modules() if isinstance(module, StackConnection)]


def _only(values: dict[str, float], *names: str) -> dict[str, float | None]:
    return {name: values.get(name) for name in names}
