"""Translators of Marian, M2M-100, NLLB, mBART and FSMT folders: by Python and by commands, imported, and refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import rskip
from rskip.cli.main import main
from rskip.generation import Hypothesis, SearchOptions
from rskip.text import Tokenizer
from rskip.translation import Translation, Translator, Workers
from rskip.translation.search import ModelSearcher, Segment
from tests.checkpoint.hugging_face.conftest import write_marian
from tests.checkpoint.hugging_face.families import FAMILIES, Family, write_nllb

LINES = ["the dog runs", "", "two cats sleep near our old house.", "unknown 😀\u00a0words \u200b"]
SEARCH: dict[str, Any] = {"beam": 4, "nbest": 2, "max_length_a": 0, "max_length_b": 12}
Folders = Callable[[str], Path]
FOLDERS = {
    **FAMILIES,
    "marian": Family(write_marian, "", "", ("en", "de")),
    "marian with two vocabularies": Family(lambda folder: write_marian(folder, separate=True), "", "", ("en", "de")),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Gives the folder of a family."""
    place = tmp_path_factory.mktemp("families")
    return cache(lambda name: FOLDERS[name].write(place / name))


def languages(name: str) -> dict[str, str]:
    return dict(zip(("source_language", "target_language"), FOLDERS[name].languages, strict=True))


def flags(name: str) -> list[str]:
    source, target = FOLDERS[name].languages
    return ["--source-lang", source, "--target-lang", target]


def assert_close(ours: list[Translation], theirs: list[Translation], *, tolerance: float) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert [each.text for each in one.hypotheses] == [each.text for each in other.hypotheses]
        scores = [each.score for each in other.hypotheses]
        assert [each.score for each in one.hypotheses] == pytest.approx(scores, abs=tolerance)


def test_a_worker_opens_the_folder(folders: Folders) -> None:
    translator = Translator.from_pretrained(folders("marian"))
    with Workers(translator.model, 1) as workers:
        found = translator.translate(LINES, searcher=workers, **SEARCH)
    assert_close(found, translator.in_torch().translate(LINES, **SEARCH), tolerance=1e-5)


@pytest.mark.parametrize("name", FOLDERS)
def test_every_part_of_a_long_line_has_the_language_tokens(folders: Folders, name: str) -> None:
    translator = Translator.from_pretrained(folders(name), **languages(name))
    pair = translator.tokenizer.pair
    seen: list[Segment] = []

    def spy(batches: Sequence[Sequence[Segment]], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        seen.extend(segment for batch in batches for segment in batch)
        return ModelSearcher(translator.model)(batches, options)

    (found,) = translator.translate(
        ["the dog runs over a green field. " * 20],
        max_source_tokens=40, searcher=spy, attention=True, token_scores=True, **SEARCH,
    )  # fmt: skip
    assert len(seen) > 1 and f"split into {len(seen)} parts" in found.notes[0]
    for segment in seen:
        assert len(segment.source) <= 40 and tuple(segment.prefix) == pair.first
        assert tuple(segment.source[: len(pair.before)]) == pair.before
        assert tuple(segment.source[-len(pair.after) :]) == pair.after
    names = {translator.tokenizer.target.tokens[index] for index in pair.hidden}
    for hypothesis in found.hypotheses:
        assert not any(each in hypothesis.text for each in names)
        assert len(hypothesis.token_scores) == len(hypothesis.tokens) + 1
        assert len(hypothesis.alignment) == len(hypothesis.tokens)
        assert all(source < len(found.source_tokens) for source, _ in hypothesis.alignment)


@pytest.mark.parametrize("name", FOLDERS)
def test_an_imported_folder_translates_the_same(
    folders: Folders, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pair is chosen by the import or by the translation."""
    expected = Translator.from_pretrained(folders(name), **languages(name)).translate(LINES, **SEARCH)
    for number, given in enumerate(([], flags(name))):
        imported = tmp_path / f"imported{number}"
        command = ["import", "huggingface", "--model", str(folders(name)), "--dtype", "float16", *given]
        assert main([*command, "--output", str(imported)]) == 0
        chosen = {} if given else languages(name)
        assert_close(rskip.load(imported, **chosen).translate(LINES, **SEARCH), expected, tolerance=1e-2)
        original = Translator.from_pretrained(folders(name), **languages(name)).tokenizer
        tokenizer = Tokenizer.load(imported).between(*FOLDERS[name].languages)
        assert tokenizer.source.tokens == original.source.tokens
        assert (tokenizer.pair, tokenizer.languages) == (original.pair, original.languages)
    capsys.readouterr()
    described = []
    for folder in (folders(name), tmp_path / "imported0"):
        assert main(["inspect", str(folder), "--json"]) == 0
        described.append(json.loads(capsys.readouterr().out))
    assert described[0] == {**described[1], "file": str(folders(name))}
    assert "not found" not in described[0]["text"]


def edited(name: str, content: dict[str, Any] | None = None, **changes: Any) -> Callable[[Path], None]:
    """Changes keys of a folder's JSON file, replaces its content, or removes it."""

    def edit(folder: Path) -> None:
        path = folder / name
        if content is None and not changes:
            path.unlink()
        else:
            path.write_text(json.dumps({**(json.loads(path.read_text()) if content is None else content), **changes}))

    return edit


def another_vocabulary(folder: Path) -> None:
    special = {token: number for number, token in enumerate(("<s>", "<pad>", "</s>", "<unk>"))}
    foreign = {f"foreign{number}": number for number in range(4, 119)}
    (folder / "vocab.json").write_text(json.dumps({**special, **foreign}))


def overwritten_languages(folder: Path) -> None:
    """What an early transformers saved of a tokenizer with additional_special_tokens=["<mine>"]."""
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"] = [each for each in content["added_tokens"] if "_" not in each["content"]]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    about = {"tokenizer_class": "NllbTokenizer", "additional_special_tokens": ["<mine>"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


BROKEN: list[tuple[str, list[str], Callable[[Path], None], str]] = [
    ("nllb", [], edited("tokenizer.json"), "model: copy the tokenizer's files, or call tokenizer.save_pretrained"),
    ("m2m", [], edited("vocab.json"), "vocab.json is missing"),
    ("m2m", [], edited("sentencepiece.bpe.model"), "no tokenizer.json or sentencepiece.bpe.model in"),
    ("fsmt", [], edited("merges.txt"), "merges.txt is missing: get all files of the model"),
    ("m2m", [], another_vocabulary, "has other units than the vocabulary; give the files of one model"),
    ("fsmt", [], edited("vocab-src.json", {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a</w>": 4000}), "up to 4,000"),
    ("fsmt", [], edited("vocab-src.json", {"<pad>": 0, "</s>": 2}), "with {'<s>': None, "),
    ("nllb", [], edited("config.json", num_experts=8), "has a mixture of experts ('m2m_100')"),
    ("nllb", [], edited("config.json", model_type="nllb-moe"), "expected a translation model: one of fsmt, m2m"),
    ("nllb", [], edited("config.json", decoder_start_token_id=5), "decoder_start_token_id is 5: expected 2"),
    ("nllb", [], edited("tokenizer_config.json", tokenizer_class="M2M100Tokenizer"), "vocab.json is missing"),
    ("mbart50", [], edited("tokenizer.json", {"model": {"type": "WordPiece"}}), "'WordPiece' - at `$.model.type`"),
    ("nllb", [], overwritten_languages, "0 languages in tokenizer.json, added_tokens.json, tokenizer_config.json"),
    ("nllb", [], overwritten_languages, "which list <mine> in their place: expected two or more; take these files"),
    ("nllb", ["--source-lang", "eng_Latn"], lambda _: None, "--target-lang must be given: expected one of deu_La"),
    ("mbart50", ["--source-lang", "en_XX", "--target-lang", "en_XX"], lambda _: None, "is 'en_XX', the source"),
    ("m2m", ["--source-lang", "en", "--target-lang", "deu"], lambda _: None, "is 'deu' (did you mean 'de'?), which"),
    ("fsmt", ["--source-lang", "fr"], lambda _: None, "is 'fr', but the model translates en to de"),
    ("marian", ["--target-lang", "fra"], lambda _: None, "translates en to de"),
    ("marian", [], edited("source.spm"), "source.spm is missing"),
    ("marian", [], edited("model.safetensors"), "no weights in"),
    ("marian", [], edited("vocab.json", {"</s>": 0, "<unk>": 1, "<pad>": 7_000}), "numbers its tokens up to 7,000"),
    ("marian", [], edited("vocab.json", {"</s>": 0, "<pad>": 1}), "no <unk>"),
    ("marian", [], edited("config.json", activation_function="mish"), "is 'mish': expected gelu"),
]


@pytest.mark.parametrize(("name", "given", "edit", "told"), BROKEN)
def test_bad_input_is_one_line(
    folders: Folders,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    given: list[str],
    edit: Callable[[Path], None],
    told: str,
) -> None:
    folder, text = tmp_path / "model", tmp_path / "text"
    shutil.copytree(folders(name), folder)
    text.write_text("the dog\n")
    edit(folder)
    capsys.readouterr()
    assert main(["translate", str(text), "--quiet", "--model", str(folder), *(given or flags(name))]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and told in error


def test_tokens_of_another_model(tmp_path: Path) -> None:
    """Numbers that contradict each other, or lie outside the embedding."""
    folder = write_nllb(tmp_path / "nllb")
    added = tmp_path / "nllb" / "added_tokens.json"
    for number, told in ((5, "gives deu_Latn the number 5, but another entry "), (9000, "the number 9,000")):
        added.write_text(json.dumps({"deu_Latn": number}))
        with pytest.raises(ValueError, match=told):
            Translator.from_pretrained(folder, **languages("nllb"))
    added.write_text(json.dumps({"xyz_Latn": 9000}))
    with pytest.raises(ValueError, match="numbers its tokens up to 9,000, .* rows of the embedding"):
        Translator.from_pretrained(folder, **languages("nllb"))
