"""Stop strings in a text that comes in parts."""

from __future__ import annotations

import random

from rskip.language_modeling.stopping import StopStrings


def test_a_stop_string_is_found_wherever_parts_end_and_no_part_of_it_is_passed_on():
    rng = random.Random(1)
    for _ in range(3000):
        text = "".join(rng.choices("ab\n", k=rng.randrange(12)))
        stop = ["".join(rng.choices("ab\n", k=rng.randrange(4))) for _ in range(rng.randrange(3))]
        cuts = sorted(rng.choices(range(len(text) + 1), k=3))
        parts = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        found = StopStrings(stop)
        ends = [(text.find(each) + len(each), text.find(each)) for each in stop if each and each in text]
        assert "".join(found.before(parts)) == text[: min(ends, default=(0, len(text)))[1]]
        assert found.found == bool(ends)


def test_a_text_waits_only_where_a_stop_string_may_begin():
    assert [*StopStrings(["cat"]).before(["a c", "a", "r c", "atch"])] == ["a ", "car "]
