"""The settings in which two pieces of work differ, as errors list them."""

from __future__ import annotations

import pytest

from rskip.settings.differences import differences


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"beam": 4, "seed": None}, {"beam": 5, "seed": 1}, ["beam: 4, now 5", "seed: not set, now 1"]),
        ({"train": {"lr": 0.1, "bf16": True}}, {"train": {"lr": 0.2, "bf16": False}},
         ["train.lr: 0.1, now 0.2", "train.bf16: yes, now no"]),
        ({"a": None}, {}, []),
        ({"model": {"path": "a", "sha256": "1"}}, {"model": {"path": "b", "sha256": "1"}}, []),
        ({"model": {"path": "a", "sha256": "1"}}, {"model": {"path": "b", "sha256": "2"}}, ["model: a, now b"]),
        ({"model": {"path": "a", "sha256": "1"}}, {"model": {"path": "a", "sha256": "2"}},
         ["model: a, but its files have changed since the earlier run"]),
        ({"files_sha256": "1"}, {"files_sha256": "2"}, ["files: the content has changed since the earlier run"]),
    ],
)  # fmt: skip
def test_settings_that_differ(before, now, expected):
    assert differences(before, now) == expected
