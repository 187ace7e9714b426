"""Silence about fairseq's own code, and about nothing else."""

from __future__ import annotations


def test_import_does_not_warn(python):
    assert "Warning" not in python("import fairseq", fairseq=False).stderr


def test_other_warnings_are_shown(python):
    process = python(
        """
        import fairseq, warnings
        for category in (UserWarning, FutureWarning, DeprecationWarning, RuntimeWarning):
            warnings.warn("something else", category)
        """
    )
    for category in ("UserWarning", "FutureWarning", "DeprecationWarning", "RuntimeWarning"):
        assert f"{category}: something else" in process.stderr
