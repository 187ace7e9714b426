"""The task captioning: it extracts features of images once, trains with fairseq, and scores captions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rskip import captioning
from rskip.records import Record
from rskip.tasks import Column, Task, Work
from rskip.tasks.fairseq.recipe import VALID_LOSS, architecture_changes, dataset

if TYPE_CHECKING:
    from rskip.captioning.recipe import CaptioningSettings


def _work() -> Work[CaptioningSettings]:
    from rskip.captioning import scoring, training
    from rskip.captioning.recipe import CaptioningSettings

    return Work(
        settings=CaptioningSettings,
        train=training.train,
        score=scoring.score,
        scored_file=training.scored_file,
        check=training.check,
        commands=training.commands,
        sample_outputs=scoring.sample_outputs,
        artifacts=scoring.artifacts,
        choose=choose,
        architecture_changes=architecture_changes,
        export_weights=scoring.export_weights,
        describe=scoring.describe,
    )


def choose(records: Sequence[Record]) -> Record:
    """The run with the highest validation CIDEr, or without it with the lowest validation loss."""
    return max(records, key=lambda each: each.metrics.get("valid_cider", -each.metrics.get("valid_loss", 0.0)))


TASK = Task(
    name="captioning",
    columns=(
        Column("cider", "CIDEr"),
        Column("bleu4", "BLEU-4"),
        Column("rouge_l", "ROUGE-L"),
        Column("meteor", "METEOR"),
        Column("spice", "SPICE"),
        *(Column(f"bleu{size}", f"BLEU-{size}", shown=False) for size in (1, 2, 3)),
    ),
    load=lambda folder, **options: captioning.Captioner.from_pretrained(folder, **options),
    work=_work,
    dataset=dataset,
    ranked_by=VALID_LOSS,
    precisions=("float32", "bfloat16", "int8"),
    example="""\
import rskip

captioner = rskip.load("{name}")
captioner("photo.jpg")""".format,
    use="""\
For photographs like those of {dataset}, as a baseline in studies of residual connections, and to try rskip.
Not for describing images to people who can't see them, nor for statements about the people in them: it guesses.""",
)
