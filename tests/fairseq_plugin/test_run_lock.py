"""A training whose run was taken over saves nothing more, and only one training writes to a --save-dir."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairseq_compat.one_line_errors import UsageError
from rskip.fairseq_plugin.patches import run_lock
from rskip.files.folder_lock import folder_lock

pytest.importorskip("fairseq")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """As much of fairseq.checkpoint_utils as the patch changes."""
    monkeypatch.setattr(run_lock, "end_with_parent", lambda: ended_with_parent.append(True))
    ended_with_parent: list[bool] = []
    saved: list[str] = []
    return SimpleNamespace(
        torch_persistent_save=saved.append,
        load_checkpoint=lambda cfg, trainer: cfg.save_dir,
        saved=saved,
        ended_with_parent=ended_with_parent,
    )


def test_no_checkpoint_is_saved_once_the_lock_is_lost(module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with folder_lock(tmp_path / "run", busy="") as lock:
        for name, value in lock.environment().items():
            monkeypatch.setenv(name, value)
        run_lock.check_lock(module)
        assert module.ended_with_parent
        module.torch_persistent_save("first")
        lock.path.unlink()
        with pytest.raises(UsageError, match="is gone: this process stops"):
            module.torch_persistent_save("second")
    assert module.saved == ["first"]


@pytest.fixture
def begin(module, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Begins a training with tmp_path / "save"."""

    def begin(*, no_save: bool = False, first: bool = True) -> str:
        cfg = SimpleNamespace(save_dir=str(tmp_path / "save"), no_save=no_save)
        return module.load_checkpoint(cfg, SimpleNamespace(is_data_parallel_master=first))

    run_lock.check_lock(module)
    yield begin
    run_lock._held.close()


def test_one_training_per_save_dir(module, begin, tmp_path: Path) -> None:
    with folder_lock(tmp_path / "save", busy=""):
        with pytest.raises(UsageError) as error:
            begin()
        assert str(error.value) == (
            f"--save-dir {tmp_path}/save is in use by another training run (process {os.getpid()}): wait for it, or "
            "choose another"
        )
        begin(no_save=True)
        begin(first=False)
    distributed = SimpleNamespace(call_main=begin)
    run_lock.release_lock(distributed)
    distributed.call_main()
    with folder_lock(tmp_path / "save", busy=""):  # released at the end of the training
        pass
    begin()
    with pytest.raises(ValueError, match="^busy$"), folder_lock(tmp_path / "save", busy="busy"):
        pass
    module.torch_persistent_save("first")
    (tmp_path / "save" / "lock").unlink()
    with pytest.raises(UsageError, match="this process stops"):
        module.torch_persistent_save("second")
    assert module.saved == ["first"]
