"""fairseq, CTranslate2 and ours behind one call: tokens in, the best hypothesis' tokens out.

Each goes its own way from a list of sentences to batches: what a user of it would get, with the same batch size.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import ctranslate2
import torch
from fairseq import options, tasks
from fairseq.data import Dictionary as FairseqDictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from rskip.checkpoint.fold import stock_checkpoint
from rskip.generation import SearchOptions
from rskip.text import Dictionary
from rskip.transformer import Transformer
from rskip.transformer.precision import set_precision
from rskip.translation.piece_search import Piece, search_pieces

Tokens = list[int]
_LONGEST = 200  # tokens of a target, as fairseq-generate's --max-len-b


@dataclass(frozen=True)
class Search:
    """beam: hypotheses kept. length: tokens before the end that every target has; None: as the model likes."""

    beam: int
    length: int | None = None

    @property
    def shortest(self) -> int:
        return self.length or 1

    @property
    def longest(self) -> int:
        return self.length or _LONGEST


class System(Protocol):
    """Something that translates."""

    def translate(self, sentences: list[Tokens], batch_size: int) -> list[Tokens]:
        """The best hypothesis of each sentence, which has its end token; hypotheses are without theirs."""
        ...


class Fairseq:
    """fairseq-generate's own path: stock `transformer`, its batch iterator, its SequenceGenerator; float32."""

    def __init__(self, model: Transformer, source: Dictionary, target: Dictionary, search: Search) -> None:
        dictionaries = [_fairseq_dictionary(each) for each in (source, target)]
        flags = [
            "unused", "--task", "translation", "--source-lang", "a", "--target-lang", "b", "--path", "unused", "--cpu",
            "--beam", str(search.beam), "--min-len", str(search.shortest), "--max-len-b", str(search.longest),
        ]  # fmt: skip
        parser = options.get_generation_parser()
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, flags))
        self.task = tasks.TASK_REGISTRY["translation"](cfg.task, *dictionaries)
        checkpoint = stock_checkpoint(model, source_language="a", target_language="b")
        self.model = _stock_model(self.task, checkpoint.config["model"])
        self.model.load_state_dict(checkpoint.model)
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
            hypotheses = self.task.inference_step(self.generator, [self.model], batch)
            for index, best in zip(batch["id"].tolist(), hypotheses, strict=True):
                found[index] = best[0]["tokens"].tolist()[:-1]
        return [found[index] for index in range(len(sentences))]


class CTranslate2:
    """CTranslate2 on a folder that `write_ctranslate2` wrote."""

    def __init__(
        self, folder: Path, source: Dictionary, target: Dictionary, search: Search, *, precision: str, threads: int
    ) -> None:
        self.translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=precision, inter_threads=1, intra_threads=threads
        )
        self.source, self.target = source, target
        self.length = search.length
        # at its greatest length it stops, where the others take one step more to end
        shortest, longest = (search.length + 1,) * 2 if search.length else (search.shortest, search.longest)
        self.options = {
            "beam_size": search.beam,
            "min_decoding_length": shortest,
            "max_decoding_length": longest,
            "max_input_length": 0,
        }

    def translate(self, sentences: list[Tokens], batch_size: int) -> list[Tokens]:
        words = [[self.source.tokens[index] for index in sentence[:-1]] for sentence in sentences]
        results = self.translator.translate_batch(words, max_batch_size=batch_size, **self.options)
        found = [[self.target.index(token) for token in result.hypotheses[0]] for result in results]
        if self.length is None:
            return found
        assert all(len(tokens) == self.length + 1 for tokens in found)
        return [tokens[: self.length] for tokens in found]


class Ours:
    """What `Translator` searches with."""

    def __init__(self, model: Transformer, search: Search) -> None:
        self.model = model
        self.options = SearchOptions(
            beam=search.beam, min_length=search.shortest, max_length_b=search.longest
        )

    def translate(self, sentences: list[Tokens], batch_size: int) -> list[Tokens]:
        order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index]))
        found: dict[int, Tokens] = {}
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            pieces = [Piece(source=sentences[index], prefix=[]) for index in batch]
            hypotheses = search_pieces(self.model, pieces, self.options, max_tokens=sys.maxsize)
            for index, best in zip(batch, hypotheses, strict=True):
                found[index] = best[0].tokens.tolist()[:-1]
        return [found[index] for index in range(len(sentences))]


def build_system(
    name: str,
    model: Transformer,
    source: Dictionary,
    target: Dictionary,
    search: Search,
    *,
    folder: Path,
    threads: int,
) -> System:
    """The system called "fairseq float32", "CTranslate2 int8" or "ours bfloat16", for example.

    :param model: float32. Ours takes it over and changes its precision.
    :param folder: the same model for CTranslate2, in float32.
    """
    kind, precision = name.split()
    if kind == "fairseq":
        return Fairseq(model, source, target, search)
    if kind == "CTranslate2":
        return CTranslate2(folder, source, target, search, precision=precision, threads=threads)
    return Ours(set_precision(model, precision), search)


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
