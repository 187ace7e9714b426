"""A finished translation run as a record."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from rskip.experiments.data_folder import describe_data
from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.train_log import read_train_log
from rskip.experiments.translation_settings import TranslationSettings
from rskip.files.checksum import sha256_file
from rskip.translation.scoring import Score

_DECIMALS = 4


def translation_record(
    recipe: Recipe[TranslationSettings], *, seed: int, folder: RunFolder, data: Path, scores: dict[str, Score]
) -> Record:
    """The record of a run whose averaged checkpoint has been scored.

    Metrics: `scores`, and `valid_loss`, `valid_nll_loss` (bits a token) and `valid_ppl` of the last
    epoch, before averaging.
    """
    with folder.train_log.open(encoding="utf-8", errors="replace") as lines:
        log = read_train_log(lines)
    if not log.curve or not log.starts or log.parameters is None:
        raise ValueError(
            f"{folder.train_log} doesn't tell of a training: move {folder.path} away and run again"
        )
    last = log.curve[-1]
    figures = {
        **{name: each.value for name, each in scores.items()},
        "valid_loss": last.valid_loss,
        "valid_nll_loss": last.valid_nll_loss,
        "valid_ppl": last.valid_ppl,
    }
    environment = log.starts[-1]
    return Record(
        recipe=recipe.name,
        run=recipe.run_name,
        kind=recipe.kind,
        seed=seed,
        config=recipe.config,
        overrides=dict(recipe.overrides),
        metrics={name: round(value, _DECIMALS) for name, value in figures.items() if value is not None},
        signatures={name: each.signature for name, each in scores.items() if each.signature is not None},
        curve=[epoch.as_dict() for epoch in log.curve],
        training={
            "seconds": log.seconds,
            "pieces": len(log.starts),
            "precision": environment.get("precision"),
            "epochs": last.epoch,
            "updates": last.update,
            "target_tokens_per_second": log.target_tokens_per_second,
        },
        parameters=log.parameters,
        checkpoint_sha256=sha256_file(folder.averaged),
        data=describe_data(data),
        git=environment["git"],
        packages=environment["packages"],
        machine=environment["machine"],
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
