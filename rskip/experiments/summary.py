"""What a run prints when it is done."""

from __future__ import annotations

from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record
from rskip.experiments.results_table import COLUMNS
from rskip.experiments.translations import Translations


def summarise(record: Record, recipe: Recipe) -> str:
    """The record's figures beside the expected and published ones, the time, where the record lies. Several lines."""
    lines = [f"\n{record.run}, seed {record.seed}"]
    for column in COLUMNS:
        if column.metric not in record.metrics:
            continue
        line = f"  {column.heading:<18}{record.metrics[column.metric]:7.2f}"
        if column.metric in recipe.expected.metrics:
            line += f"   (the recipe expects {recipe.expected.metrics[column.metric]:g})"
        lines.append(line)
    lines += [f"  {'the paper':<18}{each.bleu:7.2f}   ({each.table}; not a result of ours)" for each in recipe.paper]
    line = f"  {'training':<18}{record.training['seconds'] / 60:7.1f} minutes"
    if recipe.expected.minutes is not None:
        on = f" on {recipe.expected.machine}" if recipe.expected.machine else ""
        line += f"   (the recipe expects {recipe.expected.minutes:g}{on})"
    return "\n".join([*lines, line, f"  {'record':<18}{record.path}"])


def show_translations(translated: Translations, count: int) -> str:
    """The first `count` sentences with their reference and the model's translation. Several lines."""
    lines = []
    triples = zip(translated.sources, translated.references, translated.hypotheses, strict=True)
    for source, reference, hypothesis in list(triples)[:count]:
        lines += ["", f"  source     {source}", f"  reference  {reference}", f"  model      {hypothesis}"]
    return "\n".join(lines)


def next_steps(record: Record) -> str:
    """Where to look next. Several lines."""
    folder = f"runs/{record.run}/{record.seed}"
    places = {
        f"{folder}/train.log": "what the training printed",
        f"{folder}/averaged.pt": "the averaged model, for fairseq-generate and fairseq-interactive",
        str(record.path): "settings, learning curve, figures and versions",
        "recipes/": "other recipes; --set train.lr=0.003 changes a setting",
        "rskip report": "the tables of all records",
    }
    width = max(map(len, places))
    return "\n".join(
        ["", "where to look next", *(f"  {place:<{width}}  {what}" for place, what in places.items())]
    )
