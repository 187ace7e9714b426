"""`rskip run` with small programs (fake_fairseq/) in fairseq's place: stages, resuming, locking, records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rskip.checkpoint import read_checkpoint
from rskip.cli.main import main
from rskip.experiments.recipe import load_recipe
from rskip.files.checksum import sha256_file
from rskip.records import Record, read_record
from rskip.tasks import find_task
from rskip.tasks.run import RunFolder
from rskip.translation.data import data_folder
from tests.translation.conftest import RUN_BY_PYTHON, SENTENCES, SPOILT

RECIPE = """
kind: translation
corpus: numbers-en-de
prepare: {pairs: 300, size: 80}
train: {arch: transformer_rskip_ln_tiny, max-tokens: 4000, max-epoch: 3, lr: 5e-3, bf16: true, fp16: false}
average: {last: 2}
generate: {beam: 4}
show: 2
expected: {accuracy: 87.0, minutes: 1}
"""

@pytest.fixture
def project(faked: Path) -> Path:
    """A folder to run in, with the recipe; fairseq's programs are the fakes."""
    (faked / "mine.yaml").write_text(RECIPE)
    return faked


@pytest.fixture
def prepared(project: Path, fakes: Path) -> Path:
    """The project with its corpus prepared, so that no run has to."""
    shutil.copytree(fakes / "prepared", project / data_folder(load_recipe("mine.yaml").settings))
    return project


def calls(project: Path) -> list[dict]:
    path = project / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_run_leaves_a_record_of_everything(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "mine.yaml", "--seeds", "7", "--gpus", "0"]
    assert main([*run, "--dry-run"]) == 0
    _, *commands = capsys.readouterr().out.splitlines()
    assert main(run) == 0
    train, generate = calls(prepared)
    assert [" ".join(call["argv"]) for call in (train, generate)] == [
        line.partition(" ")[2] for line in commands if line.startswith("fairseq-")
    ]
    assert train["threads"] == "3"

    record = read_record(prepared / "results" / "mine" / "7.json")
    assert record.metrics["accuracy"] == 100 * (SENTENCES - SPOILT) / SENTENCES
    assert record.metrics["valid_loss"] == 2.0
    assert 70 < record.metrics["sacrebleu"] < 100
    assert record.signatures["sacrebleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|")
    assert "tok:none" in record.signatures["tokenised_bleu"]
    assert [epoch["seconds"] for epoch in record.curve] == [10.0, 20.0, 30.0]
    assert record.training == {
        "seconds": 30.0, "pieces": 1, "precision": "bfloat16", "epochs": 3, "updates": 21,
        "target_tokens_per_second": 500.0,
    }  # fmt: skip
    assert record.parameters == 1234
    assert record.checkpoint_sha256 == sha256_file(prepared / "runs/mine/7/averaged.pt")
    assert record.data["sentences"] == {"train": 300, "valid": 1000, "test": 1000}
    averaged = torch.load(prepared / "runs/mine/7/averaged.pt", weights_only=False)
    assert averaged["averaged_from"] == ["checkpoint2.pt", "checkpoint3.pt"]
    printed = capsys.readouterr().out
    assert "epoch   3   train loss 6.000   valid loss 2.000   ppl 8.00   0.5 min" in printed
    assert "exactly right, %    87.00   (expected by the recipe: 87)" in printed
    assert printed.count("  source     ") == 2


def test_a_corpus_that_is_not_there_is_prepared_first(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAIL", "1")
    assert main(["run", "mine.yaml"]) == 1
    made = json.loads((project / data_folder(load_recipe("mine.yaml").settings) / "corpus.json").read_text())
    assert made["options"] == {"subwords": "bpe", "size": 80, "pairs": 300, "seed": 1}
    assert made["sentences"]["train"] == 300


def test_a_training_that_fails_is_one_line_and_is_resumed_when_repeated(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_FAIL", "2")
    assert main(["run", "mine.yaml"]) == 1
    assert capsys.readouterr().err == (
        "rskip run: error: fairseq-train failed (exit status 1): RuntimeError: the disk is full "
        "(log: runs/mine/1/train.log; repeat the command to resume)\n"
    )
    assert not (prepared / "results").exists()
    assert not (prepared / "runs/mine/1/probe.jsonl").exists()
    monkeypatch.delenv("FAKE_FAIL")
    assert main(["run", "mine.yaml", "--set", "probe.every=3"]) == 0
    assert "resuming" in capsys.readouterr().out
    assert (prepared / "results/mine/1.probe.jsonl").read_text() == "every 3 from 3\n"
    record = read_record(prepared / "results/mine/1.json")
    assert "probe" not in record.config and record.overrides == {}
    assert (record.training["pieces"], record.training["seconds"]) == (2, 30.0)
    assert [epoch["seconds"] for epoch in record.curve] == [10.0, 20.0, 30.0]


def test_a_training_that_diverges_has_a_record_and_the_next_run_is_begun(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_DIVERGE", "2")
    assert main(["run", "mine.yaml", "--seeds", "1", "2", "--gpus", "0"]) == 0
    assert "fairseq-train ended: fairseq-train: error: the training diverged: gradients" in capsys.readouterr().out
    for seed in (1, 2):
        record = read_record(prepared / f"results/mine/{seed}.json")
        assert record.diverged and record.metrics == {} == record.signatures and record.checkpoint_sha256 is None
        assert [epoch["valid_loss"] for epoch in record.curve] == [4.0 + 0.5 * (seed == 1), 3.0 + 0.5 * (seed == 1)]
        assert (record.training["updates"], record.training["epochs"], record.parameters) == (17, 2, 1234)
    assert main(["run", "mine.yaml", "--seeds", "1", "2", "--publish"]) == 2
    expected = "results/mine: training diverged (seed 1, 2), so it has no weights to publish\n"
    assert capsys.readouterr().err == f"rskip run: error: {expected}"


def test_stages_that_are_done_are_not_repeated(prepared: Path) -> None:
    assert main(["run", "mine.yaml"]) == 0
    (prepared / "results/mine/1.json").unlink()
    (prepared / "runs/mine/1/generate-test.txt").unlink()
    averaged = (prepared / "runs/mine/1/averaged.pt").stat().st_mtime_ns
    assert main(["run", "mine.yaml"]) == 0
    assert [Path(call["argv"][0]).parent.name for call in calls(prepared)] == ["data-bin"] * 3
    assert sum("--save-dir" in call["argv"] for call in calls(prepared)) == 1
    assert (prepared / "runs/mine/1/averaged.pt").stat().st_mtime_ns == averaged
    assert read_record(prepared / "results/mine/1.json").training["pieces"] == 1


def test_a_profiling_pass_comes_first_and_is_in_the_record(
    prepared: Path, fakes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = torch.load(fakes / "checkpoint.pt", weights_only=False)
    state["model"] |= {"decoder.layers.0.ffn_connection.skip_weight": torch.full((4,), 1.25)}
    torch.save(state, prepared / "found.pt")
    program = fakes / "bin" / "rskip"
    program.write_text(
        f"{RUN_BY_PYTHON}import json, shutil, sys\n"
        "shutil.copy('found.pt', sys.argv[3])\n"
        "open('calls.jsonl', 'a').write(json.dumps({'argv': sys.argv[1:]}) + '\\n')\n"
    )
    program.chmod(0o755)
    run = ["run", "mine.yaml", "--gpus", "0", "--set", "train.connection=admin"]
    assert main([*run, "--dry-run"]) == 0
    _, initialise, train, *_ = (line.split() for line in capsys.readouterr().out.splitlines())
    assert main(run) == 0
    (folder,) = Path("runs").glob("*/1")
    start, data = str(folder / "start.pt"), train[1]
    assert [call["argv"] for call in calls(prepared)[:2]] == [initialise[1:], train[1:]]
    assert initialise[1:5] == ["initialise", "--output", start, data]
    assert train[train.index("--finetune-from-model") + 1] == start
    assert set(initialise[4:]) - set(train) == set() and {"--connection", "admin", "--seed"} < set(initialise)
    (path,) = Path("results").glob("*/1.json")
    assert read_record(path).training["profiled"] == {"decoder.layers.0.ffn_connection": 1.25}


def test_a_generation_that_was_cut_off_leaves_no_output(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_TRANSLATIONS", str(prepared / "absent"))
    assert main(["run", "mine.yaml"]) == 1
    assert "fairseq-generate failed (exit status 1): FileNotFoundError" in capsys.readouterr().err
    assert sorted(p.name for p in (prepared / "runs/mine/1").glob("*generate*")) == ["generate.log"]


def test_a_dry_run_prints_the_commands_and_does_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "mine.yaml", "--dry-run", "--seeds", "1", "2", "--mirror", "there"]) == 0
    prepare, *lines = capsys.readouterr().out.splitlines()
    data = prepare.split()[4]
    assert prepare.startswith("rskip prepare numbers-en-de --output data-bin/numbers-en-de-")
    assert prepare.endswith(" --subword bpe --bpe-size 80 --pairs 300 --seed 1 --mirror there")
    programs = [f"fairseq-train {data}", "rskip average", f"fairseq-generate {data}"]
    assert [" ".join(line.split()[:2]) for line in lines] == programs * 2
    assert [path.name for path in project.iterdir()] == ["mine.yaml"]


def test_publish_writes_half_precision_weights_of_the_seed_with_the_lowest_valid_loss(
    prepared: Path, fakes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "mine.yaml", "--seeds", "1", "2", "--publish"]) == 0
    folder = prepared / "checkpoints" / "mine"
    names = ["config.json", "dict.de.txt", "dict.en.txt", "model.safetensors", "text"]
    assert sorted(path.name for path in folder.iterdir()) == names
    data = prepared / data_folder(load_recipe("mine.yaml").settings)
    checkpoint = read_checkpoint(folder / "model.safetensors")
    assert torch.equal(checkpoint.model["weight"], torch.linspace(0, 1, 5).half())
    assert (checkpoint.config["source_lang"], checkpoint.config["target_lang"]) == ("en", "de")
    for path in [*(data / "text").iterdir(), *data.glob("dict.*")]:
        assert (folder / path.relative_to(data)).read_bytes() == path.read_bytes()
    told = capsys.readouterr().out
    assert "checkpoints/mine: seed 2\nadd it to checkpoints.json with: rskip zoo publish mine " in told


def test_without_a_validation_loss_the_seed_must_be_named(make_record: Callable[..., Record]) -> None:
    one, other = make_record(seed=1), make_record(seed=2, metrics={"sacrebleu": 39.0, "valid_loss": 4.0})
    choose = find_task("translation").work().choose
    assert choose([one]) is one
    with pytest.raises(ValueError, match="has no validation loss, by which a seed is chosen: name one, with"):
        choose([one, other])


def test_a_folder_that_another_run_uses_is_left_alone(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunFolder(Path("runs/mine/1")).lock():
        assert main(["run", "mine.yaml"]) == 2
    assert "runs/mine/1 is in use by another `rskip run`" in capsys.readouterr().err and not calls(prepared)
