"""Lists the metrics of translations, with their names in tables, in `rskip evaluate` and in run records."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """A metric that `rskip.translation.metrics.score` computes.

    name: its name in run records and in the output of `rskip evaluate --json`.
    heading: its heading in tables of runs; None: it has no column.
    label: its label in the output of `rskip evaluate`.
    signature: the name of its signature in the output of `rskip evaluate --json`; None: it has no signature.
    tokens: what it is computed on, if it is not comparable with sacreBLEU.
    """

    name: str
    heading: str | None
    label: str
    signature: str | None
    tokens: str | None = None


_OWN = "on this corpus' own tokens, subwords joined"
_GERMAN = "German tokens, hyphenated compounds split"

# in printed order; those with equal `tokens` are neighbours
METRICS = (
    Metric("sacrebleu", "sacreBLEU", "sacreBLEU", "signature"),
    Metric("chrf", "chrF", "chrF2", "chrf_signature"),
    Metric("accuracy", "exactly right, %", "exact matches", None),
    Metric("tokenised_bleu", "tokenised BLEU", "tokenised BLEU", "tokenised_signature", _OWN),
    Metric("compound_split_bleu", "compound BLEU", "compound BLEU", "compound_split_signature", _GERMAN),
    Metric("compound_split_own_bleu", None, "  on own tokens", "compound_split_own_signature", _GERMAN),
)
