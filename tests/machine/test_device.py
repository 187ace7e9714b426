"""The device that a user names."""

from __future__ import annotations

import pytest
import torch

from rskip.machine.device import bfloat16_is_slow, usable_device


def test_a_gpu_that_is_not_there(emulated_cuda):
    assert usable_device("cuda") == usable_device("cuda:0") == torch.device("cuda", 0)
    with pytest.raises(ValueError, match=r"^there is no device 'cuda:7': this machine has cuda:0$"):
        usable_device("cuda:7")


def test_several_gpus_one_of_which_lacks_bfloat16(emulated_cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: ((9, 0), (7, 5))[device.index])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [bfloat16_is_slow(torch.device("cuda", index)) for index in range(2)] == [False, True]
    with pytest.raises(ValueError, match=r"^there is no device 'cuda:2': this machine has cuda:0 to cuda:1$"):
        usable_device("cuda:2")
