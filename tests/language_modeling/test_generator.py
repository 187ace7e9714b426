"""Generation and scores of a trained model, and what is refused."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import rskip
from rskip.cli.main import main
from rskip.language_modeling.data import load_data
from rskip.language_modeling.generator import TextGenerator
from rskip.language_modeling.preparation import TextOptions, prepare_text
from rskip.language_modeling.settings import TrainingSettings
from rskip.language_modeling.training import train
from tests.language_modeling.conftest import SETTINGS


@pytest.fixture(scope="module")
def model(trained: Path) -> TextGenerator:
    return TextGenerator.from_pretrained(trained)


def test_greedy_text_is_the_most_probable_token_of_the_whole_context(model: TextGenerator) -> None:
    prompt = "the c"
    past = model.tokens.encode(prompt)
    length = model.context - len(past)  # one context: no sliding
    for _ in range(length):
        logits = model(torch.tensor([past]))[0, -1]
        logits[[0, 1, 3]] = -math.inf  # special tokens other than the end of a line
        past.append(int(logits.argmax()))
    assert model.generate(prompt, length=length, temperature=0) == model.tokens.decode(past)[len(prompt) :]


def test_a_full_context_goes_on_from_its_second_half(model: TextGenerator) -> None:
    prompt = "the cat "
    assert len(model.tokens.encode(prompt)) == model.context
    first = model.generate(prompt, length=1, temperature=0)
    whole = model.generate(prompt, length=3, temperature=0)
    half = (prompt + first)[-model.context // 2 :]
    assert whole == first + model.generate(half, length=2, temperature=0)


def test_samples_depend_on_the_seed_and_options_only(model: TextGenerator) -> None:
    texts = [model.generate("the", length=60, seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2] and len(texts[0]) == 60
    assert model.generate("the", length=30, top_k=1, seed=3) == model.generate("the", length=30, temperature=0)
    assert model.generate("the", length=30, temperature=1e-39) == model.generate("the", length=30, temperature=0)
    assert model.generate("the", length=30, top_p=1e-6) == model.generate("the", length=30, temperature=0)
    assert "".join(model.stream("the", length=60, seed=2)) == texts[2]


def test_a_score_is_the_sum_over_blocks_of_the_context(model: TextGenerator) -> None:
    text = "the dog sat on\nthe cat"
    tokens = torch.tensor(model.tokens.encode(text))
    inputs, nats = torch.cat([torch.tensor([2]), tokens[:-1]]), 0.0
    for begin in range(0, len(tokens), model.context):
        part = slice(begin, begin + model.context)
        nats += F.cross_entropy(model(inputs[None, part])[0], tokens[part], reduction="sum").item()
    found = model.score(text)
    assert found.nats == pytest.approx(nats, rel=1e-6) and found.tokens == found.characters == len(text)
    assert found.bits_per_character == pytest.approx(nats / math.log(2) / len(text), rel=1e-6)
    assert found.perplexity == pytest.approx(math.exp(nats / len(text)), rel=1e-6)
    assert model.score(text, context=3).nats != found.nats


@pytest.fixture(scope="module")
def subwords(train_here: Callable[..., None], text: Path, tmp_path_factory: pytest.TempPathFactory) -> TextGenerator:
    folder = tmp_path_factory.mktemp("subwords")
    prepare_text(text, folder / "data", options=TextOptions(tokens="subwords", text_size=300, valid_share=0.2))
    settings = TrainingSettings(**{**SETTINGS, "iterations": 2})
    (folder / "model").mkdir()
    train(settings, data=load_data(folder / "data"), folder=folder / "model", seed=1, device="cpu")
    return TextGenerator.from_pretrained(folder / "model")


def test_subwords_count_the_characters_that_they_encode(subwords: TextGenerator) -> None:
    one, two = subwords.score("the cat sat"), subwords.score("the   cat  sat ")
    assert one.characters == two.characters == 11 and one.bits_per_character == two.bits_per_character
    with pytest.raises(ValueError, match="the prompt has only spaces, which the model's tokens drop"):
        subwords.generate(" ")
    with pytest.raises(ValueError, match="the text has only spaces, which the model's tokens drop"):
        subwords.score("  ")


def test_what_a_model_cant_take_is_told(model: TextGenerator) -> None:
    for prompt, told in (
        ("", "the prompt is empty: give at least one character"),
        ("Zebra", "the prompt has the character 'Z', which the model doesn't know: expected line ends, spaces and"),
        ("the cat sat", "the prompt has 11 characters: expected at most 8, which the model reads at once; shorten it"),
    ):
        with pytest.raises(ValueError, match=told):
            model.generate(prompt)
    for options, told in (
        ({"lenght": 3}, "unknown key lenght; did you mean length"),
        ({"top_p": 0.0}, "top_p is 0.0: expected a number, more than 0"),
    ):
        with pytest.raises(ValueError, match=told):
            model.generate("the", **options)
    with pytest.raises(ValueError, match="the text is empty"):
        model.score("")
    with pytest.raises(ValueError, match="context is 9: expected at most 8, the model's learned positions"):
        model.score("the", context=9)


def test_llamas_shape_has_no_limit_of_positions(train_here: Callable[..., None], tmp_path: Path) -> None:
    train_here(tmp_path, shape="llama", iterations=2)
    model = TextGenerator.from_pretrained(tmp_path)
    assert model.score("the cat sat on the mat", context=20).tokens == 22


def test_a_folder_is_loaded_by_rskip_load_and_the_command(
    trained: Path, model: TextGenerator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = rskip.load(trained)
    text = model.generate("the", length=20, seed=4)
    assert isinstance(loaded, TextGenerator) and loaded.generate("the", length=20, seed=4) == text
    assert rskip.load(trained, dtype="bfloat16").model.precision == "bfloat16"
    words = ["generate", "--model", str(trained)]
    assert main([*words, "--prompt", "the", "--length", "20", "--seed", "4"]) == 0
    assert capsys.readouterr().out == f"the{text}\n"
    (tmp_path / "text.txt").write_text("the\r\ncat")
    assert main([*words, "--score", str(tmp_path / "text.txt")]) == 0
    score = model.score("the\ncat")
    assert capsys.readouterr().out.startswith(f"{score.nats_per_token:.4f} nats per character (perplexity ")


def test_what_is_not_a_language_model_is_told_in_one_line(
    trained: Path, tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("dict.txt", "tokens.json"):
        folder = tmp_path / name
        shutil.copytree(trained, folder)
        (folder / name).unlink()
    (tmp_path / "unfinished").mkdir()
    shutil.copy(trained / "checkpoint.pt", tmp_path / "unfinished")
    translation = next((root / "checkpoints/multi30k_en_de").iterdir())
    for model, told in (
        (tmp_path / "nowhere", "nowhere: no such file or folder: expected the folder of a language model"),
        (translation, "not of language_modeling; use `rskip translate`"),
        (tmp_path / "dict.txt", "dict.txt: No such file"),
        (tmp_path / "tokens.json", "tokens.json is missing: expected the tokens of a language model"),
        (tmp_path / "unfinished", "checkpoint.pt belongs to an unfinished training run: repeat its command to"),
    ):
        assert main(["generate", "--model", str(model)]) == 2
        printed = capsys.readouterr().err
        assert told in printed and printed.count("\n") == 1, printed
    assert main(["generate", "--model", str(trained), "--tokens", "data"]) == 2
    assert "has its own tokens" in capsys.readouterr().err


def test_subwords_are_told_as_soon_as_they_are_certain(subwords: TextGenerator, monkeypatch) -> None:
    text = "the cat sat on ☃ the mat ☃☃\n" + "the dog ran to the cat ☃ " * 40 + "\n\nthe end ☃"
    tokens = subwords.tokens.encode(text)
    monkeypatch.setattr(TextGenerator, "_draw", lambda *_: iter(tokens))
    parts = [*subwords.stream("\n")]
    assert "".join(parts) == subwords.tokens.decode(tokens)
    assert len(parts) > len(tokens) / 3 and all(parts) and "\ufffd" not in "".join(parts)
    cut = [*subwords.tokens.encode("the ☃")][:-1]  # in the middle of a character
    monkeypatch.setattr(TextGenerator, "_draw", lambda *_: iter(cut))
    assert "".join(subwords.stream("\n")) == subwords.tokens.decode(cut) == "the \ufffd\ufffd"
