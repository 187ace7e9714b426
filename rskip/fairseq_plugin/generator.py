"""Our beam search with fairseq's generator interface.

B sentences, S source length, T target length, P prefix length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel
from fairseq.utils import extract_hard_alignment, extract_soft_alignment
from torch import Tensor, nn

from fairseq_compat.one_line_errors import UsageError
from rskip.captioning.fairseq.model import CaptioningModel
from rskip.captioning.model import CaptioningTransformer
from rskip.checkpoint import Checkpoint, build_transformer, from_stock
from rskip.cpu import CpuTransformer, for_inference
from rskip.fairseq_plugin.flags import unsupported_flags
from rskip.fairseq_plugin.model import ConnectionTransformer
from rskip.fairseq_plugin.usage_errors import usage_errors
from rskip.generation import EnsembleDecoder, Hypothesis, SearchOptions, SpecialTokens, find_search
from rskip.transformer import Transformer, TransformerConfig
from rskip.transformer.model import EncoderDecoder
from rskip.transformer.undrawn import undrawn

_ALIGNMENTS = {"hard": extract_hard_alignment, "soft": extract_soft_alignment}


class Transformers:
    """Our models that compute the same as fairseq's models, with the same parameters. Each is built once.

    A model is built again if its parameters, type or device change. A model that was prepared for inference gets the
    faster inference and `precision`, if given. A model in training is not converted, so its latest parameters decode.
    """

    def __init__(self, precision: str | None = None) -> None:
        self.precision = precision
        self._built: WeakKeyDictionary[nn.Module, tuple[object, EncoderDecoder | CpuTransformer]] = WeakKeyDictionary()

    def of(self, model: nn.Module) -> Any:
        """Our model for a fairseq model. Raises `UsageError` unless it is ours or fairseq's `transformer`."""
        version = _version(model)
        known = self._built.get(model)
        if known is None or known[0] != version:
            known = self._built[model] = (version, self._build(model))
        return known[1]

    def _build(self, model: nn.Module) -> EncoderDecoder | CpuTransformer:
        if type(model) not in _BUILDERS:
            raise UsageError(
                "--task rskip_translation runs rskip's models and fairseq's transformer, "
                f"not a {type(model).__name__}: use --task translation"
            )
        with usage_errors(before="--task rskip_translation: "):
            with undrawn():
                transformer, parameters = _BUILDERS[type(model)](model)
            transformer.requires_grad_(False).load_state_dict(parameters, assign=True)
            first = next(iter(parameters.values()))
            transformer.to(device=first.device, dtype=first.dtype).eval()
            if not model._is_generation_fast or (self.precision is None and first.dtype == torch.float16):
                return for_inference(transformer)
            return for_inference(transformer, self.precision or str(first.dtype).removeprefix("torch."))


def _from_stock(model: TransformerModel) -> tuple[Transformer, dict[str, Tensor]]:
    names = [*unsupported_flags(), *(field.name for field in fields(TransformerConfig))]
    settings = {name: getattr(model.cfg, name) for name in names if hasattr(model.cfg, name)}
    config = {"arch": "transformer", "task": "translation", "source_lang": None, "target_lang": None, "model": settings}
    parameters = model.state_dict()
    transformer = build_transformer(
        Checkpoint(model=parameters, config=config),
        source_vocabulary=model.encoder.embed_tokens.num_embeddings,
        target_vocabulary=model.decoder.embed_tokens.num_embeddings,
        padding_index=model.encoder.padding_idx,
    )
    return transformer, from_stock(parameters)


_BUILDERS: dict[type, Callable[[Any], tuple[EncoderDecoder, dict[str, Tensor]]]] = {
    ConnectionTransformer: lambda model: (Transformer(model.config), model.state_dict()),
    CaptioningModel: lambda model: (CaptioningTransformer(model.config), model.state_dict()),
    TransformerModel: _from_stock,
}


def _version(model: nn.Module) -> object:
    """A value that changes with the model's parameters, unless they are written outside autograd, as by optimizers."""
    parameters = [(each.data_ptr(), each._version, each.dtype, each.device) for each in model.parameters()]
    return model._is_generation_fast, parameters


class BeamSearchGenerator:
    """Replaces fairseq's `SequenceGenerator`, with the same hypotheses and scores.

    As in fairseq, the max length is max_len_a · S + max_len_b with the batch's longest source S for every sentence, and
    at most --max-target-positions. Hypotheses are on the CPU. They contain attention only with `alignment`.

    :param options: settings of the search. `max_length_b` and `seed` are set for each batch; the seed comes from
        torch's generator.
    :param alignment: "hard" or "soft": each hypothesis contains its alignment to the source.
    :param match_source_length: whether a hypothesis has as many tokens as its source.
    """

    def __init__(
        self,
        models: Sequence[Any],
        dictionary: Dictionary,
        transformers: Transformers,
        options: SearchOptions,
        *,
        alignment: str | None = None,
        match_source_length: bool = False,
    ) -> None:
        self.models = list(models)
        self.transformers = transformers
        begins = any(getattr(model.decoder, "starts_with", "end") == "begin" for model in self.models)
        self.special = SpecialTokens.of(dictionary, start=dictionary.bos() if begins else None)
        self.symbols_to_strip_from_output = {self.special.end}
        self.beam_size = min(options.beam, len(dictionary) - 1)
        self.options = replace(
            options, beam=self.beam_size, nbest=self.beam_size, token_scores=True, attention=alignment is not None
        )
        self.extract_alignment = None if alignment is None else _ALIGNMENTS[alignment]
        self.match_source_length = match_source_length
        for model in self.models:
            transformers.of(model)  # refuses unsupported models before any work

    @torch.no_grad()
    def generate(
        self,
        models: Sequence[Any],
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[dict[str, Any]]]:
        """Each sentence's finished hypotheses, best first: `tokens` (T), `score`, `positional_scores` (T),
        `attention` (S, T) and `alignment`. The last two are empty unless an alignment is requested.

        As in fairseq, it runs the models that it was built for and ignores `models`.

        :param sample: a batch of fairseq's. Only `sample["net_input"]["src_tokens"]` (B, S) is read.
        :param prefix_tokens: (B, P) forced first tokens.
        :param bos_token: the token before the first one; default: the model's.
        :raises UsageError: the model's output is not a number, a source is longer than the model can read, or lengths
            contradict each other.
        """
        assert constraints is None, "the task refuses --constraints"
        source = sample["net_input"]["src_tokens"]
        search = self._search_source_length if self.match_source_length else self._search
        with usage_errors():
            found = search(source, prefix_tokens, bos_token)
        return [
            [self._entry(each, tokens) for each in hypotheses] for hypotheses, tokens in zip(found, source, strict=True)
        ]

    def _search(self, source: Tensor, prefix: Tensor | None, start: int | None) -> list[list[Hypothesis]]:
        positions = min(model.max_decoder_positions() for model in self.models)
        longest = min(int(self.options.max_length_a * source.size(1) + self.options.max_length_b), positions - 1)
        if longest < max(self.options.min_length, 1):
            raise UsageError(
                f"the max length for sources of {source.size(1)} tokens is {longest}: expected at least --min-len "
                f"{self.options.min_length} and 1; raise --max-len-a or --max-len-b"
            )
        return self._beam_search(source, prefix, start, replace(self.options, max_length_a=0.0, max_length_b=longest))

    def _search_source_length(self, source: Tensor, prefix: Tensor | None, start: int | None) -> list[list[Hypothesis]]:
        """Translates sentences of one length at a time. The end symbol is forced with probability 1, as in fairseq."""
        lengths = (source.ne(self.special.padding) & source.ne(self.special.end)).sum(1)
        blank = Hypothesis(torch.tensor([self.special.end]), 0.0, torch.zeros(1))
        found = [[blank] for _ in source]
        for length in lengths[lengths > 0].unique().tolist():
            rows = lengths.eq(length).nonzero().squeeze(1)
            options = replace(self.options, min_length=length, max_length_a=0.0, max_length_b=length)
            prefixes = None if prefix is None else prefix[rows]
            hypotheses_of_rows = self._beam_search(source[rows], prefixes, start, options)
            for row, hypotheses in zip(rows.tolist(), hypotheses_of_rows, strict=True):
                certain = [_with_certain_end(each, options) for each in hypotheses]
                found[row] = sorted(certain, key=lambda each: each.score, reverse=True)
        return found

    def _beam_search(
        self, source: Tensor, prefix: Tensor | None, start: int | None, options: SearchOptions
    ) -> list[list[Hypothesis]]:
        decoders = [self.transformers.of(model) for model in self.models]
        decoder: Any = decoders[0]
        try:
            memory: Any = [each.encode(source) for each in decoders]
        except IndexError as error:
            raise UsageError(
                f"the dictionary lacks a token in the data ({error}): binarise the data again with this dictionary"
            ) from error
        if len(decoders) > 1:
            decoder = EnsembleDecoder(decoders, temperature=options.temperature)
            options = replace(options, temperature=1.0)
        if options.sampling:
            options = replace(options, seed=int(torch.randint(2**31, ())))
        return find_search(source.device)(
            decoder,
            memory if len(decoders) > 1 else memory[0],
            options,
            source_lengths=source.ne(self.special.padding).sum(1),
            prefix=prefix,
            special=self.special if start is None else replace(self.special, start=start),
        )

    def _entry(self, hypothesis: Hypothesis, source: Tensor) -> dict[str, Any]:
        attention, alignment = hypothesis.attention, torch.empty(0)
        if self.extract_alignment is not None and attention is not None:
            special = self.special.padding, self.special.end
            alignment = self.extract_alignment(attention, source.cpu(), hypothesis.tokens, *special)
        return {
            "tokens": hypothesis.tokens,
            "score": torch.tensor(hypothesis.score),
            "attention": torch.empty(0) if attention is None else attention.T,
            "alignment": alignment,
            "positional_scores": hypothesis.token_scores,
        }


def _with_certain_end(hypothesis: Hypothesis, options: SearchOptions) -> Hypothesis:
    assert hypothesis.token_scores is not None
    token_scores = torch.cat([hypothesis.token_scores[:-1], torch.zeros(1)])
    score = token_scores.sum().item() / options.penalty(len(token_scores))
    return replace(hypothesis, score=score, token_scores=token_scores)
