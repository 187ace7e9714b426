"""From the hypotheses of a sentence's parts to translations of the sentence."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rskip.generation import Hypothesis, SearchOptions
from rskip.generation.length_penalty import build_length_penalty
from rskip.text import Dictionary
from rskip.translation.alignment import hard_alignment
from rskip.translation.text_files import Text
from rskip.translation.translation import TranslatedHypothesis


def join_parts(
    parts: Sequence[Sequence[Hypothesis]],
    *,
    source_lengths: Sequence[int],
    dictionary: Dictionary,
    text: Text,
    options: SearchOptions,
) -> tuple[TranslatedHypothesis, ...]:
    """The translations of a sentence: the best ones of its parts joined, then the second best ones, and so on.

    Texts are joined by spaces. The score is that of all the tokens with one length penalty, the parts' ends counted.

    :param parts: hypotheses of each part, best first.
    :param source_lengths: each part's tokens, without the end.
    """
    return tuple(
        _join(ranked, source_lengths, dictionary=dictionary, text=text, options=options)
        for ranked in zip(*parts, strict=False)
    )


def _join(
    parts: Sequence[Hypothesis],
    source_lengths: Sequence[int],
    *,
    dictionary: Dictionary,
    text: Text,
    options: SearchOptions,
) -> TranslatedHypothesis:
    tokens = [hypothesis.tokens[:-1].tolist() for hypothesis in parts]
    texts = [text.decode(dictionary.decode(each)) for each in tokens]
    return TranslatedHypothesis(
        text=" ".join(each for each in texts if each),
        score=_score(parts, options),
        tokens=tuple(dictionary.tokens[index] for each in tokens for index in each),
        token_scores=_token_scores(parts) if options.token_scores else None,
        alignment=_alignment(parts, source_lengths) if options.attention else None,
        attention=_attention(parts, source_lengths) if options.attention else None,
    )


def _score(parts: Sequence[Hypothesis], options: SearchOptions) -> float:
    if len(parts) == 1:
        return parts[0].score
    penalty = build_length_penalty(options.length_penalty_kind, options.length_penalty)
    total = sum(hypothesis.score * penalty(len(hypothesis.tokens)) for hypothesis in parts)
    return total / penalty(sum(len(hypothesis.tokens) for hypothesis in parts))


def _token_scores(parts: Sequence[Hypothesis]) -> tuple[float, ...]:
    scores = [[] if each.token_scores is None else each.token_scores.tolist() for each in parts]
    return (*(score for each in scores for score in each[:-1]), scores[-1][-1])


def _alignment(parts: Sequence[Hypothesis], source_lengths: Sequence[int]) -> tuple[tuple[int, int], ...]:
    pairs: list[tuple[int, int]] = []
    source_start = target_start = 0
    for hypothesis, length in zip(parts, source_lengths, strict=True):
        assert hypothesis.attention is not None
        attention = hypothesis.attention[:, : length + 1]
        pairs += hard_alignment(attention, source_start=source_start, target_start=target_start)
        source_start += length
        target_start += len(hypothesis.tokens) - 1
    return tuple(pairs)


def _attention(parts: Sequence[Hypothesis], source_lengths: Sequence[int]) -> Tensor | None:
    if len(parts) > 1:
        return None
    assert parts[0].attention is not None
    return parts[0].attention[:, : source_lengths[0] + 1]
