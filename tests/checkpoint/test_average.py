"""Averages of checkpoints, and which are averaged."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

import pytest
import torch

from rskip.checkpoint import (
    average_checkpoints,
    average_to_file,
    best_checkpoints,
    final_checkpoints,
    last_checkpoints,
    read_checkpoint,
    write_checkpoint,
)
from rskip.checkpoint.average import best_scored
from rskip.checkpoint.tensors import tied_names
from rskip.settings.errors import SettingError


def test_mean_of_every_tensor(save_fairseq):
    paths = [
        save_fairseq(f"checkpoint{number}.pt", {"w": torch.tensor(values), "b": torch.tensor([float(number)])})
        for number, values in enumerate([[1.0, 2.0], [2.0, 4.0], [6.0, -3.0]], start=1)
    ]
    average = average_checkpoints(paths)
    assert average.model["w"].tolist() == [3.0, 1.0]
    assert average.model["b"].tolist() == [2.0]
    assert average.averaged_from == ("checkpoint1.pt", "checkpoint2.pt", "checkpoint3.pt")


def test_half_precision_is_summed_in_float32(save_fairseq):
    # float16 has 11 bits: 2048 + 1 is 2048 there.
    values = [2048.0, 1.0, 1.0, 1.0]
    halves = [torch.tensor([value], dtype=torch.float16) for value in values]
    assert sum(halves[1:], halves[0]).item() / 4 == 512.0
    paths = [save_fairseq(f"{number}.pt", {"w": half}) for number, half in enumerate(halves)]
    average = average_checkpoints(paths).model["w"]
    assert average.dtype == torch.float32
    assert average.item() == 2051 / 4


def test_integers_settings_and_state_come_from_the_last_file(save_fairseq):
    first = save_fairseq("a.pt", {"n": torch.tensor([1])}, settings={"dropout": 0.1}, score=2.0)
    last = save_fairseq("b.pt", {"n": torch.tensor([4])}, settings={"dropout": 0.3}, score=1.0)
    average = average_checkpoints([first, last])
    assert average.model["n"].tolist() == [4]
    assert average.config["model"]["dropout"] == 0.3
    assert average.fairseq_state["extra_state"]["val_loss"] == 1.0


def test_tied_tensors_stay_tied_and_are_averaged_once(save_fairseq, tied_model):
    other = {name: tensor + 2 if tensor.is_floating_point() else tensor for name, tensor in tied_model.items()}
    for name in ("decoder.embed_tokens.weight", "decoder.output_projection.weight"):
        other[name] = other["encoder.embed_tokens.weight"]
    average = average_checkpoints([save_fairseq("a.pt", tied_model), save_fairseq("b.pt", other)])
    assert tied_names(average.model) == tied_names(tied_model)
    expected = (tied_model["encoder.embed_tokens.weight"] + other["encoder.embed_tokens.weight"]) / 2
    assert torch.equal(average.model["decoder.output_projection.weight"], expected)


def test_tensors_untied_in_one_file_are_averaged_each(save_fairseq):
    shared = torch.tensor([1.0])
    tied = save_fairseq("a.pt", {"in": shared, "out": shared})
    untied = save_fairseq("b.pt", {"in": torch.tensor([3.0]), "out": torch.tensor([5.0])})
    for paths in ([tied, untied], [untied, tied]):
        model = average_checkpoints(paths).model
        assert (model["in"].item(), model["out"].item()) == (2.0, 3.0)
        assert not tied_names(model)


def test_inputs_may_be_of_both_formats(save_fairseq, tmp_path):
    save_fairseq("a.pt", {"w": torch.tensor([1.0])})
    write_checkpoint(tmp_path / "b.safetensors", read_checkpoint(save_fairseq("b.pt", {"w": torch.tensor([4.0])})))
    average = average_checkpoints([tmp_path / "a.pt", tmp_path / "b.safetensors"])
    assert average.model["w"].item() == 2.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"w": torch.ones(2)}}, r"b.pt has no 'v', but \S*a.pt has: average checkpoints of one model"),
        ({"model": {"w": torch.ones(2), "v": torch.ones(1), "u": torch.ones(1)}}, r"a.pt has no 'u', but \S*b.pt has"),
        ({"model": {"w": torch.ones(3), "v": torch.ones(1)}}, r"'w' has the shape \(3,\) in \S*b.pt, but \(2,\) in"),
        ({"arch": "transformer_sas"}, "arch is 'transformer_sas' in"),
        ({"settings": {"connection": "2xskip+ln"}}, r"connection is '2xskip\+ln' in \S*b.pt, but '2rskip\+ln' in"),
    ],
)
def test_files_of_two_models(save_fairseq, change, message):
    model = {"w": torch.ones(2), "v": torch.ones(1)}
    first = save_fairseq("a.pt", model)
    other = save_fairseq("b.pt", **{"model": model, **change})
    with pytest.raises(ValueError, match=message):
        average_checkpoints([first, other])


def test_fairseq_has_no_file_for_other_tasks_or_without_an_architecture(save_fairseq, tmp_path):
    made = read_checkpoint(save_fairseq("checkpoint1.pt", MODEL))
    for other in ({"task": "vision"}, {"task": "captioning"}, {"task": "language_modeling", "arch": None}):
        with pytest.raises(SettingError, match=r"no architecture.*write a \.safetensors"):
            write_checkpoint(tmp_path / "x.pt", replace(made, config={**made.config, **other}, fairseq_state=None))
    imported = {**made.config, "arch": "marian", "task": "translation"}
    imported["model"] = {f"{side}_connection": "2rskip+ln" for side in ("encoder", "decoder")}
    write_checkpoint(tmp_path / "x.pt", replace(made, config=imported, fairseq_state=None))
    assert read_checkpoint(tmp_path / "x.pt").config["arch"] == "transformer_rskip_ln"


def test_average_to_file_takes_a_dtype(save_fairseq, tmp_path):
    paths = [save_fairseq(f"{value}.pt", {"w": torch.tensor([value])}) for value in (1.0, 1.0001)]
    average_to_file(paths, tmp_path / "deep" / "out.safetensors", dtype=torch.bfloat16)
    written = read_checkpoint(tmp_path / "deep" / "out.safetensors")
    assert torch.equal(written.model["w"], torch.tensor([1.0], dtype=torch.bfloat16))
    assert written.averaged_from == ("1.0.pt", "1.0001.pt")


MODEL = {"w": torch.ones(1)}


def names(paths) -> list[str]:
    return [path.name for path in paths]


@pytest.fixture
def run(tmp_path):
    """Empty files under the names that fairseq gives."""
    epochs = [f"checkpoint{number}.pt" for number in (1, 2, 9, 10, 11)]
    updates = ["checkpoint_1_500.pt", "checkpoint_2_1000.pt", "checkpoint_2_1500.pt"]
    others = ["checkpoint_last.pt", "checkpoint_best.pt", "checkpoint3.pt.tmp", "notes.txt"]
    for name in [*epochs, *updates, *others]:
        (tmp_path / name).touch()
    return tmp_path


def test_last_by_epoch_counts_as_numbers_oldest_first(run):
    assert names(last_checkpoints(run, 3)) == ["checkpoint9.pt", "checkpoint10.pt", "checkpoint11.pt"]
    assert names(last_checkpoints(run, 2, up_to=9)) == ["checkpoint2.pt", "checkpoint9.pt"]


def test_last_by_update(run):
    assert names(last_checkpoints(run, 2, by="update")) == ["checkpoint_2_1000.pt", "checkpoint_2_1500.pt"]
    assert names(last_checkpoints(run, 1, by="update", up_to=1400)) == ["checkpoint_2_1000.pt"]


def test_the_end_of_a_training_within_an_epoch_is_its_newest_checkpoint(tmp_path):
    def write(name, updates):
        torch.save({"model": {}, "args": Namespace(), "optimizer_history": [{"num_updates": updates}]}, tmp_path / name)

    with pytest.raises(ValueError, match=r"1 epoch checkpoints asked for, but \S+ has 0$"):
        final_checkpoints(tmp_path, 3)
    write("checkpoint_last.pt", 8)
    assert names(final_checkpoints(tmp_path, 3)) == ["checkpoint_last.pt"]
    write("checkpoint1.pt", 6)
    assert names(final_checkpoints(tmp_path, 1)) == ["checkpoint_last.pt"]
    assert names(final_checkpoints(tmp_path, 3)) == ["checkpoint1.pt", "checkpoint_last.pt"]
    write("checkpoint2.pt", 8)
    assert names(final_checkpoints(tmp_path, 3)) == ["checkpoint1.pt", "checkpoint2.pt"]


@pytest.mark.parametrize(
    ("number", "options", "message"),
    [
        (10, {}, r"10 epoch checkpoints .* has 5: ask for 1 to 5, or choose by update \(--by update\): it has 3"),
        (4, {"by": "update"}, r"4 update checkpoints .* has 3: ask for 1 to 3, or choose by epoch \(--by epoch\)"),
        (3, {"up_to": 2}, r"3 epoch checkpoints asked for, but \S+ has 2 up to epoch 2"),
        (0, {}, "0 epoch checkpoints asked for"),
    ],
)
def test_too_few_says_how_many_there_are(run, number, options, message):
    with pytest.raises(ValueError, match=message):
        last_checkpoints(run, number, **options)
    with pytest.raises(FileNotFoundError, match="none"):
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
    for epoch, score in enumerate([5.0, 3.0, 6.0, 2.0, None, float("nan")], start=1):
        save_fairseq(f"checkpoint{epoch}.pt", MODEL, score=score, maximize=maximize)
    assert names(best_checkpoints(tmp_path, 2)) == expected


def test_of_equal_scores_the_later_is_better_and_up_to_leaves_named_files_out(save_fairseq, tmp_path):
    for epoch in (9, 10, 11):
        save_fairseq(f"checkpoint{epoch}.pt", MODEL, score=3.0)
    assert names(best_checkpoints(tmp_path, 2)) == ["checkpoint10.pt", "checkpoint11.pt"]
    save_fairseq("checkpoint.best_loss_3.0001.pt", MODEL)
    assert names(best_checkpoints(tmp_path, 1)) == ["checkpoint.best_loss_3.0001.pt"]
    assert names(best_checkpoints(tmp_path, 1, up_to=10)) == ["checkpoint10.pt"]
    assert names(best_checkpoints(tmp_path, 1, by="epoch")) == ["checkpoint11.pt"]


def test_best_of_too_few_or_unknown_scores(save_fairseq, tmp_path):
    def refused(message, number=1):
        with pytest.raises(ValueError, match=message):
            best_checkpoints(tmp_path, number)

    refused("1 epoch checkpoints asked for")
    save_fairseq("checkpoint1.pt", MODEL, score=None)
    refused("none of the 1 checkpoints in .* records a validation score")
    save_fairseq("checkpoint.best_loss_3.2001.pt", MODEL)
    refused("2 best checkpoints asked for", number=2)
    save_fairseq("checkpoint.best_bleu_30.1001.pt", MODEL)
    refused("scores of bleu and loss can't be compared")
    with pytest.raises(ValueError, match="expected a name like"):
        best_scored([tmp_path / "checkpoint1.pt"], 1)
