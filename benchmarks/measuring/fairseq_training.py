"""fairseq's Trainer with translation models: the systems that train_speed compares, and batches of random tokens."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.trainer import Trainer

import rskip.fairseq_plugin  # noqa: F401
from measuring.gpu import synchronise

FAIRSEQ_LOSS = "label_smoothed_cross_entropy"
OUR_LOSS = "rskip_label_smoothed_cross_entropy"


@dataclass(frozen=True)
class System:
    """One way to train the same Transformer. `flags` are flags of fairseq-train in addition to the workload's."""

    name: str
    arch: str
    criterion: str
    flags: tuple[str, ...] = ()
    optimizer: str = "adam"


@dataclass(frozen=True)
class Workload:
    """The systems, the model and the data of a benchmark.

    :param flags: the model's sizes and dropout.
    :param lengths: maximum lengths of sentences, which have up to three tokens fewer.
    """

    systems: list[System]
    flags: list[str]
    vocabulary: int
    lengths: tuple[int, ...]


CPU = Workload(
    systems=[
        System("fairseq transformer, float32", "transformer", FAIRSEQ_LOSS),
        System("ours 1xskip+ln, float32", "transformer_skip_ln_tiny", FAIRSEQ_LOSS),
        System("ours 1xskip+ln, float32, our loss", "transformer_skip_ln_tiny", OUR_LOSS),
        System("ours 1xskip+ln, bf16", "transformer_skip_ln_tiny", FAIRSEQ_LOSS, ("--bf16",)),
        System("ours 1xskip+ln, bf16, our loss", "transformer_skip_ln_tiny", OUR_LOSS, ("--bf16",)),
        System("ours 2rskip+ln, bf16, our loss", "transformer_rskip_ln_tiny", OUR_LOSS, ("--bf16",)),
    ],
    flags=[
        "--encoder-embed-dim", "128", "--encoder-ffn-embed-dim", "256", "--encoder-layers", "4",
        "--decoder-layers", "4", "--encoder-attention-heads", "4", "--decoder-attention-heads", "4", "--dropout", "0.3",
    ],
    vocabulary=10_000,
    lengths=(12, 16, 20),
)  # fmt: skip
GPU = Workload(
    systems=[
        System("fairseq transformer, fp16", "transformer", FAIRSEQ_LOSS, ("--fp16",)),
        System("fairseq transformer, bf16", "transformer", FAIRSEQ_LOSS, ("--bf16",)),
        System("ours 1xskip+ln, bf16, fairseq's Adam and loss", "transformer_skip_ln", FAIRSEQ_LOSS, ("--bf16",)),
        *(
            System(f"ours {name}, {precision}", f"transformer_{arch}", OUR_LOSS, (f"--{precision}",), "rskip_adam")
            for precision in ("fp16", "bf16")
            for name, arch in (("1xskip+ln", "skip_ln"), ("2rskip+ln", "rskip_ln"), ("sas", "sas"))
        ),
    ],
    flags=["--dropout", "0.1"],
    vocabulary=37_000,
    lengths=(24, 32, 40),
)


def build_trainer(system: System, workload: Workload, dictionary: Dictionary, *flags: str) -> Trainer:
    """fairseq's Trainer, built as in fairseq-train."""
    words = [
        "unused", "--task", "translation", "--source-lang", "en", "--target-lang", "de", "--arch", system.arch,
        "--share-all-embeddings", *workload.flags, "--criterion", system.criterion, "--label-smoothing", "0.1",
        "--optimizer", system.optimizer, "--lr", "1e-4", "--distributed-world-size", "1", *system.flags, *flags,
    ]  # fmt: skip
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    task = tasks.TASK_REGISTRY["translation"](cfg.task, dictionary, dictionary)
    torch.manual_seed(1)
    return Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))


def compiled(system: System) -> System:
    """Compiles our layers; fairseq's model does not change."""
    if system.arch == "transformer":
        return system
    return replace(system, name=f"{system.name}, compiled", flags=(*system.flags, "--compile-layers"))


def make_dictionary(words: int) -> Dictionary:
    """A dictionary with this number of symbols."""
    dictionary = Dictionary()
    for index in range(words - len(dictionary)):
        dictionary.add_symbol(f"word{index}")
    return dictionary


def make_batches(count: int, tokens: int, dictionary: Dictionary, lengths: tuple[int, ...]) -> list[dict[str, Any]]:
    """Batches of random tokens with at most `tokens` padded tokens, from sentences of these lengths in turn."""
    padding, end = dictionary.pad(), dictionary.eos()
    generator = torch.Generator().manual_seed(1)
    batches = []
    for index in range(count):
        length = lengths[index % len(lengths)]  # fairseq batches sentences of similar lengths
        rows = tokens // length

        def sentences(left: bool, rows: int = rows, length: int = length) -> torch.Tensor:
            words = torch.randint(4, len(dictionary), (rows, length), generator=generator)
            for row, missing in enumerate(torch.randint(0, 4, (rows,), generator=generator).tolist()):
                if missing and left:
                    words[row, :missing] = padding
                elif missing:
                    words[row, -missing:] = padding
            return words

        source, target = sentences(left=True), sentences(left=False)
        prefix = target.roll(1, 1)
        prefix[:, 0] = end
        batches.append(
            {
                "id": torch.arange(rows),
                "nsentences": rows,
                "ntokens": int(target.ne(padding).sum()),
                "net_input": {
                    "src_tokens": source,
                    "src_lengths": source.ne(padding).sum(1),
                    "prev_output_tokens": prefix,
                },
                "target": target,
            }
        )
    return batches


def take_steps(trainer: Trainer, batches: list[dict[str, Any]]) -> None:
    """One update on each batch."""
    for batch in batches:
        with metrics.aggregate("train_inner"):
            trainer.train_step([batch])


def time_steps(trainer: Trainer, batches: list[dict[str, Any]]) -> float:
    """Seconds for one update on each batch."""
    synchronise(trainer.device)
    start = time.perf_counter()
    take_steps(trainer, batches)
    synchronise(trainer.device)
    return time.perf_counter() - start
