"""Reading fairseq's JSON log: the curve, and the time over interrupted sessions."""

from __future__ import annotations

import json
from pathlib import Path

from rskip.tasks.fairseq.log import epoch_lines, read_train_log
from rskip.tasks.run import SESSION

START = f'{SESSION}{{"a": 1}}\n'


def _inner(epoch: int, wall: int) -> str:
    return _line("train_inner", {"epoch": epoch, "update": epoch - 0.5, "loss": "9", "wall": str(wall)})


def _epoch(epoch: int, wall: int, *, loss: str = "5.5", wps: str = "1000.5") -> list[str]:
    valid = {
        "epoch": epoch,
        "valid_loss": "4.25",
        "valid_nll_loss": "3",
        "valid_ppl": "8",
        "valid_num_updates": str(epoch * 100),
        "valid_best_loss": "4.25",
    }
    train = {
        "epoch": epoch,
        "train_loss": loss,
        "train_wps": wps,
        "train_num_updates": str(epoch * 100),
        "train_lr": "2e-05",
        "train_train_wall": "3",
        "train_wall": str(wall),
    }
    return [_line("valid", valid), _line("train", train)]


def _line(tag: str, values: dict[str, object]) -> str:
    return f"2026-01-01 00:00:00 | INFO | {tag} | {json.dumps(values)}\n"


def test_curve_of_an_unbroken_run() -> None:
    parameters = "2026-01-01 | INFO | fairseq_cli.train | num. shared model params: 1,037,568 (num. trained: 9)\n"
    log = read_train_log([START, parameters, _inner(1, 4), *_epoch(1, 10), *_epoch(2, 21, wps="3000")])
    assert log.parameters == 1037568
    assert log.seconds == 21
    assert log.target_tokens_per_second == round((1000.5 + 3000) / 2, 1)
    assert log.curve[1].as_dict() == {
        "epoch": 2,
        "update": 200,
        "train_loss": 5.5,
        "valid_loss": 4.25,
        "valid_nll_loss": 3.0,
        "valid_ppl": 8.0,
        "lr": 2e-05,
        "seconds": 21.0,
    }


def test_what_a_task_logs_beside_losses_is_in_its_curve_alone() -> None:
    valid = {"epoch": 1, "valid_loss": "4", "valid_num_updates": "9", "valid_cider": "0.31"}
    assert read_train_log([_line("valid", valid)]).curve[0].as_dict()["valid_cider"] == 0.31
    assert set(read_train_log(_epoch(1, 10)).curve[0].as_dict()) & {"more", "valid_cider"} == set()


def test_sessions_are_summed_lost_work_included_and_repeated_epochs_count_once() -> None:
    first = [START, *_epoch(1, 10), _inner(2, 14)]  # killed 4 seconds into epoch 2
    second = [START, _inner(2, 3), *_epoch(2, 9, loss="4")]  # saved, but not in the log:
    third = [START, *_epoch(2, 8, loss="3"), *_epoch(3, 17)]
    log = read_train_log(first + second + third)
    assert log.seconds == 14 + 9 + 17
    assert [(e.epoch, e.train_loss, e.seconds) for e in log.curve] == [(1, 5.5, 10), (2, 3, 31), (3, 5.5, 40)]


def test_losses_that_are_not_finite_are_left_out() -> None:
    assert read_train_log(_epoch(1, 10, loss="nan")).curve[0].train_loss is None
    assert read_train_log(_epoch(1, 10, loss="inf")).curve[0].train_loss is None


def test_an_epoch_that_was_validated_and_cut_off_has_no_training_figures() -> None:
    epoch = read_train_log(_epoch(1, 10)[:1]).curve[0]
    assert (epoch.update, epoch.valid_loss, epoch.train_loss, epoch.seconds) == (100, 4.25, None, None)


def test_lines_of_epochs_or_of_validations_estimate_the_time_left(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    within = {"epoch": 1, "valid_loss": "5", "valid_nll_loss": "4", "valid_ppl": "16", "valid_num_updates": "50"}
    log.write_text("".join([START, _line("valid", {**within, "wall": "5"}), *_epoch(1, 10)]))
    epoch = "  epoch   1   train loss 5.500   valid loss 4.250   ppl 8.00   0.2 min"
    assert epoch_lines(log) == [epoch]
    assert epoch_lines(log, epochs=4) == [f"{epoch}, about 30 s left"]
    assert epoch_lines(log, epochs=1, updates=1000) == [epoch]
    assert epoch_lines(log, updates=1000, by_update=True)[0] == (
        "  epoch   1   update 50   valid loss 5.000   ppl 16.00   0.1 min, about 1 min 35 s left"
    )
    assert len(epoch_lines(log, updates=1000, by_update=True)) == 2
