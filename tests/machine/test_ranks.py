"""torchrun's processes."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as distributed
from torch.distributed.distributed_c10d import _get_default_timeout as default_timeout

from rskip.machine import ranks
from rskip.machine.ranks import Ranks


def test_ranks_are_torchruns(monkeypatch: pytest.MonkeyPatch) -> None:
    for variables, expected in (
        ((), Ranks(0, 1, 0)),
        (("0", "1", "0"), Ranks(0, 1, 0)),
        (("5", "8", "1"), Ranks(5, 8, 1)),
    ):
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            monkeypatch.delenv(name, raising=False)
        for name, value in zip(("RANK", "WORLD_SIZE", "LOCAL_RANK"), variables, strict=False):
            monkeypatch.setenv(name, value)
        assert Ranks.from_environment() == expected


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"WORLD_SIZE": "two"}, r"^WORLD_SIZE is 'two' in the environment: expected a number, as torchrun sets it"),
        ({"WORLD_SIZE": "2", "RANK": "x"}, r"^RANK is 'x' in the environment"),
        ({"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "-1"}, r"^LOCAL_RANK is '-1' in the environment"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, r"^RANK is 2 and WORLD_SIZE 2 in the environment: expected a rank below 2$"),
        ({"RANK": "x"}, None),
    ],
)
def test_variables_that_torchrun_would_not_set(monkeypatch: pytest.MonkeyPatch, variables, error) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if error is None:
        assert Ranks.from_environment() == Ranks()
        return
    with pytest.raises(ValueError, match=error):
        Ranks.from_environment()


def test_every_item_is_one_ranks() -> None:
    assert [list(Ranks(rank, 3).share(range(7))) for rank in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
    assert list(Ranks().share("ab")) == ["a", "b"]


def test_one_process_waits_for_nobody() -> None:
    alone, tensor = Ranks(), torch.tensor([1, 2])
    with alone.process_group("gloo"):
        alone.wait()
        for reduced in (alone.sum(tensor), alone.min(tensor), alone.max(tensor)):
            assert reduced.tolist() == [1, 2] and reduced is not tensor
    with pytest.raises(ValueError, match="mine"), alone.together():
        raise ValueError("mine")


def test_a_group_of_its_own_is_ended_and_a_rank_that_stopped_is_a_users_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    for name in ("init_process_group", "destroy_process_group"):
        monkeypatch.setattr(distributed, name, lambda *_, name=name, **__: calls.append(name))
    for error, expected in (
        (distributed.DistNetworkError("closed"), "^another process of this torchrun stopped: see its message; again$"),
        (RuntimeError("[Gloo] connection closed by peer"), "^another process of this torchrun stopped"),
        (RuntimeError("mine"), "^mine$"),
    ):
        group = Ranks(0, 2).process_group("gloo", advice="; again")
        with pytest.raises((ValueError, RuntimeError), match=expected), group:
            raise error
    assert calls == ["init_process_group", "destroy_process_group"] * 3
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    with Ranks(0, 2).process_group("x"):
        pass
    assert len(calls) == 6  # a group that the program has is left


def test_what_ranks_compute_together_leaves_their_own_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def all_reduce(tensor: torch.Tensor, operation: object) -> None:
        asked.append(operation)
        tensor += 1

    monkeypatch.setattr(distributed, "all_reduce", all_reduce)
    ranks, tensor = Ranks(0, 2), torch.tensor([1, 2])
    assert all(reduce(tensor).tolist() == [2, 3] for reduce in (ranks.sum, ranks.min, ranks.max))
    ranks.wait()
    operations = distributed.ReduceOp
    assert tensor.tolist() == [1, 2]
    assert asked == [operations.SUM, operations.MIN, operations.MAX, operations.SUM]


def test_of_ranks_that_fail_together_the_first_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others end silently with the exit status of a user's mistake."""
    monkeypatch.setattr(ranks, "_REPORTING_SECONDS", 0.0)
    for own_fails, first_failed, expected in ((True, 1, ValueError), (True, 0, SystemExit), (False, 0, SystemExit)):
        monkeypatch.setattr(Ranks, "min", lambda self, tensor, first=first_failed: tensor.clamp(max=first))
        with pytest.raises(expected) as error, Ranks(1, 2, 1).together():
            if own_fails:
                raise ValueError("mine")
        assert str(error.value) == ("mine" if expected is ValueError else "2")
    monkeypatch.setattr(Ranks, "min", lambda self, tensor: tensor)
    with Ranks(1, 2, 1).together():
        pass


def test_the_default_time_outs_are_those_that_the_guides_name() -> None:
    """docs/fairseq.md names the time-outs of nccl and gloo."""
    assert default_timeout("gloo") == default_timeout("cpu:gloo,cuda:nccl") == timedelta(minutes=30)
    if distributed.is_nccl_available():
        assert default_timeout("nccl") == timedelta(minutes=10)
