"""Models in CTranslate2's format translate as ours do."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rskip.checkpoint import build_transformer, read_checkpoint
from rskip.generation import SearchOptions, beam_search
from rskip.text import Dictionary, TextPipeline
from rskip.transformer import Transformer, TransformerConfig

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the extra ct2")
from rskip.translation.ctranslate2_model import write_ctranslate2  # noqa: E402

GREEDY = SearchOptions(beam=1, max_length_b=100)
LAST_MAPS = ("self_attn.out_proj", "encoder_attn.out_proj", "fc2")


class Model:
    """A model with its dictionaries."""

    def __init__(self, transformer: Transformer, source: Dictionary, target: Dictionary) -> None:
        self.transformer, self.source, self.target = transformer, source, target

    def greedy(self, sentences: Sequence[str]) -> list[tuple[str, float]]:
        """Target tokens and score of each sentence of source tokens."""
        found = []
        for start in range(0, len(sentences), 100):
            rows = [torch.tensor(self.source.encode_line(each)) for each in sentences[start : start + 100]]
            source = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=1)
            with torch.inference_mode():
                memory = self.transformer.encode(source)
            lengths = torch.tensor([len(row) for row in rows])
            best = [each[0] for each in beam_search(self.transformer, memory, GREEDY, source_lengths=lengths)]
            found += [(self.target.decode(each.tokens.tolist()), each.score) for each in best]
        return found

    def converted(self, folder: Path, **options: Any) -> Any:
        write_ctranslate2(self.transformer, folder, source=self.source, target=self.target, **options)
        return ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)


def translated(translator: Any, sentences: Sequence[str]) -> list[tuple[str, float]]:
    results = translator.translate_batch(
        [sentence.split() for sentence in sentences],
        beam_size=1, max_batch_size=100, max_decoding_length=100, return_scores=True,
    )  # fmt: skip
    return [(" ".join(result.hypotheses[0]), result.scores[0]) for result in results]


def assert_alike(ours: list[tuple[str, float]], theirs: list[tuple[str, float]]) -> None:
    same = [mine[1] - other[1] for mine, other in zip(ours, theirs, strict=True) if mine[0] == other[0]]
    assert len(same) >= 0.99 * len(ours)
    assert max(map(abs, same)) < 1e-3


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    return root / "checkpoints" / "multi30k_en_de/1xskip_ln"


@pytest.fixture(scope="module")
def trained(folder: Path) -> Model:
    source, target = (Dictionary.load(folder / f"dict.{language}.txt") for language in ("en", "de"))
    checkpoint = read_checkpoint(folder / "model.safetensors")
    model = build_transformer(checkpoint, source_vocabulary=len(source), target_vocabulary=len(target))
    return Model(model, source, target)


@pytest.fixture(scope="module")
def unfolded(trained: Model) -> Model:
    """The same function written as 2xskip+ln: LN(x + f) = LN(2x + 2f), up to eps."""
    connections = {f"{side}_connection": "2xskip+ln" for side in ("encoder", "decoder")}
    model = Transformer(replace(trained.transformer.config, **connections)).eval()
    model.load_state_dict(
        {
            name: 2 * tensor if name.rpartition(".")[0].endswith(LAST_MAPS) else tensor
            for name, tensor in trained.transformer.state_dict().items()
        }
    )
    return Model(model, trained.source, trained.target)


@pytest.fixture(scope="module")
def sentences(folder: Path, shared: Path) -> list[str]:
    """The first 100 of the test set in model tokens."""
    pipeline = TextPipeline.load(folder / "text")
    with gzip.open(shared / "data" / "multi30k" / "test_2016_flickr.en.gz", "rt", encoding="utf-8") as file:
        return [pipeline.encode(line) for line in islice(file, 100)]


@pytest.mark.parametrize("which", ["trained", "unfolded"])
def test_greedy_translations_of_a_hundred_sentences(which, sentences, tmp_path, request):
    model: Model = request.getfixturevalue(which)
    ours = model.greedy(sentences)
    assert_alike(ours, translated(model.converted(tmp_path / "model"), sentences))
    assert len({tokens for tokens, _ in ours}) > 90


def test_eight_bit_weights_are_small_and_translate(trained, sentences, tmp_path):
    float32, int8 = (trained.converted(tmp_path / name, quantization=name) for name in ("float32", "int8"))
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("float32", "int8")]
    assert sizes[1] < 0.4 * sizes[0]
    pairs = zip(translated(float32, sentences), translated(int8, sentences), strict=True)
    assert sum(one[0] == other[0] for one, other in pairs) >= 60


VARIANTS: dict[str, dict[str, Any]] = {
    "prenorm": {"encoder_connection": "prenorm+ln", "decoder_connection": "prenorm+ln"},
    "mixed": {
        "encoder_connection": "1xskip+ln:branch_scale=3",
        "decoder_connection": "prenorm+ln",
        "share_decoder_input_output_embed": True,
    },
    "as Marian": {"output_bias": True, "start": "begin", "activation_fn": "swish"},
    "bart-like": {
        "layernorm_embedding": True,
        "no_scale_embedding": True,
        "encoder_learned_pos": True,
        "decoder_learned_pos": True,
        "activation_fn": "gelu",
        "max_source_positions": 40,
        "max_target_positions": 120,
    },
    "tanh-gelu": {"activation_fn": "gelu_accurate", "encoder_connection": "2xskip+ln", "decoder_layers": 1},
    "swish": {"activation_fn": "swish", "encoder_embed_dim": 48, "encoder_layers": 3},
    "no-positions": {"activation_fn": "tanh", "no_token_positional_embeddings": True, "decoder_attention_heads": 2},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_probabilities_of_a_random_model(variant, tmp_path):
    torch.manual_seed(0)
    source, target = Dictionary(f"s{index}" for index in range(40)), Dictionary(f"t{index}" for index in range(50))
    sizes = {"embed_dim": 32, "ffn_embed_dim": 64, "attention_heads": 4, "layers": 2}
    sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
    config = TransformerConfig(len(source), len(target), **{**sides, **VARIANTS[variant]})
    model = Transformer(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, std=0.1)
        elif "norm" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
        else:
            nn.init.normal_(parameter, std=0.4)
    translator = Model(model, source, target).converted(tmp_path / "model")

    generator = random.Random(1)
    pairs = [
        [[generator.choice(each.tokens[4:]) for _ in range(generator.randint(1, 35))] for each in (source, target)]
        for _ in range(20)
    ]
    start = Dictionary.bos_index if config.start == "begin" else Dictionary.eos_index
    scores = translator.score_batch([words for words, _ in pairs], [words for _, words in pairs])
    for (sentence, translation), theirs in zip(pairs, scores, strict=True):
        tokens, prefix = source.encode_line(" ".join(sentence)), target.encode_line(" ".join(translation))
        logits = model(torch.tensor([tokens]), torch.tensor([[start, *prefix[:-1]]]))
        ours = logits.log_softmax(-1)[0].gather(1, torch.tensor(prefix)[:, None]).squeeze(1)
        # its gelu and tanh differ a little
        torch.testing.assert_close(torch.tensor(theirs.log_probs), ours, rtol=0, atol=1e-3)
        assert ours.std() > 0.5 or len(ours) < 5


def small(**settings: Any) -> Transformer:
    return Transformer(TransformerConfig(8, 8, encoder_layers=1, decoder_layers=1, **settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decoder_connection": "2rskip+ln"}, "2rskip+ln (y_k = norm_k(x + y_{k-1})"),
        ({"encoder_connection": "sas"}, "sas (αx + βf"),
        ({"activation_fn": "linear"}, "no activation 'linear', only relu"),
    ],
)
def test_what_it_can_not_compute_is_refused(settings, message, tmp_path):
    dictionary = Dictionary("abcd")
    with pytest.raises(ValueError) as error:
        write_ctranslate2(small(**settings), tmp_path / "model", source=dictionary, target=dictionary)
    assert message in str(error.value) and "rskip translate" in str(error.value)
    assert not (tmp_path / "model").exists()


def test_a_token_that_comes_twice_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has 'a' twice"):
        write_ctranslate2(small(), tmp_path / "model", source=Dictionary("abcd"), target=Dictionary("abca"))
