"""Defines the task language_modeling: it trains a language model and evaluates its last iterate, never the best one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rskip.records import Record
from rskip.tasks.task import Column, Task, imported


class LanguageModelingTask(Task[Any]):
    """Predicts the next token with a decoder-only Transformer in GPT-2's or Llama's shape."""

    name = "language_modeling"
    probed = True
    columns = (Column("loss", "loss, nats per token"), Column("bits_per_character", "bits per character"))
    more_figures = (Column("perplexity", "perplexity"),)
    measures = {"loss": "loss, nats per token", "perplexity": "perplexity"}
    precisions = ("float32", "bfloat16")
    reads_checkpoints = True
    example = """\
import rskip

model = rskip.load("{name}")
print(model.generate("ROMEO:", length=200, seed=1))
model.score("To be, or not to be").bits_per_character"""

    settings = imported("rskip.language_modeling.settings:LanguageModelingSettings")
    read_settings = imported("rskip.language_modeling.settings")
    check = imported("rskip.language_modeling.settings:check_gpus")
    train = imported("rskip.language_modeling.run")
    scored_file = imported("rskip.language_modeling.run")
    commands = imported("rskip.language_modeling.run")
    score = imported("rskip.language_modeling.run")
    diverged = imported("rskip.language_modeling.run")
    sample_outputs = imported("rskip.language_modeling.run")
    artifacts = imported("rskip.language_modeling.run")
    check_publishable = imported("rskip.language_modeling.publishing")
    export_weights = imported("rskip.language_modeling.publishing")
    describe = imported("rskip.language_modeling.publishing")
    load = imported("rskip.language_modeling.generator:load_published")
    subject = imported("rskip.language_modeling.subject")

    def dataset(self, config: Mapping[str, Any]) -> str:
        return str(config["data"])

    def implied_figures(self, record: Record) -> dict[str, float | None]:
        """The loss in the curve's last line, if the training computed in float32 like scoring."""
        exact = record.training.get("precision", "float32") == "float32"
        return {"loss": record.curve[-1].get("valid_loss") if record.curve and exact else None}
