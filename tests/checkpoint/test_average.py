"""Averaging checkpoints: arithmetic, what is taken over, and files that don't belong together."""

from __future__ import annotations

import os

import pytest
import torch

from rskip.checkpoint import average_checkpoints, average_to_file, read_checkpoint, write_checkpoint
from rskip.checkpoint.checkpoint import tied_names


def test_mean_of_every_tensor(save_fairseq):
    paths = [
        save_fairseq(
            f"checkpoint{number}.pt", {"w": torch.tensor(values), "b": torch.tensor([float(number)])}
        )
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


def test_same_arithmetic_as_fairseqs_script(save_fairseq):
    torch.manual_seed(0)
    models = [{"w": torch.randn(50, 7), "v": torch.randn(3)} for _ in range(10)]
    average = average_checkpoints([save_fairseq(f"{n}.pt", model) for n, model in enumerate(models)])
    for name in ("w", "v"):
        total = models[0][name].clone()
        for model in models[1:]:
            total += model[name]
        assert torch.equal(average.model[name], total.div_(10))


def test_integers_settings_and_state_come_from_the_last_file(save_fairseq):
    first = save_fairseq("a.pt", {"n": torch.tensor([1])}, settings={"dropout": 0.1}, score=2.0)
    last = save_fairseq("b.pt", {"n": torch.tensor([4])}, settings={"dropout": 0.3}, score=1.0)
    average = average_checkpoints([first, last])
    assert average.model["n"].tolist() == [4]
    assert average.config["model"]["dropout"] == 0.3
    assert average.fairseq_state["extra_state"]["val_loss"] == 1.0


def test_tied_tensors_stay_tied_and_are_averaged_once(save_fairseq, tied_model):
    other = {
        name: tensor + 2 if tensor.is_floating_point() else tensor for name, tensor in tied_model.items()
    }
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
    write_checkpoint(
        tmp_path / "b.safetensors", read_checkpoint(save_fairseq("b.pt", {"w": torch.tensor([4.0])}))
    )
    average = average_checkpoints([tmp_path / "a.pt", tmp_path / "b.safetensors"])
    assert average.model["w"].item() == 2.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model": {"w": torch.ones(2)}},
            r"b.pt has no 'v', but \S*a.pt has: average checkpoints of one model",
        ),
        (
            {"model": {"w": torch.ones(2), "v": torch.ones(1), "u": torch.ones(1)}},
            r"a.pt has no 'u', but \S*b.pt has: average",
        ),
        (
            {"model": {"w": torch.ones(3), "v": torch.ones(1)}},
            r"'w' has the shape \(3,\) in \S*b.pt, but \(2,\) in \S*a.pt: average",
        ),
        (
            {"arch": "transformer_sas"},
            r"arch is 'transformer_sas' in \S*b.pt, but 'transformer_rskip_ln_tiny' in",
        ),
        (
            {"settings": {"connection": "2xskip+ln"}},
            r"connection is '2xskip\+ln' in \S*b.pt, but '2rskip\+ln' in \S*a.pt: average",
        ),
    ],
)
def test_files_of_two_models(save_fairseq, change, message):
    model = {"w": torch.ones(2), "v": torch.ones(1)}
    first = save_fairseq("a.pt", model)
    other = save_fairseq("b.pt", **{"model": model, **change})
    with pytest.raises(ValueError, match=message):
        average_checkpoints([first, other])


def test_nothing_to_average():
    with pytest.raises(ValueError, match="no checkpoints to average"):
        average_checkpoints([])


def test_an_input_is_never_overwritten(save_fairseq, tmp_path):
    first, second = (save_fairseq(name, {"w": torch.ones(1)}) for name in ("a.pt", "b.pt"))
    before = second.read_bytes()
    os.symlink(second, tmp_path / "link.pt")
    for output in (second, tmp_path / "link.pt", tmp_path / "." / "b.pt"):
        with pytest.raises(ValueError, match="is one of the checkpoints to average: give another output"):
            average_to_file([first, second], output)
    assert second.read_bytes() == before


def test_an_output_of_no_known_format_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ValueError, match="the name of a checkpoint ends in .pt or .safetensors"):
        average_to_file([tmp_path / "none.pt"], tmp_path / "out.bin")


def test_average_to_file_takes_a_dtype(save_fairseq, tmp_path):
    paths = [save_fairseq(f"{value}.pt", {"w": torch.tensor([value])}) for value in (1.0, 1.0001)]
    average_to_file(paths, tmp_path / "deep" / "out.safetensors", dtype=torch.bfloat16)
    written = read_checkpoint(tmp_path / "deep" / "out.safetensors")
    assert torch.equal(written.model["w"], torch.tensor([1.0], dtype=torch.bfloat16))
    assert written.averaged_from == ("1.0.pt", "1.0001.pt")
