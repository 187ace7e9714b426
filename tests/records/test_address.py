"""The address of a run."""

from __future__ import annotations

from rskip.records.address import run_address


def test_a_run_is_addressed_by_recipe_variant_and_overrides() -> None:
    assert run_address("a", "b") == run_address("a", "b", {}) == "a/b" and run_address("a", None) == "a"
    # sha256 of {"average.last":2,"train.lr":0.003}
    assert run_address("a", "b", {"train.lr": 0.003, "average.last": 2}) == "a/b-54661a6c"
    assert run_address("a", None, {"average.last": 2, "train.lr": 0.003}) == "a-54661a6c"
