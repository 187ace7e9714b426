"""Marian folders compute what transformers computes, and their text is MarianTokenizer's."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rskip.checkpoint import build_transformer
from rskip.checkpoint.hugging_face import HuggingFaceModel, read_hugging_face
from rskip.cpu import for_inference
from rskip.generation import SearchOptions, SpecialTokens, beam_search
from rskip.text import Dictionary, Tokenizer
from rskip.transformer import Transformer
from tests.checkpoint.hugging_face.conftest import marian, transformers
from tests.checkpoint.hugging_face.reference import ADDED, lines_with_added_tokens, odd_lines, reference_search

__all__ = ["marian"]

VARIANTS: dict[str, dict[str, Any]] = {
    "one vocabulary": {},
    "two vocabularies": {"separate": True, "activation_function": "relu"},
    "own output projection": {"separate": True, "tie_word_embeddings": False, "scale_embedding": False},
    "rounded size": {"vocab_size": 128, "decoder_vocab_size": 128},
}


def theirs(folder: Path) -> Any:
    return transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()


def built(read: HuggingFaceModel) -> Transformer:
    sizes = {f"{side}_vocabulary": len(getattr(read.tokenizer, side)) for side in ("source", "target")}
    return build_transformer(read.checkpoint, **sizes)


def their_rows(dictionary: Dictionary, vocabulary: dict[str, int], size: int) -> Tensor:
    """The number of each of our tokens in their vocabulary; 0 is the start, which has none of its own."""
    unnamed = iter(sorted({*range(size)} - {*vocabulary.values()}))
    numbers = [vocabulary[token] if token in vocabulary else next(unnamed) for token in dictionary.tokens[1:]]
    return torch.tensor([vocabulary["<pad>"], *numbers])


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_theirs(marian: Callable[..., Path], variant: str) -> None:
    folder = marian(**VARIANTS[variant])
    reference, read = theirs(folder), read_hugging_face(folder)
    model = built(read)
    assert model.config.output_bias and model.config.start == "begin"
    files = ["vocab.json", "target_vocab.json" if VARIANTS[variant].get("separate") else "vocab.json"]
    sizes = (reference.config.vocab_size, reference.config.decoder_vocab_size)
    rows = [
        their_rows(dictionary, json.loads((folder / name).read_text()), size)
        for dictionary, name, size in zip((read.tokenizer.source, read.tokenizer.target), files, sizes, strict=True)
    ]
    torch.manual_seed(0)
    source = torch.randint(4, len(rows[0]), (5, 9))
    source[1, 6:] = source[3, 2:] = Dictionary.pad_index
    prefix = torch.cat([torch.zeros(5, 1, dtype=torch.long), torch.randint(2, len(rows[1]), (5, 12))], dim=1)
    with torch.inference_mode():
        expected = reference(
            input_ids=rows[0][source], attention_mask=source.ne(1).long(), decoder_input_ids=rows[1][prefix]
        ).logits[:, :, rows[1]]
        found = model(source, prefix)
        steps = for_inference(model)
        state = steps.start(steps.encode(source))
        stepwise = torch.cat([steps.step(tokens[:, None], state) for tokens in prefix.T], dim=1)
    for each in (found, stepwise):
        torch.testing.assert_close(each[:, :, 1:], expected[:, :, 1:], rtol=0, atol=1e-5)
        assert (each[:, :, 0] < -9_000).all(), "the start token could be generated"


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("name", ["lm_head.weight", "model.decoder.embed_tokens.weight"])
def test_tied_tables_under_another_name(marian: Callable[..., Path], name: str, separate: bool) -> None:
    folder = marian(separate=separate)
    expected = read_hugging_face(folder).checkpoint.model
    weights = load_file(folder / "model.safetensors")
    tied = ["model.decoder.embed_tokens.weight", "model.shared.weight", "lm_head.weight"]
    (table,) = [weights.pop(each) for each in tied if each in weights]
    save_file({**weights, name: table}, folder / "model.safetensors", metadata={"format": "pt"})
    found = read_hugging_face(folder).checkpoint.model
    assert found.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in found.items())


@pytest.mark.parametrize("variant", ["one vocabulary", "two vocabularies"])
def test_the_search_is_fairseqs_over_their_model(marian: Callable[..., Path], variant: str) -> None:
    folder = marian(**VARIANTS[variant])
    reference, read = theirs(folder), read_hugging_face(folder)
    tokenizer, model = read.tokenizer, for_inference(built(read), "float32")
    files = ["vocab.json", "target_vocab.json" if VARIANTS[variant].get("separate") else "vocab.json"]
    vocabularies = [json.loads((folder / name).read_text()) for name in files]
    rows = [
        their_rows(dictionary, each, len(each))
        for dictionary, each in zip((tokenizer.source, tokenizer.target), vocabularies, strict=True)
    ]
    generator = random.Random(3)
    options = SearchOptions(beam=5, nbest=5, max_length_a=0, max_length_b=8)
    for _ in range(25):
        source = torch.tensor(
            [*generator.choices(range(4, len(rows[0])), k=generator.randint(1, 9)), Dictionary.eos_index]
        )
        special = SpecialTokens.of(Dictionary, start=Dictionary.bos_index)
        with torch.inference_mode():
            memory = model.encode(source[None])
            (found,) = beam_search(model, memory, options, source_lengths=torch.tensor([len(source)]), special=special)
            expected = reference_search(
                reference, rows[0][source], beam=5, longest=8,
                start=vocabularies[1]["<pad>"], end=vocabularies[1]["</s>"], padding=vocabularies[1]["<pad>"],
            )  # fmt: skip
        assert [rows[1][each.tokens[:-1]].tolist() for each in found] == [tokens for tokens, _ in expected]
        assert [each.score for each in found] == pytest.approx([score for _, score in expected], abs=2e-5)


SPM: dict[str, dict[str, Any]] = {
    "usual": {},
    "identity": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "bytes": {"byte_fallback": True, "model_type": "bpe", "vocab_size": 340},
}


@pytest.mark.parametrize("spm", SPM)
@pytest.mark.parametrize("separate", [False, True])
def test_text_is_that_of_their_tokenizer(marian: Callable[..., Path], spm: str, separate: bool) -> None:
    folder = marian(spm=SPM[spm], separate=separate, languages=["fra", "deu"])
    reference = transformers.MarianTokenizer.from_pretrained(folder)
    tokenizer = read_hugging_face(folder, languages=(None, "de")).tokenizer
    files = ["vocab.json", "target_vocab.json" if separate else "vocab.json"]
    names = [{number: token for token, number in json.loads((folder / name).read_text()).items()} for name in files]
    assert_their_text(tokenizer, reference, names, odd_lines())


def test_added_tokens_stay_whole(marian: Callable[..., Path], tmp_path: Path) -> None:
    folder = marian(languages=["fra", "deu"])
    reference, model = transformers.MarianTokenizer.from_pretrained(folder), theirs(folder)
    reference.add_tokens(ADDED)
    model.resize_token_embeddings(len(reference), mean_resizing=False)
    for part in (reference, model):
        part.save_pretrained(folder)
    tokenizer = read_hugging_face(folder, languages=(None, "de")).tokenizer
    names = [{number: token.replace(" ", "\u2581") for token, number in reference.get_vocab().items()}] * 2
    assert_their_text(tokenizer, reference, names, [*lines_with_added_tokens(), *odd_lines()])


def test_added_tokens_of_two_vocabularies_are_refused(marian: Callable[..., Path]) -> None:
    folder = marian(separate=True)
    (folder / "added_tokens.json").write_text(json.dumps({"<name>": 120}))
    with pytest.raises(ValueError, match=r"has 1 added token \(<name>\), which rskip can't read with two vocabularies"):
        read_hugging_face(folder)


def assert_their_text(tokenizer: Tokenizer, reference: Any, names: list[dict[int, str]], lines: list[str]) -> None:
    """:param names: the tokens of the source and of the target by their numbers."""
    for line in lines:
        expected = [names[0][number] for number in reference(line)["input_ids"]]
        if line.strip("\u200b\ufeff\u200d \t\u3000\u00a0\u2028\x85\x1c"):  # a blank line is not translated
            assert [tokenizer.source.tokens[index] for index in tokenizer.encode(line)] == expected, repr(line)
        target = reference(text_target=line)["input_ids"]
        ours = [tokenizer.target.index(names[1][number]) for number in target]
        known = [index for index in ours if index != Dictionary.unk_index]
        assert tokenizer.decode(known) == reference.decode(target, skip_special_tokens=True), repr(line)


@pytest.mark.parametrize("length", [10**12, -1])
def test_positions_are_checked_before_their_table_is_made(marian: Callable[..., Path], length: int) -> None:
    folder = marian()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": length}))
    with pytest.raises(ValueError, match=rf"config\.json: max_position_embeddings is {length}: expected"):
        read_hugging_face(folder)


@pytest.mark.parametrize("name", ["source.spm", "target.spm"])
@pytest.mark.parametrize("size", [0, 500])
def test_a_truncated_sentencepiece_model_is_named(marian: Callable[..., Path], name: str, size: int) -> None:
    path = marian() / name
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=rf"^\S+/{name}: not a SentencePiece model") as error:
        read_hugging_face(path.parent)
    assert len(str(error.value).splitlines()) == 1
