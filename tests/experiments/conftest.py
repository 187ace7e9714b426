"""A record to vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rskip.experiments.record import Record


@pytest.fixture
def make_record() -> Callable[..., Record]:
    """`make_record(seed=2, metrics={...})`: a record like any other but for what is given."""

    def make(**changes: Any) -> Record:
        content: dict[str, Any] = {
            "recipe": "numbers",
            "run": changes.get("recipe", "numbers"),
            "kind": "translation",
            "seed": 1,
            "config": {"kind": "translation", "corpus": "numbers-en-de", "train": {"lr": 0.005}},
            "overrides": {},
            "metrics": {"sacrebleu": 38.0, "chrf": 60.0},
            "signatures": {"sacrebleu": "nrefs:1|tok:13a"},
            "curve": [{"epoch": 1, "valid_loss": 4.0}],
            "training": {"seconds": 600.0, "pieces": 1},
            "parameters": 1037568,
            "checkpoint_sha256": "0" * 64,
            "data": {},
            "packages": {"torch": "2.0"},
            "machine": {"cpu": "Zuse Z4", "cores": 2, "threads": 2, "gpu": None},
            "date": "2026-01-01T00:00:00+00:00",
        }
        return Record(**{**content, **changes})

    return make
