"""Translates raw text. S source length."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from rskip.checkpoint.hugging_face import hub_folder, is_hub_name
from rskip.generation import Hypothesis, SearchOptions, SpecialTokens
from rskip.generation.runtime import RuntimeModel
from rskip.machine.device import is_cpu, usable_device
from rskip.settings.errors import SettingError
from rskip.text import Dictionary, TextPipeline, Tokenizer
from rskip.text.finding import TokenizerSettings
from rskip.translation.model_files import open_model
from rskip.translation.options import DEFAULT_OPTIONS, MAX_TOKENS, TooLong
from rskip.translation.search import ModelSearcher, Searcher, Segment, TorchModel, TranslationModel, search_segments
from rskip.translation.segments import LengthRule, Source, join_segments, read_source
from rskip.translation.translation import SentenceError, TranslatedHypothesis, Translation

if TYPE_CHECKING:
    import torch

_OWN_SETTINGS = (
    "max_tokens", "split_sentences", "too_long", "max_source_tokens", "prefixes", "source_language", "target_language",
    "searcher",
)  # fmt: skip


class Translator:
    """A Transformer with its tokenizer. `translate` runs two steps, which can also be called separately::

        sources = translator.read(texts, options)            # raw text to the tokens of its sentences
        translations = translator.search(sources, options)   # the searcher's hypotheses, converted to raw text

    A translator is thread-safe. `options` are the defaults of its search: a beam of 4, length penalty 1, and at most
    2·S + 50 target tokens. This limit is rarely too low for common language pairs, and it stops models that repeat
    themselves.

    :param model: the model in evaluation mode, on the device to run on.
    :param tokenizer: converts raw sentences to source ids, and target ids to raw sentences.

    file: the model's file; None if the model was not read from one file.
    """

    def __init__(
        self,
        model: TranslationModel,
        tokenizer: Tokenizer,
        *,
        options: SearchOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.options = options
        self.file: Path | None = None

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        *,
        dictionaries: str | os.PathLike[str] | None = None,
        text: str | os.PathLike[str] | TextPipeline | None = None,
        text_settings: Mapping[str, Any] | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        precision: str | None = None,
        device: str | torch.device = "cpu",
    ) -> Translator:
        """The translator of a model of ours, of fairseq's own Transformer (post-norm or pre-norm), or of
        a Hugging Face folder: Marian (such as opus-mt-en-de), M2M-100, NLLB, mBART, FSMT.

        :param path: a checkpoint (.safetensors or .pt), its folder, a Hugging Face folder, or a folder of ONNX graphs
            (`rskip export onnx`). `hf:OWNER/NAME` is a model of the Hugging Face Hub
            (`rskip.checkpoint.hugging_face.hub_folder`). Several models, joined by ":" or in one folder, are an
            ensemble.
        :param dictionaries: the folder of dict.<language>.txt, or of a multilingual model also the dictionary of all
            languages. Default: the checkpoint's folder, or for a checkpoint of fairseq also the folder of its training
            data.
        :param text: the text pipeline: a folder with pipeline.json from `rskip prepare`, or a file of it; or a file of
            byte-pair codes or a SentencePiece model without pipeline.json, from which the other steps are inferred with
            the dictionary (with a warning, `AssumedText`); or "tokens" for text that is model tokens, separated by
            spaces. Default: the files in `dictionaries` or next to the checkpoint.
        :param text_settings: settings that override those of pipeline.json or the inferred ones: `tokeniser` ("moses"
            or "none"), `lowercase`, `normalise_punctuation`, `dash_splits` and `escape`, as in `TextConfig`.
        :param source_language, target_language: default: the languages in the checkpoint, in its text pipeline or in
            the names of files next to the dictionaries. A multilingual model needs both, as its codes or as two
            letters, such as "de", if only one code has this language; `translate` can change them.
        :param precision: "float32", "bfloat16" or "int8"; see `rskip.cpu.set_precision`. Default: float32, or the
            ONNX graphs' own.
        :raises FileNotFoundError: a file is missing. The error says what to give.
        :raises ValueError: a file is damaged, the checkpoint has another task or kind, the dictionaries are those of
            another model, or a setting or device is not possible.
        """
        if is_hub_name(path):
            path = hub_folder(path)
        stored = open_model(path)
        tokenizer = stored.tokenizer(
            TokenizerSettings(
                dictionaries=dictionaries,
                text=text,
                languages=(source_language, target_language),
                steps=text_settings or {},
            )
        )
        where = "cpu" if is_cpu(device) else usable_device(device)
        translator = cls(stored.build(tokenizer, precision=precision, device=where), tokenizer)
        translator.file = stored.file
        return translator

    def between(self, source_language: str | None = None, target_language: str | None = None) -> Translator:
        """A translator of the same multilingual model for other languages. None: the current language.

        :raises SettingError: the model lacks a language, or both are the same. The error lists the model's languages.
        """
        tokenizer = self.tokenizer.between(source_language, target_language)
        if tokenizer is self.tokenizer:
            return self
        other = copy.copy(self)
        other.tokenizer = tokenizer
        return other

    def __repr__(self) -> str:
        model = type(self.model).__name__ if self.file is None else str(self.file)
        languages = f"{self.source_language}-{self.target_language}"
        return (
            f"Translator({model!r}, connection={self.model.connection!r}, languages={languages!r}, "
            f"precision={self.precision!r}, device={str(self.device)!r})"
        )

    @property
    def source_language(self) -> str:
        return self.tokenizer.source_language

    @property
    def target_language(self) -> str:
        return self.tokenizer.target_language

    @property
    def precision(self) -> str:
        """The precision of the computation."""
        return self.model.precision

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return self.model.device

    def to(self, device: str | torch.device) -> Translator:
        """Moves the model, while no other thread translates. Raises `ValueError` if the device does not exist."""
        if not (isinstance(self.model, RuntimeModel) and is_cpu(device)):
            model = cast(TorchModel, self.in_torch().model)
            model.move(usable_device(device))
            self.model = model
        return self

    def in_torch(self) -> Translator:
        """A translator whose model is PyTorch's: on a CPU a `CpuTransformer`, whose `model` is the module."""
        if not isinstance(self.model, RuntimeModel):
            return self
        stored, other = open_model(self.model.stored.path), copy.copy(self)
        other.model = stored.build_in_torch(self.tokenizer, precision=self.precision, device="cpu")
        return other

    def __call__(self, text: str, **settings: Any) -> str:
        """The best translation of one text. `settings` are those of `translate`."""
        return self.translate([text], **settings)[0].text

    def translate(
        self,
        texts: Sequence[str],
        options: SearchOptions | None = None,
        *,
        max_tokens: int = MAX_TOKENS,
        split_sentences: bool = True,
        too_long: TooLong = "split",
        max_source_tokens: int | None = None,
        prefixes: Sequence[str | None] | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        searcher: Searcher | None = None,
        **settings: Any,
    ) -> list[Translation]:
        """Translates raw texts in batches, and returns the translations in the order of the texts.

        Each sentence is translated by itself, since translation models learn single sentences. What stands between two
        sentences stays: spaces, line breaks, emoji, and parts without a letter, such as 12:30. NUL bytes count as
        spaces. Unknown tokens in a translation stay `<unk>`. `alignment` and `attention` need `attention=True`.

        :param options: settings of the search (default: `self.options`).
        :param max_tokens: maximum number of source tokens in a batch, including padding. Memory grows with it. A longer
            sentence is translated separately.
        :param split_sentences: False: a text is translated as one sentence, and must have one line.
        :param too_long: rule for a sentence of more than `max_source_tokens` tokens. "split" translates parts of
            at most 250 tokens, and joins the translations by spaces. "cut" drops the rest.
            "keep" raises an error. `Translation.notes` describes the change.
        :param max_source_tokens: maximum number of source tokens, including the end. Default: the number of learned
            positions. Without learned positions, "keep" has no limit, and "cut" and "split" use the maximum source
            length on which fairseq would have trained (max_source_positions).
        :param prefixes: raw text at the beginning of each text's translation; "" or None for none.
        :param source_language, target_language: languages for a multilingual model (default: the translator's).
        :param searcher: runs the search, such as `Workers` (default: in this process).
        :param settings: fields of `SearchOptions` to change, such as `beam=5`.
        :raises SentenceError: a sentence has too many tokens, or a text that is not split has several lines.
        :raises ValueError: a setting is not possible.
        """
        options = (self.options if options is None else options).changed(settings, further=_OWN_SETTINGS)
        translator = self.between(source_language, target_language)
        sources = translator.read(
            texts,
            options,
            split_sentences=split_sentences,
            too_long=too_long,
            limit=max_source_tokens,
            prefixes=prefixes,
        )
        return translator.search(sources, options, max_tokens=max_tokens, searcher=searcher)

    def read(
        self,
        texts: Sequence[str],
        options: SearchOptions,
        *,
        split_sentences: bool = True,
        too_long: TooLong = "split",
        limit: int | None = None,
        prefixes: Sequence[str | None] | None = None,
    ) -> list[Source]:
        """The first half of `translate`: converts texts to sources, and cuts or splits long sentences."""
        if isinstance(texts, str):
            raise ValueError("expected a list of texts, got one string: use translate([text]), or translator(text)")
        rule = self._length_rule(too_long, limit)
        if prefixes is None:
            prefixes = [None] * len(texts)
        if len(prefixes) != len(texts):
            raise SettingError("prefixes", f"has {len(prefixes):,} items", expected=f"one per text, {len(texts):,}")
        sources = []
        for number, (text, prefix) in enumerate(zip(texts, prefixes, strict=True), start=1):
            try:
                source = read_source(
                    text, prefix or "", tokenizer=self.tokenizer, rule=rule, split_sentences=split_sentences
                )
                self._check_prefix(source, options)
            except ValueError as error:
                raise SentenceError(number, str(error)) from error
            sources.append(source)
        return sources

    def search(
        self,
        sources: Sequence[Source],
        options: SearchOptions,
        *,
        max_tokens: int = MAX_TOKENS,
        searcher: Searcher | None = None,
    ) -> list[Translation]:
        """The second half of `translate`: searches, and converts hypotheses to translations."""
        segments = [segment for source in sources for segment in self._segments(source)]
        searcher = ModelSearcher(self.model) if searcher is None else searcher
        found = iter(search_segments(searcher, segments, options, max_tokens=max_tokens))
        return [self._translation(source, [next(found) for _ in source.segments], options) for source in sources]

    def _length_rule(self, too_long: TooLong, limit: int | None) -> LengthRule:
        if too_long not in (known := get_args(TooLong)):
            raise SettingError.of_value("too_long", too_long, " or ".join(known))
        if limit is not None and limit < 2:
            raise SettingError.of_value("max_source_tokens", limit, "2 or more")
        bound, trained = self.model.max_source_positions, self.model.trained_source_positions
        if bound is not None:
            limit = min(limit or bound, bound)
        elif limit is None and too_long != "keep":
            limit = trained
        further = self.tokenizer.pair.source_length - 1  # language tokens
        return LengthRule(too_long, None if limit is None else max(limit - further, 2))

    def _check_prefix(self, source: Source, options: SearchOptions) -> None:
        if source.prefix:
            limit = self._limit(source.segments[0], options) - len(self.tokenizer.pair.first)
            if len(source.prefix) > limit:
                raise ValueError(
                    f"its prefix has {len(source.prefix):,} tokens, but its translation may have {limit:,} "
                    "(max_length_a, max_length_b)"
                )

    def _limit(self, segment: Sequence[str], options: SearchOptions) -> int:
        length = len(segment) + self.tokenizer.pair.source_length
        return options.max_length(length, self.model.max_positions)

    def _segments(self, source: Source) -> list[Segment]:
        pair = self.tokenizer.pair
        special = None
        if pair.start is not None:
            special = replace(SpecialTokens.of(Dictionary, start=pair.start), end=pair.end)
        return [
            Segment(
                source=self.tokenizer.ids(segment),
                prefix=[*pair.first, *(source.prefix if number == 0 else ())],
                special=special,
            )
            for number, segment in enumerate(source.segments)
        ]

    def _translation(
        self, source: Source, found: Sequence[Sequence[Hypothesis]], options: SearchOptions
    ) -> Translation:
        if not found:
            blank = TranslatedHypothesis(text=source.gaps[0], score=0.0, tokens=(), token_scores=(), alignment=())
            return Translation(source=source.text, hypotheses=(blank,))
        hypotheses = join_segments(source, found, tokenizer=self.tokenizer, options=options)
        limits = [self._limit(segment, options) for segment in source.segments]
        lengths = [len(each[0].tokens) - 1 for each in found]
        stopped = tuple(
            f"its translation reached the max length, {length:,} tokens (max_length_a, max_length_b)"
            for length, limit in zip(lengths, limits, strict=True)
            if length >= limit
        )
        return Translation(
            source=source.text,
            hypotheses=hypotheses,
            notes=source.notes + stopped[:1],
            source_tokens=tuple(token for segment in source.segments for token in segment),
        )
