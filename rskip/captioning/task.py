"""Image captioning: captions are prepared, features extracted once, fairseq trains, and captions of a split scored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.records import Record
from rskip.tasks.fairseq.flags import FairseqFlags
from rskip.tasks.fairseq.task import TransformerTask
from rskip.tasks.task import Column, ModelDescription, Outcome

if TYPE_CHECKING:
    import torch

    from rskip.captioning.captioner import Captioner
    from rskip.captioning.recipe import CaptioningSettings
    from rskip.tasks.run import Run


class CaptioningTask(TransformerTask["CaptioningSettings"]):
    """Pictures to sentences, by a Transformer over features of the pictures."""

    name = "image-captioning"
    kind = "captioning"
    programs = ("fairseq-train",)
    columns = (
        Column("cider", "CIDEr"),
        Column("bleu4", "BLEU-4"),
        Column("rouge_l", "ROUGE-L"),
        Column("meteor", "METEOR"),
        Column("spice", "SPICE"),
    )
    more_figures = (Column("bleu1", "BLEU-1"), Column("bleu2", "BLEU-2"), Column("bleu3", "BLEU-3"))
    measures = {column.metric: column.heading for column in (*columns, *more_figures)}
    precisions = ("float32", "bfloat16", "int8")
    model_files = ("config.json", "dict.txt")
    published_dtype = "float16"
    example = """\
import rskip

captioner = rskip.load("{name}")
captioner("picture.jpg")"""

    @property
    def settings(self) -> type[CaptioningSettings]:
        from rskip.captioning.recipe import CaptioningSettings

        return CaptioningSettings

    def config(self, settings: CaptioningSettings) -> dict[str, Any]:
        return settings.to_plain()

    def check(self, settings: CaptioningSettings, *, gpus: int) -> None:
        from rskip.captioning.training import check_gpus

        check_gpus(settings, gpus=gpus)

    def fairseq_flags(self, settings: CaptioningSettings) -> list[FairseqFlags]:
        before = ["data", "--user-dir", "rskip", "--task", "captioning", "--features", "constant"]
        return [
            FairseqFlags(section=stage, program="fairseq-train", before=before, flags=flags)
            for stage, flags in settings.stages().items()
        ]

    def train(self, run: Run[CaptioningSettings]) -> None:
        from rskip.captioning.data import ensure_data, ensure_features
        from rskip.captioning.training import train

        ensure_data(run)
        ensure_features(run)
        print(f"{run.name}, seed {run.seed}", flush=True)
        train(run)

    def score(self, run: Run[CaptioningSettings]) -> Outcome:
        from rskip.captioning.scoring import score

        return score(run)

    def diverged(self, run: Run[CaptioningSettings]) -> Outcome:
        from rskip.captioning.scoring import outcome

        return outcome(run, None)

    def scored_file(self, run: Run[CaptioningSettings]) -> Path:
        from rskip.captioning.training import checkpoint

        return checkpoint(run)

    def commands(self, run: Run[CaptioningSettings]) -> list[list[str]]:
        """Prepare, extract, initialise where it is to be, train; captions are scored within the run."""
        from rskip.captioning.data import prepare_commands
        from rskip.captioning.training import initialise_commands, train_command
        from rskip.tasks.run import precision_here
        from rskip.translation.training import recipe_precision

        precision = precision_here(recipe_precision(run.settings.train), gpus=run.gpus)
        stages = [train_command(run, stage=stage, precision=precision) for stage in run.settings.stages()]
        return [*prepare_commands(run), *initialise_commands(run), *stages]

    def sample_outputs(self, run: Run[CaptioningSettings], count: int) -> str:
        from rskip.captioning.scoring import first_captions

        return first_captions(run, count)

    def artifacts(self, run: Run[CaptioningSettings]) -> dict[str, str]:
        from rskip.captioning.scoring import captions_file

        return {
            str(run.folder.train_log): "what the training printed",
            str(captions_file(run)): "a caption of each picture",
            str(self.scored_file(run)): "the model that is scored",
        }

    def implied_figures(self, record: Record) -> dict[str, float | None]:
        return {"valid_loss": record.curve[-1].get("valid_loss") if record.curve else None}

    def choose(self, records: Sequence[Record]) -> Record:
        """The one with the highest CIDEr on the validation pictures; without that figure the lowest loss there."""
        return max(records, key=lambda each: each.metrics.get("valid_cider", -each.metrics.get("valid_loss", 0.0)))

    def export_weights(self, run: Run[CaptioningSettings], record: Record, folder: Path) -> dict[str, Any]:
        """The parameters in float16, the configuration and the words; scored again in float16."""
        from rskip.captioning.publishing import export_weights

        return export_weights(run, record, folder)

    def describe(self, folder: Path, record: Record) -> ModelDescription:
        from rskip.captioning.publishing import describe

        return describe(folder, record)

    def load(self, folder: Path, *, precision: str, device: torch.device) -> Captioner:
        from rskip.captioning.captioner import Captioner

        return Captioner.from_pretrained(folder, precision=precision, device=device)
