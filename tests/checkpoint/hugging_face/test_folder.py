"""Reading the folders that transformers writes: which files belong to a model, and which folders are refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from rskip.checkpoint.hugging_face import Folder, folder_at

WEIGHTS = {"a.weight": torch.arange(6.0).view(2, 3), "a.bias": torch.ones(2, dtype=torch.float16)}


def write_folder(
    path: Path, *, config: dict[str, Any] | None = None, tensors: dict[str, Tensor] | None = WEIGHTS
) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": "marian"} if config is None else config))
    if tensors is not None:
        save_file(tensors, path / "model.safetensors")
    return path


def assert_weights(folder: Path) -> None:
    tensors = Folder(folder).tensors
    assert tensors.keys() == WEIGHTS.keys()
    for name, tensor in WEIGHTS.items():
        assert torch.equal(tensors[name], tensor) and tensors[name].dtype == tensor.dtype


def one_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    (line,) = str(error.value).splitlines()
    return line


def shards(path: Path, suffix: str, save: Any) -> Path:
    folder = write_folder(path, tensors=None)
    files = {name: f"{suffix[1:]}-{number}-of-00002{suffix}" for number, name in enumerate(WEIGHTS)}
    for name, file in files.items():
        save({name: WEIGHTS[name]}, folder / file)
    index = "model.safetensors" if suffix == ".safetensors" else "pytorch_model.bin"
    (folder / f"{index}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return folder


def test_weights_are_read_from_one_file_or_shards(tmp_path):
    assert_weights(write_folder(tmp_path / "safetensors"))
    torch.save(WEIGHTS, write_folder(tmp_path / "bin", tensors=None) / "pytorch_model.bin")
    assert_weights(tmp_path / "bin")
    assert_weights(shards(tmp_path / "shards", ".safetensors", save_file))
    assert_weights(shards(tmp_path / "shards of bin", ".bin", torch.save))


def test_a_folder_is_known_by_its_config_or_its_weights_file(tmp_path):
    folder = write_folder(tmp_path / "theirs")
    assert folder_at(folder) == folder_at(folder / "model.safetensors") == folder
    ours = write_folder(tmp_path / "ours", config={"format": 1, "task": "translation", "model": {}})
    for other in (ours, ours / "model.safetensors", tmp_path, tmp_path / "nowhere", folder / "config.json"):
        assert folder_at(other) is None
    (ours / "adapter_config.json").write_text("{}")
    assert folder_at(ours) == ours


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_a_missing_shard_is_named(tmp_path, suffix):
    folder = shards(tmp_path / "model", suffix, save_file if suffix == ".safetensors" else torch.save)
    lost = sorted(folder.glob(f"*-1-*{suffix}"))[0]
    lost.unlink()
    with pytest.raises(FileNotFoundError) as error:
        _ = Folder(folder).tensors
    assert f"{lost.name} is missing" in one_line(error)


def test_a_shard_outside_the_folder_is_not_read(tmp_path):
    folder = shards(tmp_path / "model", ".safetensors", save_file)
    save_file(WEIGHTS, tmp_path / "other.safetensors")
    places = dict.fromkeys(WEIGHTS, "../other.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    with pytest.raises(FileNotFoundError, match=r"\.\./other\.safetensors is missing"):
        _ = Folder(folder).tensors


def test_folders_that_need_more_than_their_weights_are_refused(tmp_path):
    for number, (setting, told) in enumerate(
        (
            ({"quantization_config": {"quant_method": "gptq"}}, "quantised weights ('gptq')"),
            ({"auto_map": {"AutoModel": "code.Model"}}, "never runs"),
        )
    ):
        with pytest.raises(ValueError) as error:
            Folder(write_folder(tmp_path / str(number), config={"model_type": "marian", **setting}))
        assert told in one_line(error) and str(tmp_path / str(number) / "config.json") in one_line(error)
    mark = {"quantization_config": {"quant_method": "gguf"}}  # of a model that transformers read from a GGUF file
    Folder(write_folder(tmp_path / "gguf", config={"model_type": "marian", **mark}))


def test_an_adapter_is_refused_with_the_model_that_it_is_for(tmp_path):
    (write_folder(tmp_path / "model") / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}')
    with pytest.raises(ValueError, match="adapter") as error:
        Folder(tmp_path / "model")
    assert "some/base" in one_line(error) and "merge" in one_line(error)


def test_weights_that_are_not_there_or_not_whole(tmp_path):
    folder = write_folder(tmp_path / "model", tensors=None)
    (folder / "tf_model.h5").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"tf_model\.h5 can't be read"):
        _ = Folder(folder).tensors
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(ValueError, match="git lfs pull"):
        _ = Folder(folder).tensors
    (folder / "model.safetensors").write_bytes(b"\1" * 40)
    with pytest.raises(ValueError, match="truncated or damaged") as error:
        _ = Folder(folder).tensors
    one_line(error)


def test_weights_of_distributed_data_parallel_are_read(tmp_path):
    wrapped = {f"module.{name}": tensor for name, tensor in WEIGHTS.items()}
    assert Folder(write_folder(tmp_path / "model", tensors=wrapped)).tensors.keys() == WEIGHTS.keys()


class Harmful:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["HARM"],)


def test_nothing_in_a_pickle_is_executed(tmp_path, monkeypatch):
    monkeypatch.setenv("HARM", str(tmp_path / "harm"))
    torch.save({"a": Harmful()}, write_folder(tmp_path / "model", tensors=None) / "pytorch_model.bin")
    with pytest.raises(ValueError, match="which could run code") as error:
        _ = Folder(tmp_path / "model").tensors
    one_line(error)
    assert not (tmp_path / "harm").exists()
