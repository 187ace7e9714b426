"""Translation: a corpus is prepared, fairseq trains and translates, the average of the last checkpoints is scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.records import Record
from rskip.tasks.fairseq.flags import FairseqFlags
from rskip.tasks.fairseq.task import TransformerTask
from rskip.tasks.task import Column, ModelDescription, Outcome

if TYPE_CHECKING:
    import torch

    from rskip.connections import ConnectionSpec
    from rskip.tasks.run import Run
    from rskip.tasks.subject import Conditions, Subject
    from rskip.translation import Translator
    from rskip.translation.recipe import TranslationSettings


class TranslationTask(TransformerTask["TranslationSettings"]):
    """Text in one language to text in another, by a Transformer."""

    name = kind = "translation"
    programs = ("fairseq-train", "fairseq-generate")
    probed = True
    columns = (
        Column("sacrebleu", "sacreBLEU"),
        Column("chrf", "chrF"),
        Column("tokenised_bleu", "tokenised BLEU"),
        Column("compound_split_bleu", "compound BLEU"),
        Column("accuracy", "exactly right, %"),
    )
    measures = {"bleu": "BLEU"}
    precisions = ("float32", "bfloat16", "int8")
    model_files = ("text/pipeline.json", "dict.*.txt")
    published_dtype = "float16"
    example = """\
import rskip

translator = rskip.load("{name}")
translator("Two dogs are playing in the snow.")
translator.translate(["A man sleeps.", "A dog runs."], beam=5, nbest=3)"""

    @property
    def settings(self) -> type[TranslationSettings]:
        from rskip.translation.recipe import TranslationSettings

        return TranslationSettings

    def config(self, settings: TranslationSettings) -> dict[str, Any]:
        return settings.to_plain()

    def row_config(self, written: Mapping[str, Any]) -> dict[str, Any]:
        from rskip.translation.recipe import CODE_FLAGS

        train = written.get("train")
        if not isinstance(train, Mapping):
            return super().row_config(written)
        code = {name: value for name, value in train.items() if name in CODE_FLAGS}
        config = super().row_config({**written, "train": {k: v for k, v in train.items() if k not in code}})
        return {**config, "train": {**config["train"], **code}}

    def check(self, settings: TranslationSettings, *, gpus: int) -> None:
        from rskip.translation.training import plan_batches

        plan_batches(settings.train, gpus=gpus)

    def fairseq_flags(self, settings: TranslationSettings) -> list[FairseqFlags]:
        from rskip.translation.data import data_arguments
        from rskip.translation.recipe import TOKENS_PER_UPDATE

        data, ours = data_arguments(settings), (TOKENS_PER_UPDATE, "user-dir")
        train = {name: value for name, value in settings.train.items() if name not in ours}
        return [
            FairseqFlags(section="train", program="fairseq-train", before=data, flags=train),
            FairseqFlags(
                section="generate", program="fairseq-generate", before=[*data, "--path", "x"], flags=settings.generate
            ),
        ]

    def train(self, run: Run[TranslationSettings]) -> None:
        from rskip.translation.data import ensure_data
        from rskip.translation.training import average, train

        ensure_data(run.settings, mirror=run.mirror)
        print(f"{run.name}, seed {run.seed}", flush=True)
        train(run)
        average(run)

    def score(self, run: Run[TranslationSettings]) -> Outcome:
        from rskip.translation.scoring import score

        return score(run)

    def diverged(self, run: Run[TranslationSettings]) -> Outcome:
        from rskip.translation.scoring import outcome

        return outcome(run, {})

    def scored_file(self, run: Run[TranslationSettings]) -> Path:
        from rskip.translation.training import averaged

        return averaged(run)

    def commands(self, run: Run[TranslationSettings]) -> list[list[str]]:
        """Prepare, initialise where it is to be, train, average, translate."""
        from rskip.tasks.run import precision_here
        from rskip.translation.data import prepare_command
        from rskip.translation.scoring import generate_command
        from rskip.translation.training import (
            average_command,
            averaged,
            initialise_commands,
            recipe_precision,
            train_command,
        )

        precision = precision_here(recipe_precision(run.settings.train), gpus=run.gpus)
        return [
            prepare_command(run),
            *initialise_commands(run),
            train_command(run, precision=precision),
            average_command(run),
            generate_command(run, checkpoint=averaged(run)),
        ]

    def sample_outputs(self, run: Run[TranslationSettings], count: int) -> str:
        from rskip.translation.scoring import first_translations

        return first_translations(run, count)

    def artifacts(self, run: Run[TranslationSettings]) -> dict[str, str]:
        return {
            str(run.folder.train_log): "what the training printed",
            str(self.scored_file(run)): "the averaged model, for fairseq-generate and fairseq-interactive",
        }

    def implied_figures(self, record: Record) -> dict[str, float | None]:
        last = record.curve[-1] if record.curve else {}
        return {name: last.get(name) for name in ("valid_loss", "valid_nll_loss", "valid_ppl")}

    def choose(self, records: Sequence[Record]) -> Record:
        """The one with the lowest loss on the validation set."""
        return min(records, key=lambda record: record.metrics["valid_loss"])

    def export_weights(self, run: Run[TranslationSettings], record: Record, folder: Path) -> dict[str, Any]:
        """The averaged parameters in float16, the text pipeline and the dictionaries; scored again in float16."""
        from rskip.translation.publishing import export_weights

        return export_weights(run, record, folder)

    def describe(self, folder: Path, record: Record) -> ModelDescription:
        from rskip.translation.publishing import describe

        return describe(folder, record)

    def load(self, folder: Path, *, precision: str, device: torch.device) -> Translator:
        from rskip.translation import Translator

        return Translator.from_pretrained(folder / "model.safetensors", precision=precision, device=device)

    def subject(self, model: ConnectionSpec | Path, *, depth: int | None, conditions: Conditions) -> Subject:
        """A Transformer on the sentence pairs of a prepared corpus; at initialisation of the size `tiny`."""
        from rskip.translation.subject import subject

        return subject(model, depth=depth, conditions=conditions)
