"""A model is trained further on other text: `rskip prepare --like`, `rskip train --from`."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from sacrebleu import corpus_chrf

from rskip.cli.main import main
from rskip.records import read_record
from rskip.text import Dictionary, TextPipeline
from rskip.translation import Translator
from tests.checkpoint.hugging_face.conftest import marian

__all__ = ["marian"]

WORDS = {"the": "der", "a": "ein", "dog": "Hund", "man": "Mann", "house": "Haus", "red": "rot", "runs": "rennt"}
OTHER = {**WORDS, "dog": "rot", "red": "Hund", "man": "Haus", "house": "Mann"}


def write(name: str, pairs: int, meaning: dict[str, str] = WORDS) -> list[str]:
    """Files of sentences that are translated word by word, and the arguments that name them."""
    rng, sides = random.Random(name), ([], [])
    for _ in range(pairs):
        words = rng.choices([*meaning], k=rng.randint(3, 8))
        for side, sentence in zip(sides, (words, map(meaning.__getitem__, words)), strict=True):
            side.append(" ".join(sentence))
    for side, language in zip(sides, ("en", "de"), strict=True):
        Path(f"{name}.{language}").write_text("\n".join(side) + "\n")
    return ["--source", f"{name}.en", "--target", f"{name}.de", "--output", name]


@pytest.fixture
def training(
    tmp_path: Path, forked_logged: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rskip train` in an empty folder."""
    pytest.importorskip("fairseq")
    for module in ("rskip.tasks.run", "rskip.translation.scoring"):
        monkeypatch.setattr(f"{module}.run_logged", forked_logged)
    for module in ("rskip.translation.training", "rskip.experiments.quick_start"):
        monkeypatch.setattr(f"{module}.check_fairseq_flags", lambda given: None)
    monkeypatch.chdir(tmp_path)


NEW = ("--size", "tiny", "--set", "train.encoder-layers=1", "train.decoder-layers=1", "train.dropout=0")


def train(data: str, output: str, updates: int, *further: str) -> int:
    return main(["train", data, "--output", output, "--updates", str(updates), "--gpus", "0", *further])


@pytest.mark.slow
def test_it_is_better_there_than_before_and_than_a_new_model(training: None) -> None:
    assert not main(["prepare", *write("first", 400), "--bpe-size", "320"])
    assert not train("first", "model", 250, *NEW)
    assert not main(["prepare", *write("second", 150, OTHER), "--like", "model"])
    assert not train("second", "adapted", 120, "--from", "model", "--set", "train.dropout=0")
    assert not train("second", "new", 120, *NEW)
    assert Dictionary.load("second/dict.de.txt").tokens == Dictionary.load("first/dict.de.txt").tokens
    assert TextPipeline.load("second/text").sha256 == TextPipeline.load("model/text").sha256
    source, target = (Path(f"second/reference/test.{each}").read_text().splitlines() for each in ("en", "de"))
    translated = [each.text for each in Translator.from_pretrained("model").translate(source, max_length_b=20)]
    before = corpus_chrf(translated, [target]).score
    after, new = (read_record(Path(f"{name}/results/recipe/1.json")).metrics["chrf"] for name in ("adapted", "new"))
    assert after > before + 5 and after > new + 5


@pytest.mark.slow
def test_an_imported_opus_mt_model_is_trained_further(training: None, marian: Callable[..., Path]) -> None:
    """Of random weights: it learns, with its own units, start token and output bias."""
    sides = "the dog runs over a green field while two cats", "der Hund läuft über ein grünes Feld während zwei Katzen"
    words = dict(zip(*(side.split() for side in sides), strict=True))
    assert not main(["import", "huggingface", "--model", str(marian()), "--output", "imported"])
    assert not main(["prepare", *write("text", 300, words), "--like", "imported"])
    assert not train("text", "adapted", 300, "--from", "imported", "--set", "train.dropout=0", "train.lr=0.01")
    config = Translator.from_pretrained("adapted").model.config
    assert config.output_bias and config.start == "begin" and config.activation_fn == "swish"
    assert TextPipeline.load("adapted/text").sha256 == TextPipeline.load("imported/text").sha256
    source, target = (Path(f"text/reference/test.{each}").read_text().splitlines() for each in ("en", "de"))
    translated = Translator.from_pretrained("adapted").translate(source, beam=4)
    chrf = corpus_chrf([each.text for each in translated], [target]).score
    assert 60 < chrf == pytest.approx(read_record(Path("adapted/results/recipe/1.json")).metrics["chrf"], abs=1)


def test_what_does_not_fit_is_told(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    model, given = str(root / "checkpoints/multi30k_en_de/2rskip_ln"), write("text", 60)
    other = str(root / "checkpoints/multi30k_fr_en/2xskip_ln")
    assert not main(["prepare", *given])
    capsys.readouterr()
    for words, told in (
        (["prepare", *given[:-1], "b", "--like", model, "--subword", "bpe"], "--like"),
        (["prepare", "multi30k-en-de", "--like", model], "--like"),
        (["prepare", *given[:-1], "b", "--like", other], "translates fr to en"),
        (["prepare", *given[:-1], "b", "--like", "nothing"], "nothing"),
        (["train", "text", "--from", model, "--output", "c"], "prepare the text with --like"),
        (["train", "text", "--from", model, "--size", "tiny"], "--from"),
        (["train", "text", "--from", "nothing"], "nothing"),
    ):
        assert main(words) == 2, words
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and told in error, error
    assert not main(["prepare", *given[:-1], "b", "--like", model, "--bpe-dropout", "0.1"])  # the model's units are bpe
    assert Dictionary.load("b/dict.en.txt").tokens == Dictionary.load(f"{model}/dict.en.txt").tokens
