"""Models in transformers' format: MarianMTModel computes the same, and rskip translates the same with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rskip.checkpoint import Checkpoint, write_checkpoint
from rskip.cli.main import main
from rskip.generation import SearchOptions, SpecialTokens, beam_search
from rskip.settings.errors import SettingError
from rskip.text import Dictionary, TextPipeline, Tokenizer
from rskip.text.added import AddedToken
from rskip.text.pipeline import TextConfig, TokenText
from rskip.text.subwords import SentencePiece, SubwordKind, subwords_class
from rskip.transformer import Transformer, TransformerConfig
from rskip.translation import Translator
from rskip.translation.marian_model import write_marian
from tests.checkpoint.conftest import both
from tests.checkpoint.hugging_face.conftest import WORDS, transformers
from tests.checkpoint.hugging_face.conftest import write_marian as write_theirs
from tests.checkpoint.hugging_face.reference import odd_lines

SMALL = both(embed_dim=16, ffn_embed_dim=24, attention_heads=2, layers=2)
LINES = ["the dog runs", "", "two cats sleep near our old house.", "unknown 😀\u00a0words \u200b"]


def connection(spec: str) -> dict[str, Any]:
    return {"encoder_connection": spec, "decoder_connection": spec}


VARIANTS: dict[str, dict[str, Any]] = {
    "one embedding": {"share_all_embeddings": True},
    "two": {"share_decoder_input_output_embed": True, **connection("2xskip+ln")},
    "three": {**connection("deepnorm"), "activation_fn": "gelu"},
    "as Marian": {
        "share_all_embeddings": True, "output_bias": True, "start": "begin", "activation_fn": "swish",
        "encoder_learned_pos": True, "decoder_learned_pos": True,
    },
    "other": {
        **connection("askip+ln"), "no_token_positional_embeddings": True, "activation_fn": "gelu_accurate",
        "no_scale_embedding": True, "encoder_layers": 1, "decoder_ffn_embed_dim": 20, "decoder_attention_heads": 4,
    },
}  # fmt: skip


def random_model(source: int, target: int, **settings: Any) -> Transformer:
    """A model whose every part matters."""
    torch.manual_seed(7)
    positions = {"max_source_positions": 70, "max_target_positions": 70}
    model = Transformer(TransformerConfig(source, target, **{**SMALL, **positions, **settings}))
    for name, parameter in model.named_parameters():
        if "norm" in name and name.endswith("weight"):
            nn.init.uniform_(parameter, 0.5, 1.5)
        elif parameter.ndim:
            nn.init.normal_(parameter, std=0.3)
    return model.eval().requires_grad_(False)


def of_tokens(model: Transformer) -> Tokenizer:
    """Dictionaries of the model's sizes, for text that is tokens."""
    sizes = model.config.source_vocabulary, model.config.target_vocabulary
    source, target = (Dictionary(f"w{index}" for index in range(size - 4)) for size in sizes)
    return Tokenizer(TokenText("en", "de"), source, source if sizes[0] == sizes[1] else target)


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_greedy_search_are_ours(variant: str, tmp_path: Path) -> None:
    settings = VARIANTS[variant]
    model = random_model(40, 40 if settings.get("share_all_embeddings") else 50, **settings)
    write_marian(model, tmp_path, of_tokens(model))
    theirs, info = transformers.MarianMTModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    source = torch.randint(4, 40, (5, 70))
    source[1, 6:] = source[3, 2:] = Dictionary.pad_index
    start = theirs.config.decoder_start_token_id
    prefix = torch.cat([torch.full((5, 1), start), torch.randint(2, 40, (5, 69))], dim=1)
    with torch.inference_mode():
        found = theirs(input_ids=source, attention_mask=source.ne(1).long(), decoder_input_ids=prefix).logits
        tolerance = 1e-5 if model.connection == "1xskip+ln" else 5e-5  # folding moves eps
        torch.testing.assert_close(found, model(source, prefix), rtol=0, atol=tolerance)
        found = theirs.generate(
            input_ids=source, attention_mask=source.ne(1).long(), num_beams=1, do_sample=False, max_new_tokens=13
        )
        options = SearchOptions(beam=1, max_length_a=0, max_length_b=12)
        special, lengths = SpecialTokens.of(Dictionary, start=start), source.ne(1).sum(1)
        ours = beam_search(model, model.encode(source), options, source_lengths=lengths, special=special)
    for one, (best,) in zip(found, ours, strict=True):
        assert [index for index in one[1:].tolist() if index != 1] == best.tokens.tolist()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (connection("prenorm+ln"), "prenorm+ln is pre-norm, but MarianMTModel has only post-norm blocks"),
        (connection("sas"), "can't be folded"),
        ({"value_residual": "fixed"}, "fairseq's own transformer has no value_residual fixed"),
        ({"layernorm_embedding": True}, "MarianMTModel has no normalised embeddings"),
        ({"decoder_embed_dim": 32}, "MarianMTModel has no stacks of 16 and 32 features"),
        ({"decoder_learned_pos": True, "max_target_positions": 30}, "no learned positions of different lengths"),
    ],
)
def test_what_marian_can_not_compute(settings: dict[str, Any], problem: str, tmp_path: Path) -> None:
    model = random_model(40, 50, **settings)
    with pytest.raises(SettingError) as error:
        write_marian(model, tmp_path / "model", of_tokens(model))
    assert problem in str(error.value) and "`rskip translate`" in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "model").exists()


def sentencepiece_tokenizer(kind: SubwordKind, *added: AddedToken) -> Tokenizer:
    """As `rskip prepare` builds it."""
    settings: dict[str, Any] = {"source_language": "en", "target_language": "de", "tokeniser": "none"}
    config = TextConfig(normalise_punctuation=False, subwords=kind, added_tokens=added, **settings)
    text = [f"{WORDS['en']}. {WORDS['de']}!"] * 20
    subwords = subwords_class(kind).learn(text, size=350)
    assert isinstance(subwords, SentencePiece)
    dictionary = Dictionary([*subwords.units(), *(token.unit for token in added)])
    return Tokenizer(TextPipeline(config, subwords), dictionary, dictionary)


@pytest.mark.parametrize("kind", ["sentencepiece", "sentencepiece-bpe", "sentencepiece-bytes"])
def test_marian_tokenizer_does_what_a_pipeline_of_sentencepiece_does(kind: SubwordKind, tmp_path: Path) -> None:
    tokenizer = sentencepiece_tokenizer(kind)
    size = len(tokenizer.source)
    assert write_marian(random_model(size, size, share_all_embeddings=True), tmp_path, tokenizer)
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    assert theirs.vocab_size == size
    for line in odd_lines():
        line = line.translate({0x1C: " ", 0x85: " "})  # white space to us, control characters to SentencePiece
        if kind == "sentencepiece-bytes":  # which takes no white space for spaces
            line = " ".join(line.split())
        if line.startswith(">>") or not line.strip("\u200b\ufeff\u200d \t\u3000\u00a0\u2028"):
            continue  # a language token to MarianTokenizer; a blank line is not translated here
        ids = tokenizer.encode(line)
        assert theirs(line)["input_ids"] == ids, repr(line)
        known = [index for index in ids if index != Dictionary.unk_index]
        assert theirs.decode(known, skip_special_tokens=True).split() == tokenizer.decode(known).split()


def test_marian_tokenizer_is_not_written_for_added_tokens(tmp_path: Path) -> None:
    tokenizer = sentencepiece_tokenizer("sentencepiece", AddedToken(content="<name>"))
    size = len(tokenizer.source)
    assert not write_marian(random_model(size, size, share_all_embeddings=True), tmp_path, tokenizer)


def write_ours(folder: Path, tokenizer: Tokenizer, **settings: Any) -> Path:
    """A model folder of a random model with this tokenizer."""
    sizes = len(tokenizer.source), len(tokenizer.target)
    model = random_model(*sizes, share_all_embeddings=True, **settings)
    known = {name: value for name, value in model.config.to_dict().items() if "vocabulary" not in name}
    del known["padding_index"]
    config = {"arch": "x", "task": "translation", "source_lang": "en", "target_lang": "de", "model": known}
    tokenizer.save(folder)
    write_checkpoint(folder / "model.safetensors", Checkpoint(model=model.state_dict(), config=config))
    return folder


def translated(folder: Path) -> list[tuple[str, float]]:
    lines = [*LINES, "</s> the <unk> dog", ">>fra<< the dog", "the dog runs over a green field. " * 20]
    search: dict[str, Any] = {"beam": 4, "nbest": 3, "max_length_a": 0, "max_length_b": 12}
    found = Translator.from_pretrained(folder).translate(lines, **search)
    return [(each.text, round(each.score, 4)) for translation in found for each in translation.hypotheses]


def test_rskip_translates_alike_with_a_model_of_sentencepiece(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    ours, output = write_ours(tmp_path / "ours", sentencepiece_tokenizer("sentencepiece")), tmp_path / "theirs"
    command = ["export", "huggingface", "--model", str(ours), "--output", str(output)]
    assert main(command) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert translated(output) == translated(ours)
    card = (output / "README.md").read_text()
    assert "MarianTokenizer.from_pretrained" in card and "Unknown: state the licence" in card and "license:" not in card
    assert main(command) == 2 and "exists" in capsys.readouterr().err
    assert main([*command, "--force", "--dtype", "float16"]) == 0
    model = transformers.MarianMTModel.from_pretrained(output)
    assert model.dtype == torch.float16


def test_rskip_translates_alike_with_an_opus_model(tmp_path: Path) -> None:
    theirs = write_theirs(tmp_path / "opus", separate=True)
    output = tmp_path / "again"
    for command in ("export", "import") * 2:  # each replaces what it wrote
        assert main([command, "huggingface", "--model", str(theirs), "--output", f"{output / command}", "--force"]) == 0
    assert translated(output / "export") == translated(theirs)
    assert {"source.spm", "target.spm", "target_vocab.json"} < {path.name for path in (output / "export").iterdir()}


def test_a_model_of_the_zoo_has_its_scores_and_its_licence(root: Path, tmp_path: Path, capsys: Any) -> None:
    model, output = root / "checkpoints" / "multi30k_en_de/1xskip_ln", tmp_path / "model"
    assert main(["export", "huggingface", "--model", str(model), "--output", str(output)]) == 0
    assert "encode with rskip.text, as README.md shows" in capsys.readouterr().out
    assert not (output / "source.spm").exists()
    card = (output / "README.md").read_text()
    assert card.startswith('---\nlicense: "mit"\nlanguage: ["en", "de"]\n')
    assert "| multi30k-en-de | test_2016_flickr | sacreBLEU | 39.87 |" in card
    theirs, ours = Translator.from_pretrained(output), Translator.from_pretrained(model)
    line = "A dog runs through the grass."
    assert theirs.translate([line])[0].score == pytest.approx(ours.translate([line])[0].score, abs=1e-5)
    example = card.split("```python\n")[1].split("```")[0]
    exec(example.replace("FOLDER", str(output)).replace("A sentence.", line), {})
    assert capsys.readouterr().out == "Ein Hund rennt durch das Gras.\n"
