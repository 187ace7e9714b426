"""A training whose run was taken over saves nothing more."""

from __future__ import annotations

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
    return SimpleNamespace(torch_persistent_save=saved.append, saved=saved, ended_with_parent=ended_with_parent)


def test_no_checkpoint_is_saved_once_the_lock_is_lost(module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with folder_lock(tmp_path / "run", busy="") as lock:
        for name, value in lock.environment().items():
            monkeypatch.setenv(name, value)
        run_lock.check_lock(module)
        assert module.ended_with_parent
        module.torch_persistent_save("first")
        lock.path.rename(tmp_path / "run/lock.2")
        with pytest.raises(UsageError, match="was taken over by process"):
            module.torch_persistent_save("second")
    assert module.saved == ["first"]


def test_a_training_that_no_run_started_saves(module) -> None:
    run_lock.check_lock(module)
    module.torch_persistent_save("first")
    assert module.saved == ["first"] and not module.ended_with_parent
