"""Reading and writing .pt and .safetensors."""

from __future__ import annotations

import errno
import json
import os
import resource
import sys
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from rskip.checkpoint import Checkpoint, read_checkpoint, write_checkpoint, write_model
from rskip.checkpoint.fairseq_file import read_validation
from rskip.checkpoint.tensors import tied_names

CONFIG = {
    "arch": "transformer_rskip_ln_tiny",
    "task": "translation",
    "source_lang": "en",
    "target_lang": "de",
    "model": {
        "encoder_embed_dim": 4, "dropout": 0.1, "activation_fn": "relu", "connection": "2rskip+ln",
        "adaptive_softmax_cutoff": [2, 3], "my_plugin_flag": 3, "max_source_positions": 1024,
        "max_target_positions": 256,
    },
}  # fmt: skip


def same_tensors(one, other) -> bool:
    return one.keys() == other.keys() and all(
        tensor.dtype == other[name].dtype and torch.equal(tensor, other[name]) for name, tensor in one.items()
    )


def test_config_holds_the_models_settings_and_nothing_of_the_run(save_fairseq, tied_model):
    assert read_checkpoint(save_fairseq("a.pt", tied_model)).config == CONFIG


def test_config_of_a_checkpoint_from_before_settings_had_groups(tmp_path, tied_model):
    about = {"arch": "transformer_iwslt_de_en", "task": "translation", "source_lang": "de", "target_lang": "en"}
    model = {"encoder_layers": 6, "dropout": 0.3, "share_all_embeddings": False, "max_source_positions": 1024}
    of_run = {"data": ["/data/iwslt"], "lr": [0.0005], "save_dir": "ck", "max_tokens": 4000, "encoder_embed_path": None}
    args = Namespace(**about, **model, **of_run, distributed_init_host="somehost")
    state = {"args": args, "model": tied_model, "optimizer_history": [], "extra_state": {}}
    torch.save(state, tmp_path / "old.pt")
    assert read_checkpoint(tmp_path / "old.pt").config == {**about, "model": model}


def test_pt_keeps_fairseqs_state_but_for_the_optimisers(save_fairseq, tied_model, tmp_path):
    source = save_fairseq("a.pt", tied_model)
    write_checkpoint(tmp_path / "b.pt", read_checkpoint(source))
    before, after = (torch.load(path, weights_only=False) for path in (source, tmp_path / "b.pt"))
    assert set(before) - set(after) == {"last_optimizer_state"}
    assert after["cfg"] == before["cfg"]
    assert after["optimizer_history"] == before["optimizer_history"]
    assert same_tensors(before["model"], after["model"])
    assert numpy.array_equal(after["extra_state"]["metrics"][1], [1, 2, 3])


def test_safetensors_gives_everything_back(save_fairseq, tied_model, tmp_path):
    read = read_checkpoint(save_fairseq("a.pt", tied_model))
    read.averaged_from = ("checkpoint1.pt", "checkpoint2.pt")
    write_checkpoint(tmp_path / "a.safetensors", read)
    back = read_checkpoint(tmp_path / "a.safetensors")
    assert same_tensors(back.model, tied_model)
    assert back.config == CONFIG
    assert back.averaged_from == ("checkpoint1.pt", "checkpoint2.pt")
    assert back.fairseq_state is None
    assert tied_names(back.model) == {
        "decoder.embed_tokens.weight": "encoder.embed_tokens.weight",
        "decoder.output_projection.weight": "encoder.embed_tokens.weight",
    }


def test_tensors_that_were_read_do_not_change_with_their_file(save_fairseq, tied_model, tmp_path):
    path = tmp_path / "a.safetensors"
    write_checkpoint(path, read_checkpoint(save_fairseq("a.pt", tied_model)))
    read = read_checkpoint(path)
    path.write_bytes(bytes(path.stat().st_size))
    assert same_tensors(read.model, tied_model)


def test_safetensors_stores_a_tied_tensor_once_and_tells_no_place(save_fairseq, tied_model, tmp_path):
    write_checkpoint(tmp_path / "a.safetensors", read_checkpoint(save_fairseq("a.pt", tied_model)))
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        names, metadata = set(file.keys()), file.metadata()
    assert set(tied_model) - names == {"decoder.embed_tokens.weight", "decoder.output_projection.weight"}
    assert metadata["format"] == "rskip-1"
    assert json.loads(metadata["config"]) == CONFIG
    data = (tmp_path / "a.safetensors").read_bytes()
    for place in (b"/home", b"somehost", b"mydata", b"tensorboard", b"save_dir"):
        assert place not in data


def test_every_file_has_the_settings_of_imported_models(tied_model, tmp_path):
    config = {**CONFIG, "model": {**CONFIG["model"], "output_bias": True, "start": "begin"}}
    checkpoint = Checkpoint(model=tied_model, config=config)
    for name in ("a.safetensors", "a.pt"):
        write_checkpoint(tmp_path / name, checkpoint)
    write_model(tmp_path, checkpoint)
    for name in ("a.safetensors", "model.safetensors", "a.pt"):
        assert read_checkpoint(tmp_path / name).config["model"] == config["model"]


def test_embeddings_that_fairseq_saved_as_copies_are_stored_once(tied_model, tmp_path):
    """As its checkpoints hold them after training in bfloat16 or on a GPU."""
    copies = {name: tensor.clone() for name, tensor in tied_model.items()}
    write_checkpoint(tmp_path / "a.safetensors", Checkpoint(model=copies, config=CONFIG), dtype=torch.float16)
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        names = set(file.keys())
    assert set(copies) - names == {"decoder.embed_tokens.weight", "decoder.output_projection.weight"}
    back = read_checkpoint(tmp_path / "a.safetensors").model
    for name in copies.keys() - names:
        assert torch.equal(back[name], copies[name].half())

    copies["decoder.embed_tokens.weight"][0, 0] += 1
    assert tied_names(copies) == {"decoder.output_projection.weight": "encoder.embed_tokens.weight"}
    copies["decoder.output_projection.weight"] = copies["decoder.embed_tokens.weight"]
    assert tied_names(copies) == {"decoder.output_projection.weight": "decoder.embed_tokens.weight"}
    assert not tied_names({f"encoder.layers.{number}.norm.weight": torch.ones(4) for number in range(2)})


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_same_checkpoint_same_bytes(save_fairseq, tied_model, tmp_path, suffix):
    checkpoint = read_checkpoint(save_fairseq("a.pt", tied_model))
    checkpoint.averaged_from = ("checkpoint1.pt",)
    paths = [tmp_path / f"{number}{suffix}" for number in range(4)]
    for path in paths:
        write_checkpoint(path, checkpoint)
    assert len({path.read_bytes() for path in paths}) == 1


def test_safetensors_becomes_a_pt_with_settings_as_fairseq_reads_them(save_fairseq, tied_model, tmp_path):
    write_checkpoint(tmp_path / "a.safetensors", read_checkpoint(save_fairseq("a.pt", tied_model)))
    write_checkpoint(tmp_path / "b.pt", read_checkpoint(tmp_path / "a.safetensors"))
    state = torch.load(tmp_path / "b.pt", weights_only=False)
    expected = {name: value for name, value in CONFIG.items() if name != "model"}
    assert vars(state["args"]) == {**expected, **CONFIG["model"]}
    assert state["cfg"] is None
    again = read_checkpoint(tmp_path / "b.pt")
    assert same_tensors(again.model, tied_model)
    assert again.config == CONFIG


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dtype_is_for_floats_alone_and_ties_hold(tied_model, tmp_path, dtype):
    write_checkpoint(tmp_path / "a.safetensors", Checkpoint(model=tied_model, config=CONFIG), dtype=dtype)
    model = read_checkpoint(tmp_path / "a.safetensors").model
    assert torch.equal(model["encoder.embed_tokens.weight"], tied_model["encoder.embed_tokens.weight"].to(dtype))
    assert torch.equal(model["decoder.steps"], torch.tensor([2**40]))
    assert len(tied_names(model)) == 2


def test_a_value_that_float16_cannot_hold_is_named(tmp_path):
    model = {"encoder.fc1.weight": torch.tensor([1.0, -70000.0])}
    with pytest.raises(ValueError, match=r"'encoder.fc1.weight' holds 70000, out of the range of float16"):
        write_checkpoint(tmp_path / "a.pt", Checkpoint(model=model, config=CONFIG), dtype=torch.float16)
    assert list(tmp_path.iterdir()) == []


def test_fairseqs_uninitialised_buffer_may_hold_anything(tmp_path):
    model = {"encoder.embed_positions._float_tensor": torch.tensor([1e30])}
    write_checkpoint(tmp_path / "a.pt", Checkpoint(model=model, config=CONFIG), dtype=torch.float16)
    assert read_checkpoint(tmp_path / "a.pt").model.keys() == model.keys()


class Attack:
    """A pickle that would make a folder when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_runs_code_is_refused_by_its_type_and_not_run(tmp_path, zipped):
    state = {"model": {}, "cfg": {"x": 1}, "extra_state": Attack(tmp_path / "ran")}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match=r"a.pt can't be read: it loads \w+.mkdir, which could run code") as caught:
        read_checkpoint(tmp_path / "a.pt")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def class_of_fairseqs(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], type]:
    """Makes a class that pickles under a name of fairseq's. fairseq needn't be installed."""

    def make(path: str) -> type:
        module, _, name = path.rpartition(".")
        kind = type(name, (), {"__module__": module})
        if getattr(sys.modules.get(module), "__file__", None) or module not in sys.modules:
            for each in ("fairseq", module):
                monkeypatch.setitem(sys.modules, each, ModuleType(each))
        setattr(sys.modules[module], name, kind)
        return kind

    return make


def test_meters_of_fairseq_0_5_to_0_9_are_left_out(tied_model, tmp_path, class_of_fairseqs):
    meters = OrderedDict()
    for name, values in (
        ("AverageMeter", {"val": 3.5, "avg": torch.tensor(3.25), "count": 7}),
        ("TimeMeter", {"init": 0, "start": 1.5e9, "n": numpy.float64(12.0)}),
        ("StopwatchMeter", {"sum": 2.0, "n": 1, "start_time": None}),
    ):
        meters[name] = class_of_fairseqs(f"fairseq.meters.{name}")()
        vars(meters[name]).update(values)
    args = Namespace(arch="transformer", task="translation", encoder_layers=6, maximize_best_checkpoint_metric=False)
    extra_state = {"val_loss": 4.5, "train_meters": meters}
    state = {"args": args, "model": tied_model, "optimizer_history": [], "extra_state": extra_state}
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    checkpoint = read_checkpoint(tmp_path / "old.pt")
    assert same_tensors(checkpoint.model, tied_model) and checkpoint.config["model"] == {"encoder_layers": 6}
    assert read_validation(tmp_path / "old.pt") == (4.5, False)

    write_checkpoint(tmp_path / "new.pt", checkpoint)
    assert torch.load(tmp_path / "new.pt", weights_only=False)["extra_state"] == {"val_loss": 4.5}


def test_a_validation_score_that_is_no_number(save_fairseq, tied_model):
    for score in (10**400, "low", [3.0]):
        with pytest.raises(ValueError, match="its validation is damaged"):
            read_validation(save_fairseq("a.pt", tied_model, score=score))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_damaged_files(tied_model, tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    write_checkpoint(path, Checkpoint(model=tied_model, config=CONFIG))
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"hello, this is no model\n"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"a\{suffix} can't be read") as caught:
            read_checkpoint(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_changed_tensor_in_a_safetensors(tied_model, tmp_path, dtype):
    path = tmp_path / "a.safetensors"
    write_checkpoint(path, Checkpoint(model=tied_model, config=CONFIG), dtype=dtype)
    whole = bytearray(path.read_bytes())
    whole[-3] ^= 16
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=r"a\.safetensors: the checksum of .* is wrong, so the file was damaged"):
        read_checkpoint(path)


def test_changed_settings_in_a_safetensors(tied_model, tmp_path):
    path = tmp_path / "a.safetensors"
    write_checkpoint(path, Checkpoint(model=tied_model, config=CONFIG, averaged_from=("b.pt", "c.pt")))
    whole = path.read_bytes()
    first, last = whole.index(b'"averaged_from"'), whole.index(b'"crc32"')
    for place in range(first, last):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match="damaged") as caught:
            read_checkpoint(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ([1, 2], "holds a list"),
        ({"weights": {}}, "expected 'model', and"),
        ({"model": {"a": torch.ones(1)}}, "expected 'model', and 'cfg' or 'args'"),
        ({"model": {"a": 3}, "args": Namespace(arch="x", task="translation")}, "its weights 'a' are a int"),
        (
            {"settings": {}, "optimiser": {}, "iteration": 3, "config": {"task": "language_modeling"}},
            "written by `rskip lm train`: give the folder",
        ),
        ({"settings": {}, "optimiser": {}, "iteration": 3}, "written by `rskip vision train`"),
    ],
)
def test_a_pt_of_another_program(tmp_path, state, message):
    torch.save(state, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=message):
        read_checkpoint(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"format": "rskip-4", "config": "{}"}, "has the format 'rskip-4', .* install a newer rskip"),
        (None, r"expected a model of rskip, or config\.json next to it"),
        ({"format": "rskip-1"}, "damaged metadata: task is missing"),
        ({"format": "rskip-1", "config": "[" * 100_000}, "damaged metadata: config: nested"),
        ({"format": "rskip-1", "config": json.dumps({**CONFIG, "model": None})}, "damaged metadata: model is None"),
        ({"format": "rskip-1", "config": json.dumps(CONFIG), "tied": '{"b": "c"}'}, "b is tied to c, which is missing"),
    ],
)
def test_safetensors_of_another_program_or_a_later_version(tmp_path, metadata, message):
    save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors", metadata=metadata)
    with pytest.raises(ValueError, match=message):
        read_checkpoint(tmp_path / "a.safetensors")


def test_missing_file_and_unknown_suffix(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.pt"):
        read_checkpoint(tmp_path / "none.pt")
    with pytest.raises(ValueError, match="the name of a checkpoint ends in .pt or .safetensors"):
        read_checkpoint(tmp_path / "model.bin")
    with pytest.raises(ValueError, match="the name of a checkpoint ends in .pt or .safetensors"):
        write_checkpoint(tmp_path / "model", Checkpoint(model={}, config=CONFIG))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"old")
    big = Checkpoint(model={"a": torch.ones(1000, 1000)}, config=CONFIG)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError) as caught:
            write_checkpoint(path, big)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path)), "as of a full disk"
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
