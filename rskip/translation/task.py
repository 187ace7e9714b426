"""The task translation: fairseq trains and translates, and the average of the last checkpoints is scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rskip import translation
from rskip.records import Record
from rskip.tasks import Column, Task, Work
from rskip.tasks.fairseq.recipe import VALID_LOSS, architecture_changes, dataset
from rskip.translation.metric_table import METRICS

if TYPE_CHECKING:
    from rskip.translation.recipe import TranslationSettings

_SENTENCES = {  # for a model's example, by source language
    "en": ["Two dogs are playing in the snow.", "A man sleeps.", "A dog runs."],
    "de": ["Zwei Hunde spielen im Schnee.", "Ein Mann schläft.", "Ein Hund rennt."],
    "fr": ["Deux chiens jouent dans la neige.", "Un homme dort.", "Un chien court."],
}


def _work() -> Work[TranslationSettings]:
    from rskip.translation import publishing, recipe, scoring, training
    from rskip.translation.subject import subject

    return Work(
        settings=recipe.TranslationSettings,
        config=recipe.variant_config,
        train=training.train,
        score=scoring.score,
        scored_file=training.scored_file,
        check=training.check,
        commands=training.commands,
        sample_outputs=scoring.sample_outputs,
        artifacts=training.artifacts,
        choose=choose,
        check_publishable=publishing.check_publishable,
        architecture_changes=architecture_changes,
        export_weights=publishing.export_weights,
        describe=publishing.describe,
        subject=subject,
    )


def choose(records: Sequence[Record]) -> Record:
    """The run with the lowest validation loss."""
    if len(records) == 1:
        return records[0]
    for record in records:
        if "valid_loss" not in record.metrics:
            problem = f"{record.path} has no validation loss, by which a seed is chosen"
            raise ValueError(f"{problem}: name one, with `rskip zoo publish {record.run} --seed N`")
    return min(records, key=lambda record: record.metrics["valid_loss"])


def _example(name: str) -> str:
    first, *others = _SENTENCES.get("".join(name.split(".")[2:3]).partition("-")[0], ["SENTENCE"] * 3)
    return f'''\
import rskip

translator = rskip.load("{name}")
translator("{first}")
translator.translate(["{others[0]}", "{others[1]}"], beam=5, nbest=3)'''


TASK = Task(
    name="translation",
    columns=tuple(
        Column(each.name, each.heading)
        for each in sorted(METRICS, key=lambda each: each.signature is None)  # simple counts come last
        if each.heading is not None
    ),
    load=lambda folder, **options: translation.Translator.from_pretrained(folder, **options),
    work=_work,
    dataset=dataset,
    ranked_by=VALID_LOSS,
    measures={"bleu": "BLEU"},
    probed=True,
    precisions=("float32", "bfloat16", "int8"),
    example=_example,
    use="""\
For sentences like those of {dataset}, as a baseline in studies of residual connections, and to try rskip.
Not for other text, which it usually translates wrongly, and not where a wrong translation does harm.""",
)
