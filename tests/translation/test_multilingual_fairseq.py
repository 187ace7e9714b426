"""Multilingual models of fairseq's own tasks give fairseq's own translations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rskip.checkpoint import read_checkpoint, write_checkpoint
from rskip.cli.main import main
from rskip.cpu.int8 import largest_int8_weight
from rskip.generation import Hypothesis, SearchOptions
from rskip.translation import Translator, Workers
from rskip.translation.search import ModelSearcher, Segment
from tests.translation import fairseq_models
from tests.translation.fairseq_models import Fairseq

pytest.importorskip("fairseq.models", reason="needs fairseq: run `rskip setup-fairseq`")

EACH = ("dict.en.txt", "dict.de.txt", "dict.fr.txt")
MANY = "translation_multi_simple_epoch"
PRENORM = {"share_all_embeddings": True, "encoder_normalize_before": True, "decoder_normalize_before": True}
KINDS: dict[str, tuple[str, str, str, Sequence[str], dict[str, Any]]] = {
    "m2m": (
        MANY,
        "--langs en,de,fr --lang-pairs en-de,de-fr --encoder-langtok src --decoder-langtok "
        "--fixed-dictionary {folder}/model_dict.128k.txt",
        "transformer_tiny",
        ["model_dict.128k.txt"],
        PRENORM,
    ),
    "target token in the source": (
        MANY, "--lang-pairs en-de,de-fr --encoder-langtok tgt", "transformer_tiny", EACH, {},
    ),
    "in place of the ends": (
        MANY,
        "--langs en,de,fr --lang-pairs en-de --encoder-langtok src --decoder-langtok --lang-tok-replacing-bos-eos",
        "transformer_tiny",
        EACH,
        {},
    ),
    "mbart50": (
        MANY,
        "--langs en,de,fr,it --lang-pairs en-de --lang-tok-style mbart --encoder-langtok src --decoder-langtok",
        "mbart_base",
        ["dict.txt", *EACH],
        {},
    ),
    "mbart25": (
        "translation_from_pretrained_bart",
        "--langs en,de,fr --source-lang en --target-lang de",
        "mbart_base",
        EACH,
        {},
    ),
    "pairs": (
        "multilingual_translation",
        "--lang-pairs en-de,de-fr,en-fr --encoder-langtok src --decoder-langtok",
        "multilingual_transformer",
        EACH,
        {"share_encoders": True},
    ),
    "pairs without tokens": (
        "multilingual_translation",
        "--lang-pairs en-de,de-fr,en-fr",
        "multilingual_transformer",
        EACH,
        {"share_decoder_input_output_embed": True},
    ),
}  # fmt: skip
FAST = ("m2m", "mbart25", "pairs")


def saved(kind: str, folder: Path) -> Fairseq:
    task, flags, arch, dictionaries, settings = KINDS[kind]
    return fairseq_models.save(folder, task, flags.split(), arch, dictionaries, **settings)


@pytest.fixture(scope="module")
def m2m(tmp_path_factory: pytest.TempPathFactory) -> Fairseq:
    return saved("m2m", tmp_path_factory.mktemp("m2m"))


def load(model: Path, source: str | None = "en", target: str | None = "de", **settings: Any) -> Translator:
    return Translator.from_pretrained(model, text="tokens", source_language=source, target_language=target, **settings)


@pytest.mark.filterwarnings("ignore")  # fairseq's
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind not in FAST)) for kind in KINDS])
def test_the_same_hypotheses_as_fairseqs_search(kind: str, tmp_path: Path) -> None:
    theirs = saved(kind, tmp_path)
    sentences = fairseq_models.sentences(100)
    expected = theirs.best(sentences, "en", "de", beam=5, max_len_a=0, max_len_b=8)
    found = load(theirs.checkpoint).translate(
        sentences, beam=5, nbest=5, max_length_a=0.0, max_length_b=8, token_scores=True, attention=True
    )
    for translation, best in zip(found, expected, strict=True):
        assert [each.score for each in translation.hypotheses] == pytest.approx([score for _, score in best], abs=1e-5)
        for rank, (ours, (text, score)) in enumerate(zip(translation.hypotheses, best, strict=True)):
            others = [other for number, (_, other) in enumerate(best) if number != rank]
            tied = min(abs(other - score) for other in others) < 1e-5 or rank == len(best) - 1  # with the next one
            assert ours.text == text or tied
        for each in translation.hypotheses:
            shape = len(each.tokens) + 1, len(translation.source_tokens) + 1
            assert (len(each.token_scores), each.attention.shape) == (shape[0], shape)
            assert all(source < shape[1] and target < shape[0] for source, target in each.alignment)


def test_one_translator_for_many_pairs(m2m: Fairseq) -> None:
    translator = load(m2m.checkpoint)
    sentence = "w1 w2 w3 w4"
    (french,) = translator.translate([sentence], target_language="fr")
    assert french == load(m2m.checkpoint, target="fr").translate([sentence])[0]
    assert french.score != translator.translate([sentence])[0].score
    assert translator.target_language == "de"
    with pytest.raises(ValueError, match=r"^target_language is 'it', which the model doesn't have: expected one of de"):
        translator.translate([sentence], target_language="it")
    with pytest.raises(ValueError, match=r"^target_language is 'en', the source language"):
        translator.translate([sentence], target_language="en")


def test_every_part_of_a_long_line_has_the_tokens(m2m: Fairseq) -> None:
    translator = load(m2m.checkpoint)
    seen: list[Segment] = []

    def spy(batches: Sequence[Sequence[Segment]], options: SearchOptions) -> Iterator[list[list[Hypothesis]]]:
        seen.extend(segment for batch in batches for segment in batch)
        return ModelSearcher(translator.model)(batches, options)

    words = [f"w{number}" for number in range(20)]
    (found,) = translator.translate([" ".join(words)], max_source_tokens=9, searcher=spy, prefixes=["w3"])
    english, german = (translator.tokenizer.source.index(f"__{code}__") for code in ("en", "de"))
    assert len(seen) == 3 and all(segment.source[0] == english and segment.source[-1] == 2 for segment in seen)
    assert all(len(segment.source) <= 9 and segment.prefix[0] == german for segment in seen)
    assert [segment.prefix[1:] for segment in seen if len(segment.prefix) > 1] == [
        [translator.tokenizer.target.index("w3")]
    ]
    assert found.source_tokens == tuple(words) and "__de__" not in found.text


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a model whose linear maps are large enough for int8."""
    task, flags, arch, dictionaries, settings = KINDS["m2m"]
    sizes = {f"{side}_{name}": 64 for side in ("encoder", "decoder") for name in ("embed_dim", "ffn_embed_dim")}
    folder = tmp_path_factory.mktemp("wide")
    return fairseq_models.save(folder, task, flags.split(), arch, dictionaries, **settings, **sizes).checkpoint


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_other_precisions(precision: str, wide: Path) -> None:
    if precision == "int8" and not largest_int8_weight():
        pytest.skip("int8 needs the compiled kernels")
    search: dict[str, Any] = {"beam": 1, "max_length_a": 0.0, "max_length_b": 8}
    sentences = fairseq_models.sentences(20)
    other = load(wide, precision=precision)
    assert other.precision == precision
    for target in ("de", "fr"):
        ours = load(wide, target=target).translate(sentences, **search)
        found = other.translate(sentences, target_language=target, **search)
        assert sum(one.text == two.text for one, two in zip(ours, found, strict=True)) >= 15
        for one, two in zip(ours, found, strict=True):
            if one.text == two.text:
                assert two.score == pytest.approx(one.score, abs=0.1)


def test_worker_processes_translate_the_same_into_each_language(wide: Path) -> None:
    translator, sentences = load(wide), fairseq_models.sentences(12)
    with Workers(translator.model, 2) as workers:
        for target in ("de", "fr"):
            expected = translator.translate(sentences, target_language=target)
            found = translator.translate(sentences, target_language=target, searcher=workers, max_tokens=30)
            assert found == expected


def test_an_interrupted_file_is_resumed_with_the_same_languages(
    wide: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, output = tmp_path / "text", tmp_path / "output"
    lines = [f"{line}\n".encode() for line in fairseq_models.sentences(9)]
    lines[3] = " ".join(f"w{number % 20}" for number in range(300)).encode() + b"\n"  # is split
    text.write_bytes(b"".join([*lines[:6], b"\xff\n", *lines[6:]]))
    command = ["translate", "--model", str(wide), "--text", "tokens", "--source-lang", "en", "--quiet"]
    command += ["--buffer-size", "2", "--max-source-positions", "60", "--max-len-a", "1", str(text), "--output"]
    german = [*command, str(output), "--target-lang", "de"]
    assert main(german) == 2 and not output.exists()
    assert "lines up to 6 are in" in capsys.readouterr().err
    text.write_bytes(b"".join(lines))
    assert main([*command, str(output), "--target-lang", "fr", "--resume"]) == 2
    assert "was started with" in capsys.readouterr().err
    assert main([*german, "--resume"]) == 0
    assert main([*command, str(tmp_path / "whole"), "--target-lang", "de"]) == 0
    assert output.read_bytes() == (tmp_path / "whole").read_bytes()
    assert output.read_bytes().count(b"\n") == 9 and b"__de__" not in output.read_bytes()


@pytest.mark.parametrize("kind", ["m2m", "pairs"])
def test_import_makes_a_folder_that_translates_alike(kind: str, tmp_path: Path) -> None:
    theirs = saved(kind, tmp_path / "theirs")
    flags = ["--dictionaries", str(tmp_path / "theirs"), "--text", "tokens", "--source-lang", "en"]
    given = ["--checkpoint", str(theirs.checkpoint), *flags, "--target-lang", "de", "--output", str(tmp_path / "ours")]
    assert main(["import", "fairseq", *given]) == 0
    ours = load(tmp_path / "ours")
    sentences = fairseq_models.sentences(5)
    assert ours.translate(sentences) == load(theirs.checkpoint).translate(sentences)
    if kind == "m2m":
        assert (tmp_path / "ours/dict.txt").is_file() and not (tmp_path / "ours/dict.de.txt").exists()
        assert ours("w1 w2", target_language="fr") == load(theirs.checkpoint, target="fr")("w1 w2")


def test_a_model_per_pair_in_safetensors(tmp_path: Path) -> None:
    theirs = saved("pairs", tmp_path)
    file = theirs.checkpoint.with_name("model.safetensors")
    write_checkpoint(file, read_checkpoint(theirs.checkpoint))
    sentences = fairseq_models.sentences(5)
    for source, target in (("en", "de"), ("de", "fr")):
        expected = load(theirs.checkpoint, source, target).translate(sentences)
        assert load(file, source, target, device="cpu").translate(sentences) == expected


@pytest.mark.parametrize(
    ("kind", "languages", "message"),
    [
        ("m2m", (None, None), "source_language must be given: expected one of de, en, fr"),
        ("m2m", ("en", "deu"), r"target_language is 'deu' \(did you mean 'de'\?\), which the model doesn't have"),
        ("pairs", (None, None), "source_language must be given: expected one of the pairs en-de, de-fr, en-fr"),
        ("pairs", ("de", "en"), "target_language is 'en', which the model doesn't have with de: expected one of the"),
    ],
)
def test_languages_that_the_model_lacks(
    kind: str, languages: tuple[str | None, str | None], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        load(saved(kind, tmp_path).checkpoint, *languages)
    assert "\n" not in str(caught.value)


def test_a_dictionary_of_another_model(m2m: Fairseq, tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_text("w1 1\nw2 1\n")
    with pytest.raises(ValueError, match="another model: the source one has 9 tokens .* the model 31; give"):
        load(m2m.checkpoint, dictionaries=tmp_path / "dict.txt")
