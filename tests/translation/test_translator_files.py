"""Where a model's files are found, and the errors if they are not."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rskip.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rskip.settings.errors import SettingError
from rskip.text import TextPipeline, Tokenizer
from rskip.text.finding import TEXT_SETTINGS, AssumedText, TokenizerSettings
from rskip.text.subwords import SentencePiece
from rskip.translation import Translator
from rskip.translation.model_files import open_model

DOG = "A dog runs through the tall grass."
HUND = "Ein Hund rennt durch das hohe Gras."


@pytest.fixture
def published(root: Path) -> Path:
    return root / "checkpoints/multi30k_en_de/2rskip_ln"


@pytest.fixture
def lay_out(published: Path, tmp_path: Path) -> Callable[..., Path]:
    """Puts files of the published model where they are asked for; the checkpoint can be changed."""

    def lay_out(*, change: Callable[[Checkpoint], None] | None = None, **places: str) -> Path:
        for name, place in places.items():
            path = tmp_path / place
            path.parent.mkdir(parents=True, exist_ok=True)
            if name == "model":
                checkpoint = read_checkpoint(published / "model.safetensors")
                if change is not None:
                    change(checkpoint)
                write_checkpoint(path, checkpoint)
            elif name == "text":
                shutil.copytree(published / "text", path)
            elif name == "codes":
                shutil.copyfile(published / "text/codes.bpe", path)
            else:
                shutil.copyfile(published / f"dict.{name}.txt", path)
        return tmp_path

    return lay_out


def without_languages(checkpoint: Checkpoint) -> None:
    checkpoint.config.update(source_lang=None, target_lang=None)


def data_set_languages(checkpoint: Checkpoint) -> None:
    checkpoint.config.update(source_lang="src", target_lang="tgt")


def test_a_checkpoint_and_what_lies_beside_it(lay_out: Callable[..., Path]) -> None:
    folder = lay_out(model="m/best.pt", en="m/dict.en.txt", de="m/dict.de.txt", text="m/text")
    assert Translator.from_pretrained(folder / "m")(DOG) == HUND
    assert Translator.from_pretrained(str(folder / "m/best.pt"))(DOG) == HUND


def test_fairseqs_layout_needs_the_data_folder(lay_out: Callable[..., Path]) -> None:
    folder = lay_out(model="save/checkpoint_best.pt", en="data-bin/dict.en.txt", de="data-bin/dict.de.txt")
    with pytest.raises(FileNotFoundError, match=r"^text must be given: no text pipeline in .*data-bin or .*save: "):
        Translator.from_pretrained(folder / "save/checkpoint_best.pt", dictionaries=folder / "data-bin")
    lay_out(text="data-bin/text")  # as `rskip prepare` lays it out
    translator = Translator.from_pretrained(folder / "save/checkpoint_best.pt", dictionaries=folder / "data-bin")
    assert translator(DOG) == HUND
    with pytest.raises(FileNotFoundError, match=r"^dictionaries must be given: no dict.*txt in .*save: expected"):
        Translator.from_pretrained(folder / "save/checkpoint_best.pt", text=folder / "data-bin/text")
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere"):
        Translator.from_pretrained(folder / "save", dictionaries=folder / "nowhere", text="tokens")


def test_a_trainings_folder_is_a_model_with_the_data_it_was_trained_on(
    lay_out: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lay_out(
        model="save/checkpoint_best.pt", en="data-bin/dict.en.txt", de="data-bin/dict.de.txt", text="data-bin/text"
    )
    best = folder / "save/checkpoint_best.pt"
    state = torch.load(best, weights_only=False)
    state["args"].data = "data-bin:data-bin1"
    torch.save(state, best)
    shutil.copyfile(best, folder / "save/checkpoint1.pt")
    monkeypatch.chdir(folder)
    translator = Translator.from_pretrained("save")
    assert translator.file == Path("save/checkpoint_best.pt") and translator(DOG) == HUND
    shutil.copyfile(best, folder / "save/averaged.pt")
    assert Translator.from_pretrained("save").file == Path("save/averaged.pt")


@pytest.mark.parametrize("place", ["save/bpe.codes", "data-bin/code", "elsewhere/c10000"])
def test_byte_pair_codes_alone_follow_the_text_that_the_dictionary_shows(
    place: str, lay_out: Callable[..., Path], published: Path
) -> None:
    folder = lay_out(model="save/model.pt", en="data-bin/dict.en.txt", de="data-bin/dict.de.txt", codes=place)
    text = folder / place if place.startswith("elsewhere") else None
    with pytest.warns(AssumedText, match="no pipeline.json: .*: Moses' tokeniser, dash splits, escapes, case kept, "):
        translator = Translator.from_pretrained(folder / "save", dictionaries=folder / "data-bin", text=text)
    assert translator(DOG) == HUND
    versions = TextPipeline.load(published / "text").config.versions
    assert replace(translator.tokenizer.text.config, versions=versions) == TextPipeline.load(published / "text").config


def test_text_settings_replace_those_of_the_pipeline(published: Path, tmp_path: Path) -> None:
    plain = Translator.from_pretrained(published)
    lower = Translator.from_pretrained(published, text_settings={"lowercase": True, "dash_splits": False})
    own = plain.tokenizer.text.config
    assert lower.tokenizer.text.config == replace(own, lowercase=True, dash_splits=False)
    assert lower.tokenizer.tokens("A Dog.") == plain.tokenizer.tokens("a dog.")
    lower.tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).tokens("A Dog-sled.") == lower.tokenizer.tokens("a dog-sled.")
    for settings, message in (
        ({"tokenizer": "moses"}, "unknown key text_settings.tokenizer; did you mean tokeniser"),
        ({"subwords": "bpe"}, "unknown key text_settings.subwords"),
        ({"tokeniser": "spacy"}, "tokeniser is 'spacy': expected moses or none"),
    ):
        with pytest.raises(ValueError, match=message):
            Translator.from_pretrained(published, text_settings=settings)
    with pytest.raises(ValueError, match='^text is "tokens", so lowercase has no effect; leave one of them out'):
        Translator.from_pretrained(published, text="tokens", text_settings={"lowercase": True})


def test_all_settings_given_leave_nothing_to_assume(lay_out: Callable[..., Path]) -> None:
    folder = lay_out(model="m/model.pt", en="m/dict.en.txt", de="m/dict.de.txt", codes="m/code")
    given = {"tokeniser": "none", **dict.fromkeys(TEXT_SETTINGS[1:], True)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator = Translator.from_pretrained(folder / "m", text_settings=given)
    assert {name: getattr(translator.tokenizer.text.config, name) for name in TEXT_SETTINGS} == given


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize(("mark", "end"), [("", "\n"), ("\ufeff", "\r\n")])
def test_codes_of_fastbpe_and_of_other_systems_are_the_same_units(
    counted: bool, mark: str, end: str, published: Path, tmp_path: Path
) -> None:
    version, *merges = (published / "text/codes.bpe").read_text().splitlines()
    lines = [f"{merge} {20_000 - number}" for number, merge in enumerate(merges)] if counted else [version, *merges]
    (tmp_path / "bpecodes").write_text(mark + "".join(f"{line}{end}" for line in lines), newline="")
    with pytest.warns(AssumedText):
        translator = Translator.from_pretrained(published, text=tmp_path)
    sentence = "A snowboarder's jump in an amphitheater in 2016, filmed by 12 skateboarders."
    assert translator.tokenizer.text.encode(sentence) == TextPipeline.load(published / "text").encode(sentence)
    assert "@@" in translator.tokenizer.text.encode(sentence)


def test_text_that_is_tokens_already(published: Path) -> None:
    translator = Translator.from_pretrained(published, text="tokens")
    whole = Translator.from_pretrained(published)
    raw = "A snowboarder's “jump” in an amphitheater."
    tokens = whole.tokenizer.text.encode(raw)
    assert "@@" in tokens
    found = translator.translate(["  " + tokens.replace(" ", " \t")])[0]
    assert found.text == " ".join(found.hypotheses[0].tokens)
    assert whole.tokenizer.text.decode(found.text) == whole(raw)
    # what looks like an end or padding is an unknown word
    assert translator("A </s> dog runs .") == translator("A <pad> dog runs .") == translator("A <unk> dog runs .")


def test_a_sentencepiece_model_takes_the_text_as_it_is(lay_out: Callable[..., Path]) -> None:
    units = SentencePiece.learn([DOG, HUND, "“Quotes” stay."] * 5, size=60)
    folder = lay_out(model="m/model.pt", en="m/dict.en.txt", de="m/dict.de.txt")
    [content] = units.files().values()
    (folder / "m/sentencepiece.bpe.model").write_bytes(content)
    translator = Translator.from_pretrained(folder / "m")
    assert translator.tokenizer.text.encode("“Quotes” stay.") == units.segment("“Quotes” stay.")
    assert translator.tokenizer.text.config.subwords == "sentencepiece"


def test_a_pipeline_in_memory_and_one_for_the_other_direction(published: Path, tmp_path: Path) -> None:
    pipeline = TextPipeline.load(published / "text").reversed()
    assert (pipeline.source_language, pipeline.target_language) == ("de", "en")
    translator = Translator.from_pretrained(published, text=pipeline)
    assert (translator.source_language, translator.target_language) == ("en", "de")
    assert translator.tokenizer.encode("The man's dog") == Tokenizer.load(published).encode("The man's dog")
    assert translator(DOG) == HUND


def test_languages_from_what_is_there(lay_out: Callable[..., Path]) -> None:
    folder = lay_out(
        model="m/model.safetensors", en="m/dict.en.txt", de="m/dict.de.txt", text="m/text", change=without_languages
    )
    assert Translator.from_pretrained(folder / "m").source_language == "en"
    with pytest.raises(
        ValueError,
        match=r"doesn't say what it translates: give the source and target language "
        r"\(dictionaries: dict\.de\.txt, dict\.en\.txt\)",
    ):
        Translator.from_pretrained(folder / "m", text="tokens")
    for given in ({"source_language": "en"}, {"target_language": "de"}):
        translator = Translator.from_pretrained(folder / "m", text="tokens", **given)
        assert (translator.source_language, translator.target_language) == ("en", "de")
    (folder / "m/test.en-de.de.idx").touch()
    translator = Translator.from_pretrained(folder / "m", text="tokens")
    assert (translator.source_language, translator.target_language) == ("en", "de")


def test_dictionaries_named_after_the_data_and_text_after_the_languages(lay_out: Callable[..., Path]) -> None:
    folder = lay_out(
        model="m/model.safetensors", en="m/dict.src.txt", de="m/dict.tgt.txt", text="m/text", change=data_set_languages
    )
    with pytest.raises(ValueError, match=r"the text pipeline is for en and de, but the languages are src and tgt"):
        Translator.from_pretrained(folder / "m")
    assert Translator.from_pretrained(folder / "m", source_language="en", target_language="de")(DOG) == HUND


def test_a_language_that_the_model_lacks_is_named(published: Path) -> None:
    for given, said in (
        ({"target_language": "fr"}, "but the languages are en and fr"),
        ({"source_language": "eng_Latn", "target_language": "deu_Latn"}, "but the languages are eng_Latn and deu_Latn"),
        ({"source_language": "de", "target_language": "en"}, "the model translates en to de, not de to en"),
    ):
        with pytest.raises(SettingError, match=said):
            Translator.from_pretrained(published, **given)


def test_a_foreign_dictionary(lay_out: Callable[..., Path]) -> None:
    folder = lay_out(model="m/model.safetensors", en="m/dict.en.txt", de="m/dict.de.txt", text="m/text")
    with (folder / "m/dict.de.txt").open("a") as file:
        file.write("one-more 1\n")
    with pytest.raises(ValueError, match=r"model\.safetensors: .* another model: the target one has 9,793 tokens"):
        Translator.from_pretrained(folder / "m")
    for content, message in ((b"no number\n", "line 1 is not a token"), (b"a 1\n\xff 1\n", "line 2 is not valid")):
        (folder / "m/dict.de.txt").write_bytes(content)
        with pytest.raises(ValueError, match=rf"^{re.escape(str(folder))}/m/dict\.de\.txt: {message}"):
            Translator.from_pretrained(folder / "m")


def test_folders_and_files_that_are_no_model(lay_out: Callable[..., Path], published: Path) -> None:
    folder = lay_out(model="m/checkpoint1.pt", en="m/dict.en.txt", de="m/dict.de.txt", text="m/text")
    with pytest.raises(FileNotFoundError, match=r"no model .*nothing: expected a checkpoint \("):
        Translator.from_pretrained(folder / "nothing")
    with pytest.raises(FileNotFoundError, match="no checkpoint .* in the folder"):
        Translator.from_pretrained(folder)
    lay_out(model="m/checkpoint2.pt")
    with pytest.raises(ValueError, match=r"holds 2 checkpoints: give one of them, such as .*checkpoint1\.pt"):
        Translator.from_pretrained(folder / "m")
    with pytest.raises(ValueError, match=r"dict\.en\.txt: the name of a checkpoint ends in"):
        Translator.from_pretrained(folder / "m/dict.en.txt")
    (folder / "m/model.safetensors").write_bytes(b"\x10")
    with pytest.raises(ValueError, match=r"model\.safetensors can't be read as safetensors"):
        Translator.from_pretrained(folder / "m")
    with pytest.raises(ValueError, match="unknown precision 'float8'"):
        Translator.from_pretrained(published, precision="float8")


def test_a_file_without_units(published: Path, tmp_path: Path) -> None:
    (tmp_path / "units").write_bytes(b"\x00 garbage")
    with pytest.raises(ValueError, match="units holds no subword units: neither byte-pair codes"):
        Translator.from_pretrained(published, text=tmp_path / "units")


@pytest.mark.parametrize("name", ["codes.bpe", "pipeline.json"])
def test_a_file_of_a_pipeline_stands_for_the_pipeline(name: str, published: Path, tmp_path: Path) -> None:
    shutil.copytree(published / "text", tmp_path / "text")
    values = json.loads((tmp_path / "text/pipeline.json").read_text())
    (tmp_path / "text/pipeline.json").write_text(json.dumps(values | {"lowercase": True}))
    tokenizer = open_model(published).tokenizer(TokenizerSettings(text=tmp_path / "text" / name))
    assert isinstance(tokenizer.text, TextPipeline) and tokenizer.text.config.lowercase
    shutil.copyfile(tmp_path / "text/codes.bpe", tmp_path / "text/others")
    with pytest.warns(AssumedText):
        open_model(published).tokenizer(TokenizerSettings(text=tmp_path / "text/others"))


def test_text_that_is_missing_or_foreign(published: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere, which holds no text pipeline"):
        Translator.from_pretrained(published, text=tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="which holds no text pipeline"):
        Translator.from_pretrained(published, text=tmp_path)
    values = json.loads((published / "text/pipeline.json").read_text())
    (tmp_path / "pipeline.json").write_text(json.dumps(values | {"target_language": "fr"}))
    shutil.copyfile(published / "text/codes.bpe", tmp_path / "codes.bpe")
    with pytest.raises(ValueError, match="the text pipeline is for en and fr, but the languages are en and de"):
        Translator.from_pretrained(published, text=tmp_path)
