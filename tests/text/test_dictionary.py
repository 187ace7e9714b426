"""The numbers of model tokens."""

from pathlib import Path

import pytest

from rskip.text import Dictionary

LINES = """\
der 40
die 30
@-@ 7
&quot; 7
Hund 1
<unk> 2 #fairseq:overwrite
madeupword0000 0
madeupword0001 0
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "dict.de.txt"
    path.write_text(LINES, encoding="utf-8")
    return path


def test_special_tokens_then_the_files_order(path: Path) -> None:
    dictionary = Dictionary.load(path)
    assert dictionary.tokens[:6] == ["<s>", "<pad>", "</s>", "<unk>", "der", "die"]
    assert len(dictionary) == 12
    assert dictionary.index("der") == 4
    assert dictionary.index("madeupword0001") == 11
    assert dictionary.index("Katze") == dictionary.unk_index == 3
    assert "Hund" in dictionary and "Katze" not in dictionary


def test_a_byte_order_mark_is_dropped_and_only_a_line_feed_ends_a_line(path: Path) -> None:
    path.write_bytes("\ufeffder 4\r\na\rb 3\nc\u2028d 2\n".encode())
    assert Dictionary.load(path).tokens[4:] == ["der", "a\rb", "c\u2028d"]


def test_every_index_is_fairseqs(path: Path) -> None:
    pytest.importorskip("fairseq")
    from fairseq.data import Dictionary as Theirs

    ours, theirs = Dictionary.load(path), Theirs.load(str(path))
    assert ours.tokens == theirs.symbols
    assert (ours.bos_index, ours.pad_index, ours.eos_index, ours.unk_index) == (
        theirs.bos(),
        theirs.pad(),
        theirs.eos(),
        theirs.unk(),
    )
    for token in [*theirs.symbols, "Katze"]:
        assert ours.index(token) == theirs.index(token)
    line = "der  Hund \t und die Katze <unk> @-@"
    encoded = theirs.encode_line(line, add_if_not_exist=False).tolist()
    assert ours.encode_line(line) == encoded
    assert ours.decode(encoded) == theirs.string(encoded)


@pytest.mark.parametrize(
    "content",
    [
        "▁the -1\n▁a -2\ns -3\n",
        "a 1_000\nb +2\nc \t3\nd ٣\n",
        "a 1\rb 2\r\nc 3\x85d 4",  # only a line feed ends a line
        "a  1\n 2\n  3 \t \n　 4\n\ufeffa 5\n",  # tokens with spaces, an empty one, a byte order mark
        "a 1\na 2 #fairseq:overwrite\n</s> 3 #fairseq:overwrite\na 4 #fairseq:overwrite\n",
        "b ²\n", "b 1.0\n", "b\n", "b 1\n\n", "1\n", "b 1 #fairseq:other\n",
        "#fairseq:overwrite\n", "b #fairseq:overwrite\n", "b 1  #fairseq:overwrite\n", "b 1\nb 2\n", "<s> 1\n",
        b"\xff 1\n",
    ],
)  # fmt: skip
def test_what_fairseq_reads_is_read_and_what_it_refuses_is_refused(path: Path, content: str | bytes) -> None:
    pytest.importorskip("fairseq")
    from fairseq.data import Dictionary as Theirs

    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    try:
        theirs = Theirs.load(str(path))
    except Exception:
        with pytest.raises(ValueError, match="line [12] "):
            Dictionary.load(path)
        return
    ours = Dictionary.load(path)
    assert ours.tokens == theirs.symbols
    assert [ours.index(token) for token in ours.tokens] == [theirs.index(token) for token in theirs.symbols]


def test_decode_drops_what_frames_a_sentence(path: Path) -> None:
    dictionary = Dictionary.load(path)
    assert dictionary.decode([0, 4, 3, 8, 2, 1, 1]) == "der <unk> Hund"


def test_files_that_are_no_dictionaries(path: Path) -> None:
    for lines, message in (
        ("der 4\ndie\n", "line 2 is not a token, a space and its count: 'die'"),
        ("der 4\ndie 3\nder 2\n", "line 3 has the token 'der' a second time"),
    ):
        path.write_text(lines, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            Dictionary.load(path)
