"""Raw sentences to model tokens and back."""

import json
from pathlib import Path

import pytest

from rskip.text import TextConfig, TextPipeline
from rskip.text.added import AddedToken
from rskip.text.subwords import BytePairEncoding, SentencePiece

ENGLISH = ["A dog-sled runs.", "The man's dogs run.", "Dogs and men run and run."]
GERMAN = ["Ein Hundeschlitten fährt.", "Die Hunde des Mannes laufen.", "Hunde und Männer laufen und laufen."]


@pytest.fixture
def pipeline() -> TextPipeline:
    units = BytePairEncoding.learn(ENGLISH + GERMAN, size=12)
    return TextPipeline(TextConfig(source_language="en", target_language="de", versions={"tool": "1"}), units)


def test_source_and_target_have_their_own_rules(pipeline: TextPipeline) -> None:
    whole = TextPipeline(pipeline.config, BytePairEncoding("#version: 0.2\nl o\n"))
    join = BytePairEncoding("#version: 0.2\nl o\n").join
    assert join(whole.encode("The man’s dog-sled")) == "The man &apos;s dog @-@ sled"
    assert join(whole.encode_target("Wie geht’s")) == "Wie geht &apos; s"


@pytest.mark.parametrize("sentence", [*GERMAN, 'Er rief: "Lauf, Hund!"', "Hunde-Schlitten (neu) & mehr.", ""])
def test_decode_inverts_encode_target(pipeline: TextPipeline, sentence: str) -> None:
    assert pipeline.decode(pipeline.encode_target(sentence)) == sentence


def test_saved_and_loaded_it_is_the_same(pipeline: TextPipeline, tmp_path: Path) -> None:
    pipeline.save(tmp_path / "text")
    assert sorted(path.name for path in (tmp_path / "text").iterdir()) == ["codes.bpe", "pipeline.json"]
    loaded = TextPipeline.load(tmp_path / "text")
    assert loaded.config == pipeline.config
    assert (loaded.source_language, loaded.target_language) == ("en", "de")
    for sentence in ENGLISH:
        assert loaded.encode(sentence) == pipeline.encode(sentence)
    loaded.save(tmp_path / "again")
    for name in ("codes.bpe", "pipeline.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "text" / name).read_bytes()


def test_words_are_lowercased_after_they_are_tokenised(pipeline: TextPipeline, tmp_path: Path) -> None:
    lower = pipeline.changed(lowercase=True)
    assert lower.encode("THE MAN'S Dog-Sled runs.") == pipeline.encode("the man's dog-sled runs.")
    assert lower.encode_target("DIE HÜNDE") == pipeline.encode_target("die hünde")
    assert lower.decode("Ein Hund .") == "Ein Hund."
    lower.save(tmp_path)
    assert TextPipeline.load(tmp_path).config == lower.config
    pipeline.save(tmp_path)
    assert "lowercase" not in json.loads((tmp_path / "pipeline.json").read_text())


def test_sentencepiece_takes_raw_text(tmp_path: Path) -> None:
    config = TextConfig(source_language="en", target_language="de", tokeniser="none", subwords="sentencepiece")
    pipeline = TextPipeline(config, SentencePiece.learn((ENGLISH + GERMAN) * 5, size=60))
    pipeline.save(tmp_path)
    loaded = TextPipeline.load(tmp_path)
    for sentence in GERMAN:
        assert loaded.encode_target(sentence).replace(" ", "") == "\u2581" + sentence.replace(" ", "\u2581")
        assert loaded.decode(loaded.encode_target(sentence)) == sentence


def test_added_tokens_stay_whole_and_are_saved(tmp_path: Path) -> None:
    hidden = AddedToken(content="<hidden>", special=True)
    config = TextConfig(
        source_language="en", target_language="de", tokeniser="none", subwords="sentencepiece",
        added_tokens=(AddedToken(content="<name>"), hidden),
    )  # fmt: skip
    TextPipeline(config, SentencePiece.learn(ENGLISH * 5, size=40)).save(tmp_path)
    loaded = TextPipeline.load(tmp_path)
    assert loaded.config == config
    units = loaded.encode("dogs <name><hidden>run")
    assert units == f"{loaded.encode('dogs')} \u2581 <name> <hidden> {loaded.encode('run')}"
    assert loaded.decode(units) == "dogs <name> run"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer": "moses"}, r"\.json: unknown key tokenizer; did you mean tokeniser"),
        ({"source_language": None}, r"pipeline\.json: source_language is missing"),
        ({"source_language": "x/../../y"}, "source_language is 'x/../../y': expected a language"),
        ({"tokeniser": "mosse"}, "tokeniser is 'mosse': expected moses or none"),
        ({"subwords": "wordpiece"}, "subwords is 'wordpiece': expected bpe, "),
    ],
)
def test_configurations_that_are_not(
    pipeline: TextPipeline, tmp_path: Path, change: dict[str, str | None], message: str
) -> None:
    pipeline.save(tmp_path)
    path = tmp_path / "pipeline.json"
    values = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    with pytest.raises(ValueError, match=message):
        TextPipeline.load(tmp_path)


def test_files_that_are_missing(pipeline: TextPipeline, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no text pipeline in .*: expected pipeline\.json"):
        TextPipeline.load(tmp_path)
    pipeline.save(tmp_path)
    (tmp_path / "codes.bpe").unlink()
    with pytest.raises(FileNotFoundError, match=r"codes\.bpe"):
        TextPipeline.load(tmp_path)
    (tmp_path / "pipeline.json").write_text("{")
    with pytest.raises(ValueError, match=r"pipeline\.json: not valid JSON"):
        TextPipeline.load(tmp_path)
