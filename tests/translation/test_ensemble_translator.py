"""Several models that translate as one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rskip.checkpoint import Checkpoint, write_checkpoint
from rskip.generation import EnsembleDecoder, SearchOptions, beam_search
from rskip.text import Dictionary
from rskip.transformer import Transformer, TransformerConfig
from rskip.translation import Translator
from tests.checkpoint.conftest import both

WORDS = [f"w{number}" for number in range(12)]
SIZES = both(embed_dim=16, ffn_embed_dim=24, attention_heads=2, layers=2)
SENTENCES = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9"]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a random model as NAME.safetensors beside the dictionaries."""

    def write(name: str, *, words: list[str] = WORDS, layers: int = 2, folder: str = "models") -> Path:
        torch.manual_seed(len(name) + ord(name[0]))
        sizes = SIZES | {"decoder_layers": layers}
        vocabulary = len(words) + 4
        config = TransformerConfig(source_vocabulary=vocabulary, target_vocabulary=vocabulary, **sizes)
        model = Transformer(config)
        for parameter in model.parameters():
            parameter.data *= 2
        settings = {"arch": "transformer", "task": "translation", "source_lang": "a", "target_lang": "b"}
        (tmp_path / folder).mkdir(exist_ok=True)
        path = tmp_path / folder / f"{name}.safetensors"
        content = Checkpoint(
            model=model.state_dict(), config={**settings, "model": {**sizes, "connection": "1xskip+ln"}}
        )
        write_checkpoint(path, content)
        for language in "ab":
            Dictionary(words).save(tmp_path / folder / f"dict.{language}.txt")
        return path

    return write


def expected_scores(paths: list[Path], temperature: float = 1.0) -> list[list[float]]:
    translators = [Translator.from_pretrained(path, text="tokens").in_torch() for path in paths]
    decoder = EnsembleDecoder([each.model for each in translators], temperature=temperature)
    scores = []
    for sentence in SENTENCES:
        source = torch.tensor([translators[0].tokenizer.encode(sentence)])
        memory = [each.model.encode(source) for each in translators]
        options = SearchOptions(beam=3, nbest=3, max_length_a=0.0, max_length_b=6)
        found = beam_search(decoder, memory, options, source_lengths=torch.tensor([source.size(1)]))
        scores.append([each.score for each in found[0]])
    return scores


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_an_ensemble_is_the_mean_of_its_models(write: Callable[..., Path], temperature: float) -> None:
    paths = [write("one"), write("two", layers=1)]
    expected = expected_scores(paths, temperature)
    for given in (f"{paths[0]}:{paths[1]}", paths[0].parent):
        translator = Translator.from_pretrained(given, text="tokens")
        assert translator.file is None and "Ensemble" in repr(translator)
        found = translator.translate(
            SENTENCES, beam=3, nbest=3, max_length_a=0.0, max_length_b=6, temperature=temperature
        )
        scores = [[each.score for each in translation.hypotheses] for translation in found]
        assert scores == [pytest.approx(each, abs=1e-5) for each in expected]


def test_models_that_do_not_fit(write: Callable[..., Path], tmp_path: Path) -> None:
    one, other = write("one"), write("two", words=["other", *WORDS[1:]], folder="others")
    with pytest.raises(ValueError, match=r"two\.safetensors has another source dictionary than .*one\.safetensors: "):
        Translator.from_pretrained(f"{one}:{other}", text="tokens")
    with pytest.raises(FileNotFoundError, match=r"no model .*missing\.pt: expected a checkpoint"):
        Translator.from_pretrained(f"{one}:{tmp_path}/missing.pt", text="tokens")
    shutil.copy(one, other.with_name("three.safetensors"))
    with pytest.raises(ValueError, match="the dictionaries belong to another model: the source one has 5 tokens"):
        (other.parent / "dict.a.txt").write_text("w 1\n")
        Translator.from_pretrained(other.parent, text="tokens")
