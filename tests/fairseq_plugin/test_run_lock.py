"""A training whose run was taken over saves nothing more."""

from __future__ import annotations

from pathlib import Path

import pytest

from rskip.files.folder_lock import folder_lock

pytest.importorskip("fairseq")


def test_no_checkpoint_is_saved_once_the_lock_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairseq import checkpoint_utils

    from rskip.fairseq_plugin import run_lock
    from rskip.fairseq_plugin.one_line_errors import UsageError

    monkeypatch.setattr(checkpoint_utils, "torch_persistent_save", checkpoint_utils.torch_persistent_save)
    monkeypatch.setattr(run_lock, "end_with_parent", lambda: None)
    run_lock.install()
    assert not hasattr(checkpoint_utils.torch_persistent_save, "__wrapped__"), "it was not started by rskip run"
    with folder_lock(tmp_path / "run", busy="") as lock:
        for name, value in lock.environment().items():
            monkeypatch.setenv(name, value)
        for _ in range(2):
            run_lock.install()
        checkpoint_utils.torch_persistent_save({"a": 1}, str(tmp_path / "first.pt"))
        lock.path.rename(tmp_path / "run/lock.2")
        with pytest.raises(UsageError, match="was taken over by process"):
            checkpoint_utils.torch_persistent_save({"a": 1}, str(tmp_path / "second.pt"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.pt", "run"]
