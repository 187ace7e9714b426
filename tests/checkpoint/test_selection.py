"""Which checkpoints of a folder are the last and the best."""

from __future__ import annotations

import pytest
import torch

from rskip.checkpoint import best_checkpoints, last_checkpoints
from rskip.checkpoint.average import best_scored

MODEL = {"w": torch.ones(1)}


def names(paths) -> list[str]:
    return [path.name for path in paths]


@pytest.fixture
def run(tmp_path):
    """Empty files under the names that fairseq gives."""
    epochs = [f"checkpoint{number}.pt" for number in (1, 2, 9, 10, 11)]
    updates = [f"checkpoint_{epoch}_{update}.pt" for epoch, update in ((1, 500), (2, 1000), (2, 1500))]
    for name in [
        *epochs,
        *updates,
        "checkpoint_last.pt",
        "checkpoint_best.pt",
        "checkpoint3.pt.tmp",
        "notes.txt",
    ]:
        (tmp_path / name).touch()
    return tmp_path


def test_last_by_epoch_counts_as_numbers_oldest_first(run):
    assert names(last_checkpoints(run, 3)) == ["checkpoint9.pt", "checkpoint10.pt", "checkpoint11.pt"]
    assert names(last_checkpoints(run, 2, up_to=9)) == ["checkpoint2.pt", "checkpoint9.pt"]


def test_last_by_update(run):
    assert names(last_checkpoints(run, 2, by="update")) == ["checkpoint_2_1000.pt", "checkpoint_2_1500.pt"]
    assert names(last_checkpoints(run, 1, by="update", up_to=1400)) == ["checkpoint_2_1000.pt"]


@pytest.mark.parametrize(
    ("number", "options", "message"),
    [
        (10, {}, r"10 epoch checkpoints asked for, but \S+ has 5 \(and 3 update checkpoints: choose by update\)"),
        (4, {"by": "update"}, r"4 update checkpoints asked for, but \S+ has 3 \(and 5 epoch checkpoints"),
        (3, {"up_to": 2}, r"3 epoch checkpoints asked for, but \S+ has 2 up to epoch 2"),
        (0, {}, "0 checkpoints asked for: expected at least 1"),
        (-1, {}, "-1 checkpoints asked for: expected at least 1"),
    ],
)
def test_too_few_says_how_many_there_are(run, number, options, message):
    with pytest.raises(ValueError, match=message):
        last_checkpoints(run, number, **options)
    with pytest.raises(FileNotFoundError, match="no folder .*none"):
        last_checkpoints(run / "none", 1)


@pytest.mark.parametrize(
    ("metric", "maximize", "expected"),
    [("loss", False, ["3.9002", "3.5001"]), ("bleu", True, ["3.9002", "12.0000"])],
)
def test_best_by_the_score_in_fairseqs_names(save_fairseq, tmp_path, metric, maximize, expected):
    for score in ("12.0000", "3.9002", "3.5001"):
        save_fairseq(f"checkpoint.best_{metric}_{score}.pt", MODEL, maximize=maximize)
    save_fairseq("checkpoint1.pt", MODEL, score=0.0, maximize=maximize)
    expected = [f"checkpoint.best_{metric}_{score}.pt" for score in expected]
    assert names(best_checkpoints(tmp_path, 2)) == expected
    assert names(best_scored(tmp_path.glob("checkpoint.best_*"), 2)) == expected


@pytest.mark.parametrize(
    ("maximize", "expected"),
    [(False, ["checkpoint2.pt", "checkpoint4.pt"]), (True, ["checkpoint1.pt", "checkpoint3.pt"])],
)
def test_best_by_the_score_recorded_where_there_are_no_such_names(save_fairseq, tmp_path, maximize, expected):
    for epoch, score in enumerate([5.0, 3.0, 6.0, 2.0, None], start=1):
        save_fairseq(f"checkpoint{epoch}.pt", MODEL, score=score, maximize=maximize)
    assert names(best_checkpoints(tmp_path, 2)) == expected


def test_of_equal_scores_the_later_is_better_and_up_to_leaves_named_files_out(save_fairseq, tmp_path):
    for epoch in (9, 10, 11):
        save_fairseq(f"checkpoint{epoch}.pt", MODEL, score=3.0)
    assert names(best_checkpoints(tmp_path, 2)) == ["checkpoint10.pt", "checkpoint11.pt"]
    save_fairseq("checkpoint.best_loss_3.0001.pt", MODEL)
    assert names(best_checkpoints(tmp_path, 1)) == ["checkpoint.best_loss_3.0001.pt"]
    assert names(best_checkpoints(tmp_path, 1, up_to=10)) == ["checkpoint10.pt"]


def test_best_of_too_few_or_unknown_scores(save_fairseq, tmp_path):
    with pytest.raises(ValueError, match=r"1 epoch checkpoints asked for, but \S+ has 0"):
        best_checkpoints(tmp_path, 1)
    save_fairseq("checkpoint1.pt", MODEL, score=None)
    with pytest.raises(
        ValueError, match=r"none of the 1 checkpoints in \S+ records a validation score: average the last ones"
    ):
        best_checkpoints(tmp_path, 1)
    save_fairseq("checkpoint.best_loss_3.2001.pt", MODEL)
    with pytest.raises(
        ValueError, match="2 best checkpoints asked for, but there are 1 named checkpoint.best_"
    ):
        best_checkpoints(tmp_path, 2)
    save_fairseq("checkpoint.best_bleu_30.1001.pt", MODEL)
    with pytest.raises(ValueError, match="scores of bleu and loss don't compare"):
        best_checkpoints(tmp_path, 2)
    with pytest.raises(ValueError, match="expected a name like checkpoint.best_loss_3.21.pt"):
        best_scored([tmp_path / "checkpoint1.pt"], 1)
