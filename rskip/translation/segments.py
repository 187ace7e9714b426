"""Converts texts to segments of model tokens, and the hypotheses of segments to translations.

Each sentence of a text is one segment, or several if it is too long. S source tokens, T target tokens, without ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from rskip.generation import Hypothesis, SearchOptions
from rskip.text import TextPipeline, Tokenizer
from rskip.text.sentences import SplitText, fill
from rskip.translation.options import TooLong
from rskip.translation.translation import TranslatedHypothesis

Attention = numpy.ndarray[Any, Any]

_SENTENCE_ENDS = frozenset({".", "!", "?", "…", "...", "。", "！", "？", "।", "؟"})
_CLOSING = frozenset({'"', "'", ")", "]", "»", "”", "’", "“", "&quot;", "&apos;", "&#93;", "」", "』", "）"})
_MARK = "\u2581"  # SentencePiece's space
_LONGEST_PART = 250  # tokens; about the maximum length of sentences in cleaned corpora


@dataclass(frozen=True)
class Source:
    """A text as input of the model.

    segments: the model tokens of its sentences. A text without visible characters has none.
    gaps: the text before the translation of the first segment, between two, and after the last one.
    prefix: ids of the target tokens that are forced at the beginning of the first segment.
    notes: differences between the segments and the text, and a missing language token.
    """

    text: str
    segments: tuple[tuple[str, ...], ...]
    gaps: tuple[str, ...]
    prefix: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LengthRule:
    """The rule for sentences of more than `limit` tokens, including the end; None: no sentence is too long.

    too_long: "keep" (raise a `ValueError`), "cut" or "split".
    """

    too_long: TooLong
    limit: int | None

    def segments(self, tokens: Sequence[str], *, before: int) -> tuple[list[list[str]], tuple[str, ...]]:
        """The tokens in segments, and notes on changes. Raises `ValueError` for too many tokens.

        :param before: number of tokens that will be put before each segment.
        """
        count = before + len(tokens) + 1
        if self.limit is None or count <= self.limit:
            return [list(tokens)], ()
        room = max(self.limit - 1 - before, 1)
        if self.too_long == "cut":
            return [list(tokens[:room])], (f"cut after {room:,} of its {len(tokens):,} tokens",)
        if self.too_long == "split":
            segments = split(tokens, room)
            return segments, (f"split into {len(segments):,} parts, since it has {len(tokens):,} tokens",)
        raise ValueError(
            f"it has {count:,} tokens (including its end), and at most {self.limit:,} can be translated: "
            "shorten it, or let it be cut or split (too_long)"
        )


def read_source(text: str, prefix: str, *, tokenizer: Tokenizer, rule: LengthRule, split_sentences: bool) -> Source:
    """Converts a text to model tokens in segments, by `rule`.

    A language token at the beginning of a sentence, such as >>deu<<, holds for the sentences after it too. It is left
    out if the tokenizer adds the target language's.

    :param prefix: raw text at the beginning of its translation.
    :param split_sentences: whether each sentence is a segment; otherwise, and if the text is model tokens already, the
        text is one sentence.
    """
    try:
        forced = tokenizer.encode_prefix(prefix)
    except ValueError as error:
        raise ValueError(f"its prefix: {error}") from error
    text.encode()  # raises ValueError for lone surrogates
    sentences, between = [text], ["", ""]
    if split_sentences and isinstance(tokenizer.text, TextPipeline):
        sentences, between = (found := SplitText(text.replace("\0", " "))).sentences, found.gaps
    typed = tokenizer.typed_languages
    own = "" if tokenizer.languages is None else tokenizer.languages.token(tokenizer.target_language)
    language: list[str] = []
    segments, gaps, notes = list[tuple[str, ...]](), between[:1], dict[str, None]()
    for sentence, gap in zip(sentences, between[1:], strict=True):
        begins_with, sentence = tokenizer.language_prefix(sentence)
        tokens = tokenizer.tokens(sentence)
        others = [token for token in begins_with if token != (begins_with[0] if typed else own)]
        if others:
            notes[f"it begins with {others[0]}, but is translated as for {begins_with[0] if typed else own}"] = None
        if typed and begins_with:
            language = begins_with[:1]
        elif not tokens:
            gaps[-1] += gap
            continue
        elif typed and not language:
            notes[f"it doesn't begin with a language token of the model, such as {typed[0]}"] = None
        parts, changes = rule.segments(tokens, before=len(language))
        segments += [(*language, *part) for part in parts]
        gaps += [*[" "] * (len(parts) - 1), gap]
        notes |= dict.fromkeys(changes)
    return Source(text, tuple(segments), tuple(gaps), tuple(forced) if segments else (), tuple(notes))


def split(tokens: Sequence[str], room: int) -> list[list[str]]:
    """Splits tokens into sentences, and sentences of more than `room` or 250 tokens into parts.

    A sentence ends after final punctuation and the closing quotes or brackets after it. A part is as long as possible
    and ends with a word, which byte-pair encoding (`@@`) or SentencePiece (`▁`) marks. A longer word is split at any
    token.
    """
    room = min(room, _LONGEST_PART)
    word_ends = _word_ends(tokens)
    segments = []
    start = 0
    for sentence_end in (*sorted(_sentence_ends(tokens)), len(tokens)):
        while sentence_end - start > room:
            end = next((end for end in range(start + room, start, -1) if end in word_ends), start + room)
            segments.append(list(tokens[start:end]))
            start = end
        segments.append(list(tokens[start:sentence_end]))
        start = sentence_end
    return segments


def _sentence_ends(tokens: Sequence[str]) -> set[int]:
    """The number of tokens up to the end of each sentence."""
    ends = set()
    ended = False
    for index, token in enumerate(tokens):
        bare = token.removeprefix(_MARK)
        if ended and bare not in _CLOSING and bare not in _SENTENCE_ENDS:
            ends.add(index)
        ended = bare in _SENTENCE_ENDS or (ended and bare in _CLOSING)
    return ends


def _word_ends(tokens: Sequence[str]) -> set[int]:
    if any(token.startswith(_MARK) for token in tokens):
        return {index for index, token in enumerate(tokens) if token.startswith(_MARK)}
    return {index for index, token in enumerate(tokens, start=1) if not token.endswith("@@")}


def join_segments(
    source: Source, found: Sequence[Sequence[Hypothesis]], *, tokenizer: Tokenizer, options: SearchOptions
) -> tuple[TranslatedHypothesis, ...]:
    """The translations of a text: the best ones of its segments joined, then the second best ones, and so on.

    The score is that of all tokens with one length penalty, including the segments' ends.

    :param found: hypotheses of each segment, best first.
    """
    return tuple(_join(source, ranked, tokenizer, options) for ranked in zip(*found, strict=False))


def _join(
    source: Source, hypotheses: Sequence[Hypothesis], tokenizer: Tokenizer, options: SearchOptions
) -> TranslatedHypothesis:
    pair = tokenizer.pair
    inner = [pair.inner(hypothesis.tokens.tolist()) for hypothesis in hypotheses]  # without language tokens
    tokens = [hypothesis.tokens[part][:-1].tolist() for hypothesis, part in zip(hypotheses, inner, strict=True)]
    alignment = attention = None
    if options.attention:
        lengths = [len(segment) for segment in source.segments]
        attentions = _own_attentions(hypotheses, inner, lengths, first=len(pair.before))
        alignment = _hard_alignment(attentions)
        attention = attentions[0] if len(attentions) == 1 else None
    return TranslatedHypothesis(
        text=fill(source.gaps, [tokenizer.decode(each) for each in tokens]),
        score=_score(hypotheses, options),
        tokens=tuple(tokenizer.target.tokens[index] for each in tokens for index in each),
        token_scores=_token_scores(hypotheses, inner) if options.token_scores else None,
        alignment=alignment,
        attention=attention,
    )


def _score(hypotheses: Sequence[Hypothesis], options: SearchOptions) -> float:
    if len(hypotheses) == 1:
        return hypotheses[0].score
    total = sum(hypothesis.score * options.penalty(len(hypothesis.tokens)) for hypothesis in hypotheses)
    return total / options.penalty(sum(len(hypothesis.tokens) for hypothesis in hypotheses))


def _token_scores(hypotheses: Sequence[Hypothesis], inner: Sequence[slice]) -> tuple[float, ...]:
    scores = [
        [] if each.token_scores is None else each.token_scores[part].tolist()
        for each, part in zip(hypotheses, inner, strict=True)
    ]
    return (*(score for each in scores for score in each[:-1]), scores[-1][-1])


def _own_attentions(
    hypotheses: Sequence[Hypothesis], inner: Sequence[slice], source_lengths: Sequence[int], *, first: int
) -> list[Attention]:
    """The attention (T + 1, S + 1) of each segment, without language tokens and padding.

    :param first: the number of source tokens before the sentence.
    """
    own = []
    for hypothesis, part, length in zip(hypotheses, inner, source_lengths, strict=True):
        assert hypothesis.attention is not None
        own.append(numpy.asarray(hypothesis.attention)[part, first : first + length + 1])
    return own


def _hard_alignment(attentions: Sequence[Attention]) -> tuple[tuple[int, int], ...]:
    """(source token, target token) for each target token, with the source token of the highest attention."""
    pairs: list[tuple[int, int]] = []
    source_start = target_start = 0
    for attention in attentions:
        best = attention[:-1, :-1].argmax(1).tolist()  # without the ends, which are last
        pairs += [(source_start + source, target_start + target) for target, source in enumerate(best)]
        source_start += attention.shape[1] - 1
        target_start += attention.shape[0] - 1
    return tuple(pairs)
