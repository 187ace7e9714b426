"""Scores translations of a test set, and tests whether one system is better than another.

Compare sacreBLEU (Post, 2018) on raw text with other publications. Tokenised BLEU depends on the tokeniser, so compare
it only with scores on the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from rskip.extras import extra
from rskip.translation.compound_split import GERMAN_TOKENS, OWN_TOKENS, compound_split_bleu, german_words

with extra("translation"):
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest


class Score(NamedTuple):
    """A percentage, and sacreBLEU's signature, which is None for simple counts."""

    value: float
    signature: str | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The paired bootstrap (Koehn, 2004) of a system against a baseline in one metric.

    p_value: the share of resampled test sets that differ by more than the real one, under the null hypothesis.
    system_interval, baseline_interval: half the width of the 95 % confidence interval around the mean.
    """

    metric: str
    system: float
    baseline: float
    p_value: float
    system_mean: float
    system_interval: float
    baseline_mean: float
    baseline_interval: float
    samples: int
    signature: str


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenised_hypotheses: Sequence[str] | None = None,
    tokenised_references: Sequence[str] | None = None,
    compound_split: bool = False,
    compound_split_own: bool = False,
) -> dict[str, Score]:
    """Scores of raw hypotheses against raw references, line by line.

    sacrebleu: BLEU of raw text, cased, sacreBLEU's tokenisation 13a.
    chrf: chrF2 of raw text (Popovic, 2015).
    tokenised_bleu: BLEU of the given tokens, if tokens are given.
    compound_split_bleu: the score of papers on WMT'14 English-German, of raw German in Moses' tokens, as in
    tensor2tensor (rskip.translation.compound_split).
    compound_split_own_bleu: the same for the given tokens, as in fairseq.
    accuracy: share of hypotheses that equal their reference, apart from spaces at the ends.

    :param tokenised_hypotheses: words joined by spaces, for tokenised BLEU. They need `tokenised_references`.
    :param compound_split: compute `compound_split_bleu`.
    :param compound_split_own: compute `compound_split_own_bleu`. The given tokens must be those of Moses' tokeniser.
    """
    scores = {
        "sacrebleu": _corpus_score(BLEU(force=True), hypotheses, references),
        "chrf": _corpus_score(CHRF(), hypotheses, references),
    }
    if tokenised_hypotheses is not None and tokenised_references is not None:
        scores["tokenised_bleu"] = tokenised_bleu(tokenised_hypotheses, tokenised_references)
    if compound_split:
        german = german_words(hypotheses), german_words(references)
        scores["compound_split_bleu"] = Score(*compound_split_bleu(*german, tokens=GERMAN_TOKENS))
    if compound_split_own:
        assert tokenised_hypotheses is not None and tokenised_references is not None
        scores["compound_split_own_bleu"] = Score(
            *compound_split_bleu(tokenised_hypotheses, tokenised_references, tokens=OWN_TOKENS)
        )
    correct = sum(h.strip() == r.strip() for h, r in zip(hypotheses, references, strict=True))
    scores["accuracy"] = Score(100 * correct / len(references))
    return scores


def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """See `score`."""
    return _corpus_score(BLEU(tokenize="none", force=True), hypotheses, references)


def paired_bootstrap(
    system: Sequence[str], baseline: Sequence[str], references: Sequence[str], *, samples: int = 1000
) -> list[Comparison]:
    """Compares the raw hypotheses of two systems with sacreBLEU's test, in BLEU and in chrF2.

    It resamples the test set `samples` times with sacreBLEU's seed (12345, or $SACREBLEU_SEED). Equal outputs get p =
    1, although sacreBLEU gives them the smallest possible p.

    :raises ValueError: `samples` is below 1.
    """
    if not 1 <= samples <= 1_000_000:
        raise ValueError(f"{samples} bootstrap samples: expected at least 1, usually 1000")
    test = PairedTest(
        named_systems=[("baseline", baseline), ("system", system)],
        metrics={"BLEU": BLEU(force=True), "chrF2": CHRF()},
        references=[references],
        test_type="bs",
        n_samples=samples,
    )
    signatures, results = test()
    same = list(system) == list(baseline)
    comparisons = []
    for metric, signature in signatures.items():
        theirs, ours = (cast(Any, result) for result in results[metric])
        comparisons.append(
            Comparison(
                metric=metric,
                system=float(ours.score),
                baseline=float(theirs.score),
                p_value=1.0 if same else float(ours.p_value),
                system_mean=float(ours.mean),
                system_interval=float(ours.ci),
                baseline_mean=float(theirs.mean),
                baseline_interval=float(theirs.ci),
                samples=samples,
                signature=str(signature),
            )
        )
    return comparisons


def _corpus_score(metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    return Score(metric.corpus_score(hypotheses, [references]).score, str(metric.get_signature()))
