"""The task language_modeling: it trains a language model and evaluates its last iterate, never the best one."""

from __future__ import annotations

from rskip import language_modeling
from rskip.language_modeling.settings import LanguageModelingSettings
from rskip.tasks import Column, Task, Work


def _work() -> Work[LanguageModelingSettings]:
    from rskip.language_modeling import run
    from rskip.language_modeling.subject import subject
    from rskip.tasks.looped import scored_file

    return Work(
        settings=LanguageModelingSettings,
        required=["train.connection"],
        train=run.train,
        score=run.score,
        scored_file=scored_file,
        commands=run.commands,
        sample_outputs=run.sample_outputs,
        artifacts=run.artifacts,
        check_publishable=run.check_publishable,
        export_weights=run.export_weights,
        describe=run.describe,
        subject=subject,
    )


TASK = Task(
    name="language_modeling",
    columns=(
        Column("loss", "loss, nats per token"),
        Column("bits_per_character", "bits per character"),
        Column("perplexity", "perplexity", shown=False),
    ),
    load=lambda folder, **options: language_modeling.TextGenerator.from_pretrained(folder, **options),
    work=_work,
    dataset=lambda config: str(config["data"]),
    probed=True,
    precisions=("float32", "bfloat16"),
    reads_checkpoints=True,
    example="""\
import rskip

model = rskip.load("{name}")
print(model.generate("ROMEO:", length=200, seed=1))
model.score("To be, or not to be").bits_per_character""".format,
    use="""\
For text like {dataset}, to compare residual connections, and to try rskip.
Not for facts, answers or other text: it continues a text in the style of the one that it was trained on.""",
)
