"""Recipes of kind translation: prepare, train, average, translate, score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rskip.experiments.commands import average_command, generate_command, prepare_command, train_command
from rskip.experiments.data_folder import data_folder, ensure_data
from rskip.experiments.kind import Kind
from rskip.experiments.publish import fill
from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.tokens_per_update import plan_batches
from rskip.experiments.training_precision import choose_precision
from rskip.experiments.translation_record import translation_record
from rskip.experiments.translation_run import average, generate, train
from rskip.experiments.translation_settings import TranslationSettings
from rskip.experiments.translations import Translations, read_translations


class TranslationKind(Kind[TranslationSettings]):
    """A corpus is prepared, fairseq trains and translates, the average of the last checkpoints is scored."""

    programs = ("fairseq-train", "fairseq-generate")

    def check(self, recipe: Recipe[TranslationSettings], *, gpus: int) -> None:
        plan_batches(recipe.settings.train, gpus=gpus)

    def train_and_score(
        self,
        recipe: Recipe[TranslationSettings],
        *,
        seed: int,
        folder: RunFolder,
        mirror: str | None,
        gpus: int,
        lock: int,
    ) -> Record:
        settings = recipe.settings
        data = ensure_data(settings, mirror=mirror)
        print(f"{recipe.run_name}, seed {seed}", flush=True)
        train(settings, seed=seed, folder=folder, data=data, gpus=gpus, lock=lock)
        average(settings, folder=folder)
        generated = generate(settings, folder=folder, data=data, gpus=gpus)
        translations = read_translations(generated, data=data, split=settings.evaluate.split)
        return translation_record(recipe, seed=seed, folder=folder, data=data, scores=translations.score())

    def commands(
        self, recipe: Recipe[TranslationSettings], *, seeds: Sequence[int], mirror: str | None, gpus: int
    ) -> list[list[str]]:
        settings = recipe.settings
        data, precision = data_folder(settings), choose_precision(settings.train, gpus=gpus)
        commands = [prepare_command(settings, data=data, mirror=mirror)]
        for seed in seeds:
            folder = RunFolder.of(recipe.run_name, seed)
            commands += [
                train_command(
                    settings, data=data, checkpoints=folder.checkpoints, seed=seed, gpus=gpus, precision=precision
                ),
                average_command(settings, checkpoints=folder.checkpoints, output=folder.averaged),
                generate_command(settings, data=data, checkpoint=folder.averaged, gpu=gpus > 0),
            ]
        return commands

    def examples(self, recipe: Recipe[TranslationSettings], *, folder: RunFolder) -> str:
        """The first sentences of the evaluated split with their translations. Several lines."""
        data, split = data_folder(recipe.settings), recipe.settings.evaluate.split
        if not (folder.generated(split).exists() and data.exists()):
            return ""
        return _show(read_translations(folder.generated(split), data=data, split=split), recipe.show)

    def places(self, record: Record) -> dict[str, str]:
        folder = RunFolder.of(record.run, record.seed)
        return {
            str(folder.train_log): "what the training printed",
            str(folder.averaged): "the averaged model, for fairseq-generate and fairseq-interactive",
        }

    def to_publish(self, records: Sequence[Record]) -> Record:
        """The one with the lowest loss on the validation set."""
        return min(records, key=lambda record: record.metrics["valid_loss"])

    def fill(self, folder: Path, recipe: Recipe[TranslationSettings], *, seed: int, mirror: str | None) -> Record:
        return fill(folder, recipe, seed=seed, mirror=mirror)


def _show(translated: Translations, count: int) -> str:
    lines = []
    triples = zip(translated.sources, translated.references, translated.hypotheses, strict=True)
    for source, reference, hypothesis in list(triples)[:count]:
        lines += ["", f"  source     {source}", f"  reference  {reference}", f"  model      {hypothesis}"]
    return "\n".join(lines)
