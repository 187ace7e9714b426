"""The weights of a run, made small enough to be committed, and shown to be as good as the run's own."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path

import torch

from rskip.checkpoint import read_checkpoint, write_checkpoint
from rskip.checksum import sha256_file
from rskip.experiments.data_folder import data_folder
from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record, read_record, record_path
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.translation_run import translate
from rskip.experiments.translations import read_translations

MAX_BYTES = 20_000_000
MAX_LOSS = 0.05  # sacreBLEU that float16 may cost


def publish(recipe: Recipe, *, seed: int) -> Record:
    """Writes `checkpoints/<run>/` from a run that has its record, and returns the record with `published`
    filled in.

    The folder holds model.safetensors (the averaged parameters in float16), text/ (the pipeline),
    dict.<language>.txt and record.json. Raises FileNotFoundError where the run's files are gone; ValueError
    where the file is over 20 MB or the float16 model scores more than 0.05 sacreBLEU away from the run.
    """
    path = record_path(recipe.run_name, seed)
    record = read_record(path)
    folder = RunFolder(Path("runs", recipe.run_name, str(seed)))
    data = data_folder(recipe.settings)
    if not folder.averaged.is_file():
        raise FileNotFoundError(
            f"{folder.averaged} is gone: remove {path} and run the recipe again to publish it"
        )
    if sha256_file(folder.averaged) != record.checkpoint_sha256:
        raise ValueError(f"{folder.averaged} is not the file that {path} tells of: run the recipe again")
    target = Path("checkpoints", recipe.run_name)
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
        building = Path(temporary, target.name)
        weights = building / "model.safetensors"
        building.mkdir()
        write_checkpoint(weights, read_checkpoint(folder.averaged), dtype=torch.float16)
        if (size := weights.stat().st_size) > MAX_BYTES:
            raise ValueError(
                f"{recipe.run_name} takes {size / 1e6:.1f} MB in float16: "
                f"models of up to {MAX_BYTES / 1e6:.0f} MB are published in checkpoints/"
            )
        scores = _score_published(recipe, weights=weights, data=data, log=folder.path / "publish.log")
        if abs(scores["sacrebleu"] - record.metrics["sacrebleu"]) > MAX_LOSS:
            raise ValueError(
                f"{recipe.run_name} has {scores['sacrebleu']:.2f} sacreBLEU in float16, "
                f"{record.metrics['sacrebleu']:.2f} in float32: expected at most {MAX_LOSS} between them"
            )
        record = dataclasses.replace(
            record,
            published={
                "file": "model.safetensors",
                "dtype": "float16",
                "bytes": size,
                "sha256": sha256_file(weights),
                "metrics": scores,
            },
        )
        shutil.copytree(data / "text", building / "text")
        for dictionary in data.glob("dict.*.txt"):
            shutil.copyfile(dictionary, building / dictionary.name)
        record.write(building / "record.json")
        if target.exists():
            target.rename(Path(temporary, "before"))
        building.rename(target)
    record.write(path)
    return record


def _score_published(recipe: Recipe, *, weights: Path, data: Path, log: Path) -> dict[str, float]:
    """Metrics of the published weights: read back, given to fairseq-generate, scored."""
    with tempfile.TemporaryDirectory() as temporary:
        checkpoint, output = Path(temporary, "published.pt"), Path(temporary, "generated.txt")
        write_checkpoint(checkpoint, read_checkpoint(weights), dtype=torch.float32)
        translate(recipe.settings, checkpoint=checkpoint, data=data, output=output, log=log)
        scores = read_translations(output, data=data, split=recipe.settings.evaluate.split).score()
    return {name: round(getattr(scores, name), 4) for name in ("sacrebleu", "chrf", "accuracy")}
