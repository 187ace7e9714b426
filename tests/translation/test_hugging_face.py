"""Translators of Marian folders. test_hugging_face_families.py has what they share with other folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.settings.errors import SettingError
from rskip.translation import Translation, Translator
from tests.checkpoint.hugging_face.conftest import write_marian

LINES = ["the dog runs", "", "two cats sleep near our old house.", "unknown 😀\u00a0words \u200b"]
SEARCH = {"beam": 4, "nbest": 2, "max_length_a": 0, "max_length_b": 12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_marian(tmp_path_factory.mktemp("models") / "opus-mt-en-de")


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return Translator.from_pretrained(folder)


def assert_same(ours: list[Translation], theirs: list[Translation], *, tolerance: float = 1e-5) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert [each.text for each in one.hypotheses] == [each.text for each in other.hypotheses]
        scores = [each.score for each in other.hypotheses]
        assert [each.score for each in one.hypotheses] == pytest.approx(scores, abs=tolerance)


def refused(*arguments: object, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that the command ends with."""
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_import_finds_the_model_as_translate_does(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["import", "huggingface", "--output", tmp_path / "imported", "--model"]
    for name, told in (
        ("Helsinki-NLP/opus-mt-en-de", ", or hf:Helsinki-NLP/opus-mt-en-de for the model of the Hugging Face Hub"),
        (tmp_path / "nowhere", "nowhere: expected the folder of a Hugging Face model\n"),
        (tmp_path, f"{tmp_path} has no config.json of transformers: expected the folder"),
    ):
        assert told in refused(*command, name, capsys=capsys)
    assert main([*map(str, command), str(folder / "model.safetensors")]) == 0


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (["metadata.json", "model/model.bin", "model/config.json", "sentencepiece.model"], "Argos"),
        (["model.bin", "config.json", "shared_vocabulary.json"], "CTranslate2"),
        (["model.npz", "decoder.yml", "vocab.yml"], "convert_marian_to_pytorch.py"),
    ],
)
def test_folders_of_other_libraries_are_named(
    files: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert told in refused("translate", "--model", tmp_path, __file__, capsys=capsys)


def test_a_folder_has_its_own_dictionaries(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="leave it out"):
        Translator.from_pretrained(folder, dictionaries=tmp_path)


def test_a_model_for_several_target_languages(tmp_path: Path) -> None:
    """The token that the text may begin with comes from the target language, on every part of a split line."""
    model, imported = write_marian(tmp_path / "model", languages=["fra", "deu"]), tmp_path / "imported"
    with pytest.raises(SettingError, match="^target_language must be given: expected one of .*deu, fra$"):
        Translator.from_pretrained(model)
    plain = Translator.from_pretrained(model, target_language="de")  # as the folder calls all its target languages
    inline = plain.translate([f">>fra<< {line}" for line in LINES if line], **SEARCH)
    note = "it doesn't begin with a language token of the model, such as >>fra<<"
    assert not any(note in translation.notes for translation in inline)
    for translation in plain.translate([LINES[0], f">>fry<< {LINES[0]}"], **SEARCH):
        assert note in translation.notes
    assert not plain.translate([""])[0].notes
    assert main(["import", "huggingface", "--model", str(model), "--output", str(imported)]) == 0
    for folder in (model, imported):
        french = Translator.from_pretrained(folder, target_language="fr")  # two letters stand for its only code
        assert_same(french.translate([line for line in LINES if line], **SEARCH), inline)
        german = plain.translate([">>deu<< " + LINES[0]], **SEARCH)
        assert_same(french.translate([LINES[0]], target_language="deu", **SEARCH), german)
        alone = french.translate([LINES[0]], **SEARCH)
        for prefix, notes in ((">>fra<< ", 0), (">>fra<< >>fra<<", 0), (">>deu<< ", 1), (">>deu<< >>fra<< ", 1)):
            (found,) = french.translate([prefix + LINES[0]], **SEARCH)
            assert_same([found], alone)  # the token is there once
            assert sum("begins with >>deu<<, but is translated as for >>fra<<" in note for note in found.notes) == notes
        with pytest.raises(SettingError, match="target_language is 'fry'.*expected one of .*deu, fra"):
            Translator.from_pretrained(folder, target_language="fry")
        with pytest.raises(SettingError, match="target_language must be given: expected one of .*deu, fra"):
            Translator.from_pretrained(folder)
    token = french.tokenizer.source.index(">>fra<<")
    (source,) = french.read(["the dog runs over a green field. " * 20], french.options)
    assert len(source.segments) > 1
    assert all(segment.source[0] == token for segment in french._segments(source))
    dogs = "The dog runs over a field. " * 20
    for split in (True, False):
        (source,) = plain.read([f">>fra<< {dogs}>>deu<< {dogs}"], plain.options, split_sentences=split)
        assert {segment[0] for segment in source.segments} == ({">>fra<<", ">>deu<<"} if split else {">>fra<<"})
        assert len(source.segments) > 2 and len(source.notes) == (not split)
        assert max(map(len, source.segments)) < plain.model.max_source_positions
