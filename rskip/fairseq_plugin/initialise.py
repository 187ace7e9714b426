"""`rskip initialise`: the starting checkpoint for fairseq-train if connections need a profiling pass."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy
from fairseq import tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

from fairseq_compat.one_line_errors import UsageError
from rskip.analysis.signals import Masks
from rskip.connections import AdminConnection, admin_profiling, find_family, parse_connection
from rskip.fairseq_plugin.flag_check import parse
from rskip.fairseq_plugin.model import ConnectionModel
from rskip.files.whole import atomic_file
from rskip.formulas.place import BRANCHES

STACKS = ("encoder", "decoder")
# Flags that would change the whole model in float32 on one CPU, or that the checkpoint does not need.
_SET = {
    "cpu": True, "distributed_world_size": 1, "fp16": False, "bf16": False, "amp": False,
    "memory_efficient_fp16": False, "memory_efficient_bf16": False, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0,
    "compile_layers": False, "probe_file": None, "probe_every": None, "no_save_optimizer_state": True,
}  # fmt: skip


def initialise(words: Sequence[str], output: Path) -> dict[str, list[float]]:
    """Writes the initial model of `fairseq-train *words`, after its profiling pass, to `output`.

    The pass is one forward pass in training mode, with dropout, on the first epoch's first batch, in float32 on CPU.

    :returns: ω of every block, by stack.
    :raises ValueError: fairseq refuses the words, or none of the model's connections needs the pass.
    """
    args = parse("fairseq-train", words)
    for name, value in _SET.items():
        setattr(args, name, value)
    cfg = convert_namespace_to_omegaconf(args)
    if cfg.dataset.max_tokens is None and cfg.dataset.batch_size is None:
        raise UsageError("the size of a batch is not set: give --max-tokens or --batch-size")
    numpy.random.seed(cfg.common.seed)
    utils.set_torch_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    if not isinstance(model, ConnectionModel):
        raise UsageError(f"--arch is {args.arch}: expected one of rskip's architectures")
    if not any(find_family(parse_connection(spec).family).needs_profile for spec in model.connections.values()):
        connection = model.config.encoder_connection
        raise UsageError(f"--connection is {connection}: expected one that needs a profiling pass, such as admin")
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    epoch = trainer.get_train_iterator(1)
    batch = next(epoch.next_epoch_itr(fix_batches_to_gpus=False, shuffle=cfg.dataset.curriculum < 1))
    utils.set_torch_seed(cfg.common.seed)
    with ExitStack() as passes:
        model.probe = _Profiling(model, passes)
        model(**batch["net_input"])
    model.probe = None
    with atomic_file(output) as temporary:
        beginning = {"epoch": 1, "iterations_in_epoch": 0, "version": 2}
        trainer.save_checkpoint(str(temporary), {"train_iterator": beginning, "val_loss": None})
    return {stack: _weights(model, stack) for stack in STACKS}


class _Profiling:
    """A probe that profiles both stacks on one batch."""

    updates = 0

    def __init__(self, model: ConnectionModel, passes: ExitStack) -> None:
        self._model, self._passes = model, passes

    def begin_batch(self, masks: Masks) -> None:
        for stack in STACKS:
            self._passes.enter_context(admin_profiling(getattr(self._model, stack), masks.get(stack)))

    def end_backward(self) -> None:
        pass


def _weights(model: ConnectionModel, stack: str) -> list[float]:
    """ω of every block of the stack, in order."""
    layers = getattr(model, stack).layers
    blocks = [getattr(layer, f"{branch}_connection") for layer in layers for branch in BRANCHES[stack]]
    return [each.skip_weight[0].item() for each in blocks if isinstance(each, AdminConnection)]
