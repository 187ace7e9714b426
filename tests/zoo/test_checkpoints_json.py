"""The committed checkpoints.json: what it says of each model is what the model's files, records and recipe say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.connections import parse_connection
from rskip.experiments.recipe import load_recipe
from rskip.zoo.publishing import run_of
from rskip.zoo.registry import read_registry

MODELS = read_registry(Path(__file__).parents[2] / "checkpoints.json")
SHIPPED = {name: entry for name, entry in MODELS.items() if entry.folder is not None}


@pytest.fixture(autouse=True)
def in_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def test_every_published_folder_is_in_it_once() -> None:
    published = sorted(path.parent.as_posix() for path in Path().glob("checkpoints/**/model.safetensors"))
    assert sorted(str(entry.folder) for entry in SHIPPED.values()) == published


def test_models_are_small_enough_to_ship() -> None:
    assert all(entry.size <= 20_000_000 for entry in SHIPPED.values())
    assert sum(entry.size for entry in SHIPPED.values()) <= 100_000_000


def test_publishing_every_run_again_changes_no_byte(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Entry, card and tables are what the weights and the records of a run say now."""
    for name in ("checkpoints", "study/results/runs", "recipes", "docs"):
        shutil.copytree(name, tmp_path / name)
    for name in ("README.md", "checkpoints.json"):
        shutil.copy(name, tmp_path)
    for card in tmp_path.glob("checkpoints/**/README.md"):
        card.unlink()
    monkeypatch.chdir(tmp_path)
    for entry in SHIPPED.values():
        assert main(["zoo", "publish", run_of(entry)]) == 0, capsys.readouterr().err
    assert read_registry(Path("checkpoints.json")) == MODELS
    for path in [path for path in Path().rglob("*") if path.is_file()]:
        assert path.read_bytes() == (root / path).read_bytes(), path
    assert len(list(Path().glob("checkpoints/**/README.md"))) == len(SHIPPED)


def test_connection_recipe_and_licence() -> None:
    for entry in MODELS.values():
        assert str(parse_connection(entry.connection)) == entry.connection, entry.name
        assert entry.name.startswith(f"{entry.architecture}_{parse_connection(entry.connection).slug}."), entry.name
        recipe = load_recipe(entry.recipe, overrides=[f"{key}={value}" for key, value in entry.overrides.items()])
        assert recipe.run == run_of(entry), entry.name
        assert Path("LICENSE").read_text(encoding="utf-8").startswith(entry.licence), entry.name
