"""The task captioning: prepares captions, extracts features once, trains with fairseq, and scores captions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rskip.records import Record
from rskip.tasks.fairseq.recipe import VALID_LOSS, architecture_changes, dataset
from rskip.tasks.task import Column, Task, imported


class CaptioningTask(Task[Any]):
    """Converts images to sentences with a Transformer over image features."""

    name = "captioning"
    programs = ("fairseq-train",)
    columns = (
        Column("cider", "CIDEr"),
        Column("bleu4", "BLEU-4"),
        Column("rouge_l", "ROUGE-L"),
        Column("meteor", "METEOR"),
        Column("spice", "SPICE"),
    )
    ranked_by = VALID_LOSS
    more_figures = (Column("bleu1", "BLEU-1"), Column("bleu2", "BLEU-2"), Column("bleu3", "BLEU-3"))
    measures = {column.metric: column.heading for column in (*columns, *more_figures)}
    precisions = ("float32", "bfloat16", "int8")
    published_dtype = "float16"
    example = """\
import rskip

captioner = rskip.load("{name}")
captioner("photo.jpg")"""

    settings = imported("rskip.captioning.recipe:CaptioningSettings")
    dataset = staticmethod(dataset)
    architecture_changes = staticmethod(architecture_changes)
    check = imported("rskip.captioning.training")
    train = imported("rskip.captioning.training")
    scored_file = imported("rskip.captioning.training")
    commands = imported("rskip.captioning.training")
    fairseq_flags = imported("rskip.captioning.training")
    score = imported("rskip.captioning.scoring")
    diverged = imported("rskip.captioning.scoring")
    sample_outputs = imported("rskip.captioning.scoring")
    artifacts = imported("rskip.captioning.scoring")
    export_weights = imported("rskip.captioning.publishing")
    describe = imported("rskip.captioning.publishing")
    load = imported("rskip.captioning.captioner:load_published")

    def implied_figures(self, record: Record) -> dict[str, float | None]:
        return {"valid_loss": record.curve[-1].get("valid_loss") if record.curve else None}

    def choose(self, records: Sequence[Record]) -> Record:
        """The run with the highest validation CIDEr, or without it with the lowest validation loss."""
        return max(records, key=lambda each: each.metrics.get("valid_cider", -each.metrics.get("valid_loss", 0.0)))
