"""Generates and scores text with a trained language model."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from msgspec import Meta
from torch import Tensor

from rskip.connections.norms import at_least_float32
from rskip.generation import SearchOptions
from rskip.generation.sampling import sample
from rskip.language_modeling.evaluation import TextScore, token_losses
from rskip.language_modeling.model_file import load_language_model
from rskip.language_modeling.tokens import TextTokens
from rskip.machine.device import usable_device
from rskip.settings.check import Checked, convert
from rskip.settings.errors import SettingError
from rskip.transformer import LanguageModel

_SHORT = 64  # tokens
_MOST_TOKENS = 1_000_000  # the generated tokens are kept in memory, and take minutes to hours


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(Checked):
    """Settings of `TextGenerator.generate`. Each field's description is also the help of its flag.

    :raises SettingError: a value is not possible.
    """

    length: Annotated[int, Meta(ge=1, le=_MOST_TOKENS, description="number of tokens to generate")] = 500
    temperature: Annotated[
        float,
        Meta(
            ge=0,
            le=1e6,
            description="divide the logits by this; below 1e-6: the most probable token",
            extra={"metavar": "T"},
        ),
    ] = 1.0
    top_k: Annotated[
        int, Meta(ge=0, le=10**8, description="draw from the K most probable tokens; 0 for all", extra={"metavar": "K"})
    ] = 0
    top_p: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="draw from the fewest tokens whose probabilities reach P; 1 for all",
            extra={"metavar": "P"},
        ),
    ] = 1.0
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="random seed")] = 1


class TextGenerator:
    """A language model with its tokens::

        model = TextGenerator.from_pretrained("runs/shakespeare_char/2rskip_ln/1")
        model.generate("ROMEO:", length=200, temperature=0.8, seed=1)
        model.score("To be, or not to be").bits_per_character

    Called with tokens (B, T), it returns logits (B, T, V).

    :param model: a model in evaluation mode, on its device.
    :param corpus: the name of the text that it was trained on.
    """

    precisions: ClassVar[tuple[str, ...]] = ("float32", "bfloat16")

    def __init__(self, model: LanguageModel, tokens: TextTokens, *, corpus: str = "") -> None:
        self.model, self.tokens, self.corpus = model, tokens, corpus

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        *,
        tokens: str | os.PathLike[str] | None = None,
        precision: str = "float32",
        device: str | torch.device | None = None,
    ) -> TextGenerator:
        """Loads a model.

        :param path, tokens: see `load_language_model`.
        :param precision: number format of the computation, one of `precisions`.
        :param device: the model's device (default: the CPU).
        :raises FileNotFoundError, ValueError: as `load_language_model`, or the precision or device is not possible.
        """
        if precision not in cls.precisions:
            raise ValueError(f"unknown precision {precision!r}: expected one of {', '.join(cls.precisions)}")
        place = usable_device("cpu" if device is None else device)
        found = load_language_model(Path(path), tokens=None if tokens is None else Path(tokens))
        model = found.model.to(place, getattr(torch, precision))
        return cls(model, found.tokens, corpus=found.corpus)

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) of the token after each position of `tokens` (B, T)."""
        logits: Tensor = self.model(tokens)
        return logits

    @property
    def context(self) -> int:
        """The number of tokens that the model was trained to read at once."""
        return self.model.config.max_target_positions

    def generate(self, prompt: str = "\n", **options: Any) -> str:
        """Text that continues the prompt, without the prompt.

        :param options: fields of `GenerationOptions`.
        :raises ValueError: see `stream`.
        """
        return "".join(self.stream(prompt, **options))

    def stream(self, prompt: str = "\n", **options: Any) -> Iterator[str]:
        """Like `generate`, but yields each part of the text as soon as further tokens can't change it.

        If the context is full, the model continues from its second half.

        :raises SettingError: an option is unknown or has a wrong value.
        :raises ValueError: the prompt has no tokens, is longer than the context, or has unknown characters.
        """
        settings = convert(options, GenerationOptions)
        tokens = self._encoded(prompt, source="the prompt")
        if len(tokens) > self.context:
            raise ValueError(
                f"the prompt has {len(tokens):,} {self.tokens.unit}s: expected at most {self.context:,}, which the "
                "model reads at once; shorten it"
            )
        return self._stream(tokens, settings)

    def _encoded(self, text: str, *, source: str) -> list[int]:
        if not text:
            raise ValueError(f"{source} is empty: give at least one character, such as a line end")
        tokens = self.tokens.encode(text, source=source)
        if not tokens:
            raise ValueError(f"{source} has only spaces, which the model's tokens drop: add a letter or a line end")
        return tokens

    def _stream(self, tokens: list[int], settings: GenerationOptions) -> Iterator[str]:
        drawn = self._draw(tokens, settings)
        if self.tokens.kind == "characters":
            yield from (self.tokens.decode([token]) for token in drawn)
            return
        end = self.tokens.dictionary.eos_index
        line = tokens[max((place + 1 for place, token in enumerate(tokens) if token == end), default=0) :]
        told = len(self.tokens.decode(line))
        for token in drawn:
            if token == end:
                yield self.tokens.decode(line)[told:] + "\n"
                line, told = [], 0
                continue
            line.append(token)
            text = self.tokens.decode(line)
            sure = text.rstrip("\ufffd")  # bytes whose character is incomplete
            if len(sure) > told:
                yield sure[told:]
                told = len(sure)
            if len(line) >= 2 * _SHORT and told == len(text):  # or long lines would be decoded again and again
                recent = self.tokens.decode(line[-_SHORT:])
                if text.endswith(recent):
                    line, told = line[-_SHORT:], len(recent)
        if rest := self.tokens.decode(line)[told:]:
            yield rest

    def _draw(self, prompt: list[int], settings: GenerationOptions) -> Iterator[int]:
        device, dictionary = self.model.device, self.tokens.dictionary
        never = torch.tensor([dictionary.bos_index, dictionary.pad_index, dictionary.unk_index], device=device)
        generator = torch.Generator(device).manual_seed(settings.seed)
        greedy = settings.temperature < 1e-6
        options = SearchOptions(beam=1, sampling=True, top_k=settings.top_k, top_p=settings.top_p)
        past, state, read = list(prompt), None, 0
        for _ in range(settings.length):
            with torch.inference_mode():
                if state is None or read == self.context:
                    if state is not None:
                        past = past[-max(1, self.context // 2) :]
                    state, read = self.model.start(torch.tensor([past], device=device)), len(past)
                else:
                    read += 1
                logits = self.model.step(torch.tensor([past[-1:]], device=device), state)
                scores = at_least_float32(logits).index_fill(2, never, -math.inf)
                if greedy:
                    token = int(scores.argmax())
                else:
                    token = int(sample((scores / settings.temperature).log_softmax(2), options, generator)[0])
            past.append(token)
            yield token

    def score(self, text: str, *, context: int | None = None) -> TextScore:
        """The probability of a text that begins a line.

        :param context: number of tokens that the model reads at once (default: `self.context`). The text is read in
            blocks of this length.
        :raises ValueError: the text has no tokens or unknown characters, or the context is longer than the model's.
        """
        if context is None:
            context = self.context
        limit = self.model.max_positions
        if context < 1 or (limit is not None and context > limit):
            expected = "1 or more" if context < 1 else f"at most {limit:,}, the model's learned positions"
            raise SettingError.of_value("context", context, expected)
        tokens = self._encoded(text, source="the text")
        start = self.tokens.dictionary.eos_index
        losses = token_losses(self.model, torch.tensor(tokens), context=context, start=start)
        return TextScore(nats=float(losses.sum()), tokens=len(tokens), characters=len(self.tokens.decode(tokens)))
