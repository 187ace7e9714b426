"""Models of fairseq's own tasks give fairseq's own translations: of one pair of languages, and multilingual ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.checkpoint import read_checkpoint, write_checkpoint
from rskip.cli.main import main
from rskip.translation import Translator
from tests.translation import fairseq_models
from tests.translation.fairseq_models import Fairseq

pytest.importorskip("fairseq.models", reason="needs fairseq: run `rskip setup-fairseq`")

EACH = ("dict.en.txt", "dict.de.txt", "dict.fr.txt")
MANY = "translation_multi_simple_epoch"
PRENORM = {"share_all_embeddings": True, "encoder_normalize_before": True, "decoder_normalize_before": True}
KINDS: dict[str, tuple[str, str, str, Sequence[str], dict[str, Any]]] = {
    "one pair": ("translation", "--source-lang en --target-lang de", "transformer_tiny", EACH, {}),
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
FAST = ("one pair", "m2m", "mbart25", "pairs")


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


def test_the_list_of_languages_is_read_next_to_the_checkpoint(tmp_path: Path) -> None:
    theirs = saved("mbart50", tmp_path)
    state = torch.load(theirs.checkpoint, weights_only=False)
    task = state["cfg"]["task"] if state.get("cfg") else vars(state["args"])
    expected = load(theirs.checkpoint)
    assert task.pop("langs")
    task["lang_dict"] = "/elsewhere/ML50_langs.txt"
    torch.save(state, theirs.checkpoint)
    with pytest.raises(ValueError, match="lang-dict.*put the file next to the checkpoint"):
        load(theirs.checkpoint)
    (tmp_path / "ML50_langs.txt").write_text("".join(f"{language}\n" for language in ("en", "de", "fr", "it")))
    assert load(theirs.checkpoint).translate(["w1 w2"]) == expected.translate(["w1 w2"])


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
