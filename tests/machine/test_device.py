"""The device that a user names, and each process's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as distributed

from rskip.machine.device import bfloat16_is_slow, choose_device, gpu_of_its_own, usable_device
from rskip.machine.ranks import Ranks
from rskip.tasks.training import process_group


def test_a_gpu_that_is_not_there(emulated_cuda):
    assert usable_device("cuda") == usable_device("cuda:0") == torch.device("cuda", 0)
    with pytest.raises(ValueError, match=r"^no device 'cuda:7': this machine has cuda:0$"):
        usable_device("cuda:7")


def test_several_gpus_one_of_which_lacks_bfloat16(emulated_cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: ((9, 0), (7, 5))[device.index])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [bfloat16_is_slow(torch.device("cuda", index)) for index in range(2)] == [False, True]
    with pytest.raises(ValueError, match=r"^no device 'cuda:2': this machine has cuda:0 to cuda:1$"):
        usable_device("cuda:2")


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)


def test_the_chosen_gpu_is_the_current_one(four_gpus, monkeypatch):
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    for name, ranks, index in (("cuda:3", Ranks(), 3), (None, Ranks(1, 4, 1), 1)):
        assert choose_device(name, ranks) == torch.device("cuda", index) == current.pop()
    with pytest.raises(ValueError, match="^no GPU for 'cuda:4': PyTorch finds 4 on this machine"):
        choose_device("cuda:4", Ranks())


def test_each_process_has_the_gpu_of_its_number_where_there_are_enough(four_gpus, monkeypatch):
    ranks = Ranks(rank=6, count=8, local_rank=2)
    for here, expected in (("4", torch.device("cuda", 2)), ("5", None)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", here)
        assert gpu_of_its_own(ranks) == expected
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "x")
    with pytest.raises(ValueError, match="^LOCAL_WORLD_SIZE is 'x' in the environment"):
        gpu_of_its_own(ranks)
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert gpu_of_its_own(ranks) is None and gpu_of_its_own(Ranks()) is None


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (None, [("set_device", torch.device("cuda", 1)), ("cpu:gloo,cuda:nccl", torch.device("cuda", 1))]),
        ("cuda", [("set_device", torch.device("cuda", 1)), ("cpu:gloo,cuda:nccl", torch.device("cuda", 1))]),
        ("cuda:3", [("cpu:gloo,cuda:nccl", None)]),  # refused when all know each other
        ("cpu", [("gloo", None)]),
    ],
)
def test_a_gpu_is_the_current_one_before_nccl_begins(device, expected, four_gpus, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    calls: list[tuple[str, Any]] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda gpu: calls.append(("set_device", gpu)))
    begin = lambda backend, *, timeout, device_id: calls.append((backend, device_id))  # noqa: E731
    monkeypatch.setattr(distributed, "init_process_group", begin)
    monkeypatch.setattr(distributed, "destroy_process_group", lambda: None)
    with process_group(Ranks(rank=1, count=2, local_rank=1), device):
        assert calls == expected
