"""The address of a run, and the name that it had before."""

from __future__ import annotations

from pathlib import Path

import pytest

from rskip.records.address import new_addresses, run_address, run_path
from rskip.settings.errors import SettingError


def test_a_run_is_addressed_by_recipe_variant_and_overrides() -> None:
    assert run_address("a", "b") == run_address("a", "b", {}) == "a/b" and run_address("a", None) == "a"
    # sha256 of {"average.last":2,"train.lr":0.003}
    assert run_address("a", "b", {"train.lr": 0.003, "average.last": 2}) == "a/b-54661a6c"
    assert run_address("a", None, {"average.last": 2, "train.lr": 0.003}) == "a-54661a6c"


def test_what_only_the_old_name_has_is_found_there(tmp_path: Path) -> None:
    new, old = tmp_path / "a/b/1.json", tmp_path / "a_b/1.json"
    assert run_path(tmp_path, "a/b", "1.json") == new
    for path, found in ((old, old), (new, new)):
        path.parent.mkdir(parents=True)
        path.touch()
        assert run_path(tmp_path, "a/b", "1.json") == found


def test_old_names_stand_for_one_address_each() -> None:
    addresses = ["a/b_c", "x", "y/z"]
    assert new_addresses(["a_b_c", "x", "y/z", "y_z", "other"], addresses) == {"a_b_c": "a/b_c", "y_z": "y/z"}
    assert new_addresses(["a_b_c"], ["a/b_c", "a_b_c"]) == {}, "it is an address by itself"
    with pytest.raises(SettingError, match="the run a_b_c has two addresses: expected a/b_c or a_b/c"):
        new_addresses(["a_b_c"], ["a/b_c", "a_b/c"])
