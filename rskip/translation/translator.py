"""Raw text in one language to raw text in another. B sentences, S source length, T target length."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch

from rskip.checkpoint import build_transformer, read_checkpoint
from rskip.checkpoint.transformer import check_translates, check_vocabulary
from rskip.cpu.precision import set_precision
from rskip.generation import Hypothesis, SearchOptions
from rskip.machine.device import usable_device
from rskip.settings.errors import SettingError
from rskip.text import Dictionary, TextPipeline
from rskip.translation.model_files import (
    ONNX_FILE,
    TOKENS,
    Text,
    build_text,
    find_dictionary,
    find_languages,
    find_model,
    find_text,
    missing_dictionaries,
)
from rskip.translation.options import DEFAULT_OPTIONS, MAX_TOKENS, TooLong
from rskip.translation.search import (
    SearchBatches,
    Segment,
    TranslationModel,
    Workers,
    search_batches,
    search_segments,
)
from rskip.translation.segments import LengthRule, Source, join_segments, read_source, token_indices
from rskip.translation.translation import SentenceError, TranslatedHypothesis, Translation

_OWN_SETTINGS = ("max_tokens", "too_long", "max_source_tokens", "prefixes")
_BLANK = (TranslatedHypothesis(text="", score=0.0, tokens=(), token_scores=(), alignment=()),)


class Translator:
    """A Transformer with the text processing and the dictionaries that it was trained with.

    Threads may share one: `translate` changes nothing. `options` are the defaults of its search: a beam of 4, length
    penalty 1, and at most 2·S + 50 target tokens. Between the languages that are usually translated the one side
    rarely has twice the other's subword units, and 50 more are room for short sentences; the bound follows the source,
    so text of any length can be translated, and a model that repeats itself
    stops.

    :param model: on the device where it is to run, in evaluation mode.
    :param text: raw sentences to model tokens and back.

    file: of the model; None where it was not read from one.
    """

    def __init__(
        self,
        model: TranslationModel,
        text: Text,
        *,
        source_dictionary: Dictionary,
        target_dictionary: Dictionary,
        options: SearchOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.model = model
        self.text = text
        self.source_dictionary = source_dictionary
        self.target_dictionary = target_dictionary
        self.options = options
        self.file: Path | None = None
        self._search: SearchBatches = partial(search_batches, model)

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        *,
        dictionaries: str | os.PathLike[str] | None = None,
        text: str | os.PathLike[str] | TextPipeline | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        precision: str | None = None,
        device: str | torch.device = "cpu",
    ) -> Translator:
        """The translator of a model of ours, or of a stock Transformer (post-norm or pre-norm) that fairseq trained.

        :param path: a checkpoint (.safetensors or .pt), the folder of one, or a folder of ONNX graphs
            (`rskip export onnx`), which run without PyTorch's modules.
        :param dictionaries: the folder of dict.<language>.txt; default: the checkpoint's, or else, of a checkpoint of
            fairseq's, that of the data that it was trained on.
        :param text: how text becomes model tokens: a folder with pipeline.json as `rskip prepare` writes it, a file of
            byte-pair codes (then text is tokenised by Moses' rules) or a SentencePiece model; "tokens": the text is
            model tokens, separated by spaces, already. Default: what lies in `dictionaries` or beside the checkpoint.
        :param source_language, target_language: default: as the checkpoint says, or else its text pipeline or the names
            of the dictionaries' folder's files.
        :param precision: "float32", "bfloat16" or "int8"; see `set_precision`. Default: float32, or ONNX graphs' own.
        :raises FileNotFoundError: something is missing. The message says what to give.
        :raises ValueError: damaged files, a checkpoint of another task or kind, dictionaries of another model, no such
            device.
        """
        file = find_model(path)
        stored = _Graphs(file) if file.name == ONNX_FILE else _Weights(file)
        given = [] if dictionaries is None else [Path(dictionaries)]
        folders = [*given, file.parent, *stored.data]
        if missing := [folder for folder in given if not folder.is_dir()]:
            raise FileNotFoundError(f"no folder {missing[0]}: give the one that holds the dictionaries, dict.*.txt")
        if not any(path for folder in folders for path in folder.glob("dict.*.txt")):
            raise missing_dictionaries("dict.*.txt", folders)
        found = find_text(stored.text if text is None else text, folders)
        with _errors_about(file):
            languages = find_languages(
                given=(source_language, target_language),
                own=stored.languages,
                pipeline=(found.source_language, found.target_language) if isinstance(found, TextPipeline) else None,
                folders=folders,
            )
        source_dictionary, target_dictionary = (
            Dictionary.load(find_dictionary(names, folders)) for names in zip(languages, stored.languages, strict=True)
        )
        with _errors_about(file):
            vocabularies = len(source_dictionary), len(target_dictionary)
            model = stored.build(*vocabularies, precision=precision, device=usable_device(device))
            built = build_text(found, languages)
        translator = cls(model, built, source_dictionary=source_dictionary, target_dictionary=target_dictionary)
        translator.file = file
        return translator

    def __repr__(self) -> str:
        model = type(self.model).__name__ if self.file is None else str(self.file)
        languages = f"{self.source_language}-{self.target_language}"
        return (
            f"Translator({model!r}, connection={self.model.connection!r}, languages={languages!r}, "
            f"precision={self.precision!r}, device={str(self.device)!r})"
        )

    @property
    def source_language(self) -> str:
        return self.text.source_language

    @property
    def target_language(self) -> str:
        return self.text.target_language

    @property
    def precision(self) -> str:
        """What the model computes in."""
        return self.model.precision

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    def to(self, device: str | torch.device) -> Translator:
        """Moves the model; not while another thread translates. Raises `ValueError` where there is no such device."""
        self.model.move(usable_device(device))
        return self

    @contextmanager
    def parallel(self, workers: int) -> Iterator[Translator]:
        """Within the block, a translator like this one that searches in so many processes, which share the threads.

        For many sentences on a CPU: several threads on one batch do less. Each process takes a few seconds to start,
        and as much memory as this one. A program that is a script needs `if __name__ == "__main__":`, as with all of
        Python's multiprocessing.

        :raises ValueError: fewer than one worker, or the model is not on the CPU.
        """
        with Workers(self.model, workers) as pool:
            translator = copy(self)
            translator._search = pool.search
            yield translator

    def __call__(self, sentence: str, **settings: Any) -> str:
        """The best translation of one sentence. `settings` are those of `translate`."""
        if not isinstance(sentence, str):
            got = type(sentence).__name__
            raise ValueError(f"translator(...) takes one sentence and got a {got}: translate([...]) takes several")
        return self.translate([sentence], **settings)[0].text

    def translate(
        self,
        sentences: Sequence[str],
        options: SearchOptions | None = None,
        *,
        max_tokens: int = MAX_TOKENS,
        too_long: TooLong = "split",
        max_source_tokens: int | None = None,
        prefixes: Sequence[str | None] | None = None,
        **settings: Any,
    ) -> list[Translation]:
        """Translations of raw sentences, in their order, whatever the batches that they are translated in.

        A blank sentence's translation is "", without the model. A NUL byte counts as a space. Unknown tokens in a
        translation stay `<unk>`. `alignment` and `attention` are given where the search gives attention
        (`attention=True`).

        :param options: how to search; default: `self.options`.
        :param max_tokens: of a batch, in source tokens, shorter sentences filled up to its longest one. Memory grows
            with it; a sentence of more tokens is translated by itself.
        :param too_long: what is done with text of more than `max_source_tokens` tokens: "split" translates each of its
            sentences, one of more than 250 tokens in parts, and joins their translations by spaces; "cut" leaves out
            what is over; "keep" raises an error. Whatever is done is said in `Translation.notes`.
        :param max_source_tokens: with the end counted. Default: where the model has learned positions, as many as it
            has; otherwise "keep" has no limit, and that of "cut" and "split" is the longest source that fairseq
            would have trained on (max_source_positions).
        :param prefixes: for each sentence raw text that its translation must begin with; "" or None for none.
        :param settings: fields of `SearchOptions` to change, such as `beam=5`.
        :raises SentenceError: a sentence of several lines or of too many tokens.
        :raises ValueError: settings that make no sense.
        """
        options = (self.options if options is None else options).changed(settings, beside=_OWN_SETTINGS)
        if max_tokens < 1:
            raise SettingError.of_value("max_tokens", max_tokens, "1 or more")
        sources = self.read(sentences, options, too_long=too_long, limit=max_source_tokens, prefixes=prefixes)
        return self.search(sources, options, max_tokens=max_tokens)

    def watched(self, each_step: Callable[[int], None]) -> Translator:
        """One like this, that calls `each_step` with the number of each step of a batch's search, from 1."""
        translator = copy(self)
        translator._search = partial(search_batches, self.model, each_step=each_step)
        return translator

    def read(
        self,
        sentences: Sequence[str],
        options: SearchOptions,
        *,
        too_long: TooLong,
        limit: int | None,
        prefixes: Sequence[str | None] | None = None,
    ) -> list[Source]:
        """The first half of `translate`: what is searched for, and what was done with text that is too long."""
        return self._read(sentences, prefixes, self._length_rule(too_long, limit), options)

    def search(
        self,
        sources: Sequence[Source],
        options: SearchOptions,
        *,
        max_tokens: int,
        around: Callable[[SearchBatches], SearchBatches] = lambda search: search,
    ) -> list[Translation]:
        """The second half of `translate`. `around` may do more before and after each batch is searched."""
        segments = [segment for source in sources for segment in self._segments(source)]
        found = iter(search_segments(around(self._search), segments, options, max_tokens=max_tokens))
        return [self._translation(source, [next(found) for _ in source.segments], options) for source in sources]

    def _length_rule(self, too_long: TooLong, limit: int | None) -> LengthRule:
        if too_long not in (known := get_args(TooLong)):
            raise SettingError.of_value("too_long", too_long, " or ".join(known))
        if limit is not None and limit < 2:
            raise SettingError.of_value("max_source_tokens", limit, "2 or more, a token and the end")
        bound, trained = self.model.max_source_positions, self.model.trained_source_positions
        if bound is not None:
            return LengthRule(too_long, min(limit or bound, bound))
        return LengthRule(too_long, limit or (None if too_long == "keep" else trained))

    def _read(
        self,
        sentences: Sequence[str],
        prefixes: Sequence[str | None] | None,
        rule: LengthRule,
        options: SearchOptions,
    ) -> list[Source]:
        if isinstance(sentences, str):
            raise ValueError("one string is no list of sentences: translate([sentence]), or translator(sentence)")
        if prefixes is None:
            prefixes = [None] * len(sentences)
        if len(prefixes) != len(sentences):
            raise ValueError(f"{len(prefixes)} prefixes for {len(sentences)} sentences: expected one for each")
        sources = []
        for number, (sentence, prefix) in enumerate(zip(sentences, prefixes, strict=True), start=1):
            try:
                source = read_source(sentence, prefix or "", text=self.text, rule=rule)
                self._check_prefix(source, options)
            except ValueError as error:
                raise SentenceError(number, str(error)) from error
            sources.append(source)
        return sources

    def _check_prefix(self, source: Source, options: SearchOptions) -> None:
        if source.prefix:
            limit = self._limit(source.segments[0], options)
            if len(source.prefix) > limit:
                raise ValueError(
                    f"its prefix has {len(source.prefix):,} tokens, but its translation may have {limit:,} "
                    "(max_length_a, max_length_b)"
                )

    def _limit(self, segment: Sequence[str], options: SearchOptions) -> int:
        return options.greatest_length(len(segment) + 1, self.model.max_positions)

    def _segments(self, source: Source) -> list[Segment]:
        prefix = token_indices(source.prefix, self.target_dictionary)
        return [
            Segment(
                source=[*token_indices(segment, self.source_dictionary), Dictionary.eos_index],
                prefix=prefix if number == 0 else [],
            )
            for number, segment in enumerate(source.segments)
        ]

    def _translation(
        self, source: Source, found: Sequence[Sequence[Hypothesis]], options: SearchOptions
    ) -> Translation:
        if not found:
            return Translation(source=source.sentence, hypotheses=_BLANK)
        hypotheses = join_segments(
            found,
            source_lengths=[len(segment) for segment in source.segments],
            dictionary=self.target_dictionary,
            text=self.text,
            options=options,
        )
        limits = [self._limit(segment, options) for segment in source.segments]
        lengths = [len(each[0].tokens) - 1 for each in found]
        stopped = tuple(
            f"its translation reached the greatest length, {length:,} tokens (max_length_a, max_length_b)"
            for length, limit in zip(lengths, limits, strict=True)
            if length >= limit
        )
        return Translation(
            source=source.sentence,
            hypotheses=hypotheses,
            notes=source.notes + stopped[:1],
            source_tokens=tuple(token for segment in source.segments for token in segment),
        )


class _Weights:
    """A model's checkpoint."""

    text = None

    def __init__(self, file: Path) -> None:
        self.checkpoint = read_checkpoint(file)
        self.data = [folder for folder in map(Path, self.checkpoint.trained_on) if folder.is_dir()]
        with _errors_about(file):
            check_translates(self.checkpoint)
        self.languages = self.checkpoint.config["source_lang"], self.checkpoint.config["target_lang"]

    def build(self, source: int, target: int, *, precision: str | None, device: torch.device) -> TranslationModel:
        """The model, for dictionaries of so many tokens."""
        model = build_transformer(self.checkpoint, source_vocabulary=source, target_vocabulary=target)
        model.move(device)
        return set_precision(model, precision or "float32")


class _Graphs:
    """A model's ONNX graphs."""

    def __init__(self, file: Path) -> None:
        from rskip.translation.onnx_decoder import read_settings  # onnxruntime may be missing

        self.folder, self.settings, self.data = file.parent, read_settings(file), list[Path]()
        self.languages = self.settings.source_language, self.settings.target_language
        self.text = TOKENS if self.settings.text == "tokens" else None

    def build(self, source: int, target: int, *, precision: str | None, device: torch.device) -> TranslationModel:
        """The model, for dictionaries of so many tokens."""
        from rskip.translation.onnx_decoder import OnnxTransformer

        own = self.settings.precision
        check_vocabulary("source", self.settings.source_vocabulary, source)
        check_vocabulary("target", self.settings.target_vocabulary, target)
        if precision not in (None, own):
            advice = "export the model in another precision, or use the model itself"
            raise SettingError.of_value("precision", precision, f"{own}, as the graphs are", advice=advice)
        model = OnnxTransformer(self.folder, self.settings)
        model.move(device)
        return model


@contextmanager
def _errors_about(file: Path) -> Iterator[None]:
    try:
        yield
    except SettingError as error:
        raise error.within(source=str(file)) from None
