"""Files of torch.save are read without PyTorch as PyTorch reads them."""

from __future__ import annotations

import pickle
from collections import OrderedDict

import numpy as np
import pytest
import torch

from rskip.files.torch_arrays import read_torch_arrays


def tensors():
    torch.manual_seed(1)
    table = torch.randn(7, 4)
    return OrderedDict(
        table=table, tied=table, row=table[2], columns=table.t()[1:3], half=torch.randn(3).half(),
        brain=torch.randn(2, 3).bfloat16(), double=torch.randn(2).double(), count=torch.tensor(3),
        none=torch.empty(0, 2), parameter=torch.nn.Parameter(torch.randn(2)),
    )  # fmt: skip


@pytest.mark.parametrize("zipped", [True, False], ids=["archive", "before 1.6"])
def test_tensors_of_every_kind(tmp_path, zipped):
    torch.save(tensors(), tmp_path / "a.bin", _use_new_zipfile_serialization=zipped)
    found, expected = read_torch_arrays(tmp_path / "a.bin"), tensors()
    assert found.keys() == expected.keys() and found["table"] is found["tied"]
    for name, tensor in expected.items():
        tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor.detach()
        np.testing.assert_array_equal(found[name], tensor.numpy(), strict=True)


class Attack:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize("content", ["code", "list", "cut", "text", "overrun"])
@pytest.mark.parametrize("zipped", [True, False], ids=["archive", "before 1.6"])
def test_other_files_are_refused_in_one_line_and_run_nothing(tmp_path, capsys, content, zipped):
    path = tmp_path / "a.bin"
    given = {"code": {"a": Attack()}, "list": [1]}.get(content, tensors())
    torch.save(given, path, _use_new_zipfile_serialization=zipped)
    if content == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    if content == "text":
        path.write_text("text")
    if content == "overrun":
        path.write_bytes(path.read_bytes().replace(pickle.dumps(7)[2:-1] + b"K\x04\x86", b"K\x70K\x04\x86"))
    with pytest.raises(ValueError, match="a.bin can't be read: ") as error:
        read_torch_arrays(path)
    assert "\n" not in str(error.value) and capsys.readouterr().out == ""
