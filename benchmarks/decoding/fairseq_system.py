"""fairseq-generate."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import torch
from fairseq import options, tasks, utils
from fairseq.data import Dictionary as FairseqDictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from decoding.systems import Search, Tokens
from rskip.checkpoint.stock import stock_checkpoint
from rskip.text import Dictionary
from rskip.transformer import Transformer


class Fairseq:
    """The code path of fairseq-generate: fairseq's own `transformer`, batch iterator and SequenceGenerator.

    :param half: whether to use --fp16.
    :param gpu: whether to use the current GPU.
    """

    def __init__(
        self, model: Transformer, source: Dictionary, target: Dictionary, search: Search, *, half: bool, gpu: bool
    ) -> None:
        dictionaries = [_fairseq_dictionary(each) for each in (source, target)]
        flags = [
            "unused", "--task", "translation", "--source-lang", "a", "--target-lang", "b", "--path", "unused",
            "--beam", str(search.beam), "--min-len", str(search.shortest), "--max-len-b", str(search.longest),
            *([] if gpu else ["--cpu"]), *(["--fp16"] if half else []),
        ]  # fmt: skip
        parser = options.get_generation_parser()
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, flags))
        self.task = tasks.TASK_REGISTRY["translation"](cfg.task, *dictionaries)
        checkpoint = stock_checkpoint(model, source_language="a", target_language="b")
        self.model = _stock_model(self.task, checkpoint.config["model"])
        self.model.load_state_dict(checkpoint.model)
        self.gpu = gpu
        if half:
            self.model.half()
        if gpu:
            self.model.cuda()
        self.model.eval().prepare_for_inference_(cfg)
        self.generator = self.task.build_generator([self.model], cfg.generation)

    def translate(self, sentences: list[Tokens], batch_size: int) -> list[Tokens]:
        dataset = self.task.build_dataset_for_inference(
            [torch.tensor(each) for each in sentences], [len(each) for each in sentences]
        )
        batches = self.task.get_batch_iterator(
            dataset, max_sentences=batch_size, required_batch_size_multiple=1, disable_iterator_cache=True
        ).next_epoch_itr(shuffle=False)
        found: dict[int, Tokens] = {}
        for batch in batches:
            batch = utils.move_to_cuda(batch) if self.gpu else batch
            hypotheses = self.task.inference_step(self.generator, [self.model], batch)
            for index, best in zip(batch["id"].tolist(), hypotheses, strict=True):
                found[index] = best[0]["tokens"].tolist()[:-1]
        return [found[index] for index in range(len(sentences))]


def _fairseq_dictionary(dictionary: Dictionary) -> FairseqDictionary:
    result = FairseqDictionary()
    for token in dictionary.tokens[4:]:
        result.add_symbol(token)
    assert result.symbols == dictionary.tokens
    return result


def _stock_model(task: Any, settings: dict[str, Any]) -> Any:
    """fairseq's `transformer` with these settings."""
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    args = Namespace(arch="transformer", **settings)
    ARCH_CONFIG_REGISTRY["transformer"](args)
    return ARCH_MODEL_REGISTRY["transformer"].build_model(args, task)
