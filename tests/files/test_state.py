"""Reading state gives its type, or one line that names the file, the key, the expected value and the remedy."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
import pytest

from rskip.files.state import read_state, read_state_lines, state_line
from rskip.settings.errors import SettingError


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    number: Annotated[int, msgspec.Meta(ge=0)]
    share: float = 0.5
    places: list[int] = []


DAMAGED = [
    (b"", ": not valid JSON: Expecting value: line 1 column 1 (char 0)"),
    (b"{\"number\": 1", ": not valid JSON: Expecting ',' delimiter: line 1 column 13 (char 12)"),
    (b"\xff{}", ": not valid UTF-8 (byte 0)"),
    (b"[" * 100_000, ": nested more than 100 levels deep"),
    (b"null", ": it holds nothing: expected keys and values"),
    (b"[]", ": it holds a list: expected keys and values"),
    (b"{}", ": number is missing: expected a whole number, 0 or more"),
    (b'{"number": 1, "number": 2}', ": not valid JSON: key number is given twice: expected once"),
    (b'{"number": 1, "nmber": 2}', ": unknown key nmber"),
    (b'{"number": "1"}', ": number is '1': expected a whole number, 0 or more"),
    (b'{"number": %d}' % (2**65), f": number is {2**65}: expected a whole number, 0 or more, of at most 64 bits"),
    (b'{"number": 1, "share": NaN}', ": share is nan: expected a number"),
    (b'{"number": 1, "share": 1e999}', ": share is inf: expected a number"),
    (b'{"number": 1, "places": [1, [2]]}', ": places[1] is [2]: expected a whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "said"), DAMAGED)
def test_damaged_state_is_one_line(content, said, tmp_path):
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(SettingError) as error:
        read_state(path, Entry, advice="delete it to start again")
    assert str(error.value) == f"{path}{said}; delete it to start again"
    path.write_bytes(content + b"\n" + state_line(Entry(number=1)).encode())
    with pytest.raises(SettingError) as error:
        list(read_state_lines(path, Entry, advice="delete it"))
    assert str(error.value).startswith(f"{path}, line 1: ") and str(error.value).endswith("; delete it")


def test_state_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "state.json"
    entries = [Entry(number=number, share=number / 3, places=[number] * number) for number in range(3)]
    path.write_text("".join(map(state_line, entries)), encoding="utf-8")
    assert [entry for entry, _ in read_state_lines(path, Entry, advice="")] == entries
    path.write_text(json.dumps({"places": [], "share": 1, "number": 3}))
    assert read_state(path, Entry, advice="") == Entry(number=3, share=1.0)


@pytest.mark.parametrize("end", [b"", b'{"number": 2', b"\0" * 50, b"\0\n\0\n", b'{"number": "2"}\n', b"{}\n[]\n"])
def test_a_damaged_end_is_left_out(end, tmp_path):
    path = tmp_path / "lines.jsonl"
    head, entry = (state_line(each).encode() for each in ({"of": "a\u2028b"}, {"number": 7}))
    path.write_bytes(head + entry + end)
    lines = read_state_lines(path, Entry, advice="x", head=dict[str, Any])
    assert list(lines) == [({"of": "a\u2028b"}, len(head)), (Entry(number=7), len(head + entry))]
    read = read_state_lines(path, Entry, advice="x", head=dict[str, Any], finished=True)
    if end:
        with pytest.raises(SettingError, match="line 3: .*; x$"):
            list(read)
        path.write_bytes(head + end + (b"" if end.endswith(b"\n") else b"\n") + entry)
        with pytest.raises(SettingError, match="line 2: .*; x$"):  # the intact entry after it would be lost
            list(read_state_lines(path, Entry, advice="x", head=dict[str, Any]))
    else:
        assert len(list(read)) == 2
