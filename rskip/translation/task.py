"""Defines the task translation: fairseq trains and translates, and the average of the last checkpoints is scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rskip.records import Record
from rskip.tasks.fairseq.recipe import VALID_LOSS, architecture_changes, dataset
from rskip.tasks.task import Column, Task, imported
from rskip.translation.metric_table import METRICS

_SENTENCES = {  # for a model's example, by source language
    "en": ["Two dogs are playing in the snow.", "A man sleeps.", "A dog runs."],
    "de": ["Zwei Hunde spielen im Schnee.", "Ein Mann schläft.", "Ein Hund rennt."],
    "fr": ["Deux chiens jouent dans la neige.", "Un homme dort.", "Un chien court."],
}


class TranslationTask(Task[Any]):
    """Translates text with a Transformer."""

    name = "translation"
    programs = ("fairseq-train", "fairseq-generate")
    probed = True
    columns = tuple(
        Column(each.name, each.heading)
        for each in sorted(METRICS, key=lambda each: each.signature is None)  # simple counts come last
        if each.heading is not None
    )
    ranked_by = VALID_LOSS
    measures = {"bleu": "BLEU"}
    precisions = ("float32", "bfloat16", "int8")
    published_dtype = "float16"
    example = """\
import rskip

translator = rskip.load("{name}")
translator("{sentences[0]}")
translator.translate(["{sentences[1]}", "{sentences[2]}"], beam=5, nbest=3)"""

    settings = imported("rskip.translation.recipe:TranslationSettings")
    variant_config = imported("rskip.translation.recipe")
    dataset = staticmethod(dataset)
    architecture_changes = staticmethod(architecture_changes)
    check = imported("rskip.translation.batches")
    fairseq_flags = imported("rskip.translation.training")
    train = imported("rskip.translation.training")
    scored_file = imported("rskip.translation.training")
    artifacts = imported("rskip.translation.training")
    score = imported("rskip.translation.scoring")
    diverged = imported("rskip.translation.scoring")
    sample_outputs = imported("rskip.translation.scoring")
    commands = imported("rskip.translation.training")
    check_exportable = imported("rskip.translation.publishing")
    check_publishable = imported("rskip.translation.publishing")
    export_weights = imported("rskip.translation.publishing")
    describe = imported("rskip.translation.publishing")
    load = imported("rskip.translation.translator:load_published")
    subject = imported("rskip.translation.subject")

    def example_of(self, name: str) -> str:
        sources = [part.partition("-")[0] for part in name.split(".")[2:3]]
        return self.example.format(name=name, sentences=_SENTENCES.get("".join(sources), ["SENTENCE"] * 3))

    def implied_figures(self, record: Record) -> dict[str, float | None]:
        last = record.curve[-1] if record.curve else {}
        return {name: last.get(name) for name in ("valid_loss", "valid_nll_loss", "valid_ppl")}

    def choose(self, records: Sequence[Record]) -> Record:
        """The run with the lowest validation loss."""
        if len(records) == 1:
            return records[0]
        for record in records:
            if "valid_loss" not in record.metrics:
                problem = f"{record.path} has no validation loss, by which a seed is chosen"
                raise ValueError(f"{problem}: name one, with `rskip zoo publish {record.run} --seed N`")
        return min(records, key=lambda record: record.metrics["valid_loss"])
