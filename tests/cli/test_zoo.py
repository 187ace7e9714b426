"""`rskip zoo` as a user meets it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.zoo.model_card import model_card
from rskip.zoo.registry import read_registry, write_registry
from study.__main__ import main as study
from tests.cli.conftest import Refused

RUN = "multi30k_en_de/2rskip_ln"
RECORDS = Path("study/results/runs", RUN)
NAME = "transformer_tiny_2rskip_ln.multi30k.en-de"
@pytest.fixture
def project(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the committed run and its model, without the card."""
    for folder in (Path("checkpoints", RUN), RECORDS):
        shutil.copytree(root / folder, tmp_path / folder)
    (tmp_path / "recipes").mkdir()
    shutil.copy(root / "recipes/multi30k_en_de.yaml", tmp_path / "recipes")
    write_registry(tmp_path / "checkpoints.json", {NAME: read_registry(root / "checkpoints.json")[NAME]})
    (tmp_path / "checkpoints" / RUN / "README.md").unlink()
    (tmp_path / "README.md").write_text("<!-- rskip zoo: begin models -->\n<!-- rskip zoo: end models -->\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def two_seeds(project: Path) -> Path:
    """The project with seeds 1 and 2 only, however many are committed."""
    for path in RECORDS.glob("*.json"):
        if path.name not in ("1.json", "2.json"):
            path.unlink()
    return project


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "list", "multi30k", "--task", "translation"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(name for name in read_registry() if "multi30k" in name)
    run = read_registry()[NAME].figures[1]  # which further seeds change
    said = f"{NAME} 5.5 MB sacreBLEU {run.value:.2f} ± {run.spread:.2f} ({len(run.seeds)} seeds)"
    assert said in [" ".join(line.split()) for line in lines]  # columns are as wide as the longest name
    assert main(["zoo", "list", "*.en-de", "--connection", "2RSKIP+LN", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[NAME] == json.loads(json.dumps(read_registry()[NAME].to_json()))


def test_what_is_not_there_is_one_line(refused: Refused) -> None:
    refused(f"did you mean {NAME}", "zoo", "describe", NAME.replace("en-de", "en-ed"))
    refused("models matches: `rskip zoo list` lists all", "zoo", "list", "coco")
    refused("task is 'images': expected translation or vision", "zoo", "list", "--task", "images")
    refused("connection is 'rskp': expected a connection from docs", "zoo", "list", "--connection", "rskp")


def test_report_brings_entry_card_and_table_up_to_date_with_the_records(
    two_seeds: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["zoo", "publish", RUN]) == study([]) == study(["--check"]) == 0
    assert read_registry(two_seeds / "checkpoints.json")[NAME].figures[1].seeds == (1, 2)
    Path(RECORDS, "2.json").unlink()
    capsys.readouterr()
    assert study(["--check"]) == 1
    assert f"{NAME} in checkpoints.json; run `make study`\n" in capsys.readouterr().err
    assert study([]) == study(["--check"]) == 0
    made = read_registry(two_seeds / "checkpoints.json")[NAME]
    assert made.figures[1].seeds == (1,)
    assert (two_seeds / "checkpoints" / RUN / "README.md").read_text(encoding="utf-8") == model_card(made)
    assert "one seed (1)" in (two_seeds / "README.md").read_text()
    before, dictionary = (two_seeds / "checkpoints.json").read_bytes(), Path("checkpoints", RUN, "dict.de.txt")
    dictionary.unlink()
    capsys.readouterr()
    assert study([]) == 2
    restore = f"{dictionary} differs from checkpoints.json: restore it, or publish the run again, `rskip zoo"
    assert capsys.readouterr().err.startswith(f"study: error: {restore}")
    assert (two_seeds / "checkpoints.json").read_bytes() == before


def test_publishing_what_is_not_there_leaves_an_empty_folder_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.chdir(tmp_path)
    refused("results/nothing has no run record: first run it with `rskip run RECIPE`", "zoo", "publish", "nothing")
    assert list(tmp_path.iterdir()) == []


def test_publish_refuses_in_one_line(project: Path, refused: Refused) -> None:
    refused("--url is 'ftp://x': expected an http:// or https:// address without", "zoo", "publish", RUN, "--url", "ftp://x")
    refused("--variant is 'De ep': expected a word of lower-case", "zoo", "publish", RUN, "--variant", "De ep")
    missing = f"{RECORDS} has no run record of seed 9: first run it with `rskip run RECIPE --seeds 9`"
    refused(missing, "zoo", "publish", RUN, "--seed", "9")
    weights = Path("checkpoints", RUN, "model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    restore = f"restore checkpoints/{RUN} and {RECORDS} from version control, or publish the run again, which fails"
    differs = f"{weights} differs from checkpoints.json: {restore} now: runs/{RUN}/1/"
    refused(differs, "zoo", "publish", RUN)
    Path(RECORDS, "1.json").write_text("{")
    refused(f"{RECORDS}/1.json: not valid JSON", "zoo", "publish", RUN)
    assert Path("README.md").read_text() == "<!-- rskip zoo: begin models -->\n<!-- rskip zoo: end models -->\n"
