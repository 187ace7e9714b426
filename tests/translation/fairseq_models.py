"""Tiny random models of fairseq's multilingual tasks, in fairseq's own files, and fairseq's own search."""

from __future__ import annotations

import random
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.checkpoint.conftest import both

WORDS = [f"w{number}" for number in range(24)]
SIZES = both(embed_dim=16, ffn_embed_dim=24, attention_heads=2, layers=2)
Best = list[tuple[str, float]]


@dataclass
class Fairseq:
    """A saved model of fairseq."""

    folder: Path
    args: Namespace
    checkpoint: Path

    def task(self, source: str, target: str) -> Any:
        from fairseq import tasks

        args = Namespace(**{**vars(self.args), "source_lang": source, "target_lang": target})
        task = tasks.TASK_REGISTRY[args.task].setup_task(args)
        task.args = args  # which 0.12.2's task of mBART reads but doesn't set
        return task

    def best(self, sentences: Sequence[str], source: str, target: str, **search: Any) -> list[Best]:
        """The hypotheses of each sentence, as `fairseq-interactive` finds them: text and score."""
        from fairseq import models

        task = self.task(source, target)
        args = Namespace(**vars(self.args))
        model = models.build_model(args, task) if hasattr(args, "lang_pairs") else None
        model = models.ARCH_MODEL_REGISTRY[args.arch].build_model(args, task) if model is None else model
        model.load_state_dict(torch.load(self.checkpoint, weights_only=False)["model"], strict=True)
        chosen = [model.eval()]
        if args.task == "multilingual_translation":
            chosen = [model.models[f"{source}-{target}"]]
        generator = task.build_generator(chosen, Namespace(**search))
        tokens = [task.source_dictionary.encode_line(each, add_if_not_exist=False).long() for each in sentences]
        dataset = task.build_dataset_for_inference(tokens, torch.tensor([len(each) for each in tokens]))
        dataset.ordered_indices()
        sample = dataset.collater([dataset[index] for index in range(len(tokens))])
        found = task.inference_step(generator, chosen, sample)
        hidden = set(getattr(generator, "symbols_to_strip_from_output", {generator.eos}))
        # this task doesn't hide its decoder's tokens
        if args.task == "multilingual_translation" and (token := f"__{target}__") in task.target_dictionary:
            hidden.add(task.target_dictionary.index(token))
        texts: list[Best] = [[] for _ in sentences]
        for number, hypotheses in zip(sample["id"].tolist(), found, strict=True):
            for each in hypotheses:
                text = task.target_dictionary.string(each["tokens"], extra_symbols_to_ignore=hidden)
                texts[number].append((text, float(each["score"])))
        return texts


def sentences(count: int) -> list[str]:
    """Of random words, some of them unknown."""
    draw = random.Random(7)
    return [" ".join(draw.choices([*WORDS, "unknown"], k=draw.randint(1, 9))) for _ in range(count)]


def save(
    folder: Path, task: str, flags: Sequence[str], arch: str, dictionaries: Sequence[str], **model: Any
) -> Fairseq:
    """Writes the dictionaries and a checkpoint as fairseq-train does."""
    from fairseq import models, tasks
    from fairseq.data import Dictionary

    folder.mkdir(exist_ok=True)
    for name in dictionaries:
        dictionary = Dictionary()
        for word in WORDS:
            dictionary.add_symbol(word)
        dictionary.save(str(folder / name))
    parser = ArgumentParser(allow_abbrev=False)
    tasks.TASK_REGISTRY[task].add_args(parser)
    flags = [flag.format(folder=folder) for flag in flags]
    args = parser.parse_args([str(folder), *flags])
    for name, value in {**SIZES, **model}.items():
        setattr(args, name, value)
    args.arch, args.task, args.seed = arch, task, 1
    models.ARCH_CONFIG_REGISTRY[arch](args)
    saved = Namespace(**vars(args))
    built = tasks.TASK_REGISTRY[task].setup_task(args)
    torch.manual_seed(1)
    network = models.ARCH_MODEL_REGISTRY[arch].build_model(args, built)
    for name, parameter in network.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
        elif "proj" in name or "embed_tokens" in name:
            parameter.data *= 3  # probabilities far from equal ones
    state = {
        "args": saved,
        "model": network.state_dict(),
        "optimizer_history": [{"criterion_name": "", "lr_scheduler_state": {}, "num_updates": 1}],
        "extra_state": {},
    }
    torch.save(state, folder / "model.pt")
    return Fairseq(folder, saved, folder / "model.pt")
