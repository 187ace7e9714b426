"""Raw text in, raw text out, with the published models."""

from __future__ import annotations

import gzip
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import pytest
import torch

from rskip.cpu.linear import largest_int8_weight
from rskip.generation import SearchOptions
from rskip.translation import Translation, Translator, Workers
from rskip.translation.metrics import score

DOG = "A dog runs through the tall grass."
HUND = "Ein Hund rennt durch das hohe Gras."
needs_int8 = pytest.mark.skipif(not largest_int8_weight(), reason="no 8-bit products here")


@pytest.fixture(scope="module")
def translator(root: Path) -> Translator:
    return Translator.from_pretrained(root / "checkpoints/multi30k_en_de/2rskip_ln")


def read(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


@pytest.fixture(scope="module")
def sentences(shared: Path) -> list[str]:
    return read(shared / "data/multi30k/test_2016_flickr.en.gz")[:60]


@pytest.fixture(scope="module")
def translations(translator: Translator, sentences: list[str]) -> list[Translation]:
    return translator.translate(sentences)


@pytest.mark.parametrize("name", ["1xskip_ln", "2rskip_ln"])
def test_raw_text_to_raw_text(name: str, root: Path) -> None:
    translator = Translator.from_pretrained(root / f"checkpoints/multi30k_en_de/{name}")
    assert (translator.source_language, translator.target_language) == ("en", "de")
    assert translator(DOG) == HUND
    assert translator(DOG, beam=1) == HUND


def test_a_slice_is_as_good_as_its_record_says(
    translations: list[Translation], sentences: list[str], shared: Path
) -> None:
    references = read(shared / "data/multi30k/test_2016_flickr.de.gz")[: len(sentences)]
    assert score([each.text for each in translations], references)["sacrebleu"].value > 37
    assert [each.source for each in translations] == sentences
    assert not any(each.notes for each in translations)


def test_a_translation_does_not_depend_on_its_batch(
    translator: Translator, sentences: list[str], translations: list[Translation]
) -> None:
    few = sentences[:24]
    for others in (
        translator.translate(few, max_tokens=1),
        translator.translate(few, max_tokens=100),
        translator.translate(few[::-1])[::-1],
    ):
        assert [each.text for each in others] == [each.text for each in translations[:24]]
        for other, each in zip(others, translations[:24], strict=True):
            assert other.score == pytest.approx(each.score, abs=1e-5)


def test_threads_share_one(translator: Translator, sentences: list[str], translations: list[Translation]) -> None:
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda start: translator.translate(sentences[start : start + 10]), range(0, 60, 10)))
    found = [each for part in parts for each in part]
    assert [each.text for each in found] == [each.text for each in translations]
    assert [each.score for each in found] == pytest.approx([each.score for each in translations], abs=1e-5)


def test_worker_processes_give_the_same_in_the_same_order_and_one_that_is_killed_is_told(
    translator: Translator, sentences: list[str]
) -> None:
    settings = {"beam": 3, "nbest": 2, "token_scores": True, "attention": True, "max_tokens": 100}
    sentences = [*sentences[:12], " ", *sentences[12:16]]
    alone = translator.translate(sentences, **settings)
    with Workers(translator.model, 2) as workers:
        together = translator.translate(sentences, searcher=workers, **settings)
        processes = multiprocessing.active_children()
        assert len(processes) == 2
        processes[0].kill()
        processes[0].join()  # else the other one may have translated all before this one is dead
        with pytest.raises(ValueError, match="a worker process was killed, perhaps because the memory is full"):
            translator.translate(["A dog runs."] * 8, max_tokens=4, searcher=workers)
    assert not multiprocessing.active_children()
    for one, other in zip(alone, together, strict=True):
        assert (one.source, one.text, one.notes) == (other.source, other.text, other.notes)
        for left, right in zip(one.hypotheses, other.hypotheses, strict=True):
            assert (left.tokens, left.alignment) == (right.tokens, right.alignment)
            assert left.token_scores == pytest.approx(right.token_scores, abs=1e-5)


def test_texts_without_a_letter_stay_without_the_model(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = translator.translate(["", DOG, " \t\u3000", "\0", "12:30 :-)"], nbest=2)
    assert [each.text for each in mixed] == ["", HUND, " \t\u3000", " ", "12:30 :-)"]
    assert [len(each.hypotheses) for each in mixed] == [1, 2, 1, 1, 1]
    assert mixed[0].score == 0 and mixed[0].hypotheses[0].tokens == ()
    monkeypatch.setattr(translator.model, "search", None)
    assert [each.text for each in translator.translate(["", "  "], prefixes=["", "Ein"])] == ["", "  "]
    assert translator.translate([" \t\u3000"], split_sentences=False)[0].text == ""


LINE = (
    "Two dogs are playing in the snow. A man is riding a bicycle. "
    "A woman in a red shirt is singing. Three children are sitting on a bench."
)


def test_every_sentence_of_a_text_is_translated(translator: Translator) -> None:
    sentences = [f"{each}." for each in LINE.rstrip(".").split(". ")]
    alone = [translator(each) for each in sentences]
    assert translator(LINE) == " ".join(alone)
    assert translator(LINE, split_sentences=False) != translator(LINE)
    layout = "  {}  {}\n\n12:30. {}\r\n\t{} "
    assert translator(layout.format(*sentences)) == layout.format(*alone)


def test_a_text_of_several_sentences_has_one_score_per_hypothesis(translator: Translator) -> None:
    two = "Two dogs are playing in the snow. A man is riding a bicycle."
    whole = translator.translate([two], nbest=2, token_scores=True)[0]
    parts = translator.translate([f"{each}." for each in two.rstrip(".").split(". ")], nbest=2, token_scores=True)
    for rank, hypothesis in enumerate(whole.hypotheses):
        pieces = [each.hypotheses[rank] for each in parts]
        scores = [score for piece in pieces for score in piece.token_scores]
        assert hypothesis.text == " ".join(piece.text for piece in pieces)
        assert hypothesis.score == pytest.approx(sum(scores) / len(scores), abs=1e-5)


def test_a_translator_can_be_pickled(translator: Translator) -> None:
    other = pickle.loads(pickle.dumps(translator))
    assert other(LINE) == translator(LINE) and repr(other) == repr(translator)


def test_ctrl_c_at_the_end_of_a_search_is_not_lost(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(search: object) -> None:
        free(search)
        raise KeyboardInterrupt

    library = translator.model.library
    free = library.search_free
    monkeypatch.setattr(library, "search_free", interrupted)
    with pytest.raises(KeyboardInterrupt):
        translator(DOG)
    assert translator.translate([]) == []


def test_nbest_with_scores_and_attention(translator: Translator) -> None:
    options = SearchOptions(beam=5, nbest=3, token_scores=True, attention=True, max_length_b=100)
    dog, man = translator.translate([DOG, "A man in a blue shirt is standing on a ladder."], options)
    for translation in (dog, man):
        scores = [hypothesis.score for hypothesis in translation.hypotheses]
        assert len(scores) == 3 and scores == sorted(scores, reverse=True) and translation.score == scores[0]
        assert len({hypothesis.text for hypothesis in translation.hypotheses}) == 3
        for hypothesis in translation.hypotheses:
            assert len(hypothesis.token_scores) == len(hypothesis.tokens) + 1
            assert sum(hypothesis.token_scores) / len(hypothesis.token_scores) == pytest.approx(hypothesis.score)
            assert hypothesis.attention.shape == (len(hypothesis.tokens) + 1, len(translation.source_tokens) + 1)
            assert hypothesis.attention.sum(1) == pytest.approx(numpy.ones(len(hypothesis.tokens) + 1), abs=1e-5)
            for number, (source, target) in enumerate(hypothesis.alignment):
                assert target == number
                assert hypothesis.attention[target, source] == hypothesis.attention[target, :-1].max()
    best = dog.hypotheses[0]
    pairs = {(dog.source_tokens[source], best.tokens[target]) for source, target in best.alignment}
    assert {("dog", "Hund"), ("runs", "rennt"), ("through", "durch"), ("grass", "Gras")} <= pairs
    plain = translator.translate([DOG])[0].hypotheses[0]
    assert plain.token_scores is plain.alignment is plain.attention is None


def test_prefixes_are_kept_and_each_sentence_has_its_own(translator: Translator) -> None:
    prefixes = ["Zwei große Hunde", None, "", "Der"]
    found = translator.translate([DOG] * 4, prefixes=prefixes)
    assert found[0].text.startswith("Zwei große Hunde ") and found[3].text.startswith("Der ")
    assert found[1].text == found[2].text == HUND
    for each, prefix in zip(found, prefixes, strict=True):
        alone = translator.translate([DOG], prefixes=[prefix])[0]
        assert alone.text == each.text
        assert alone.score == pytest.approx(each.score, abs=1e-5)


def test_settings_change_the_options_of_this_call_alone(translator: Translator) -> None:
    before = translator.options
    greedy = translator.translate([DOG], SearchOptions(beam=1))[0]
    wide = translator.translate([DOG], SearchOptions(beam=1), beam=2, nbest=2)[0]
    assert len(greedy.hypotheses) == 1 and len(wide.hypotheses) == 2
    long = translator.translate([DOG], min_length=20)[0]
    assert len(long.hypotheses[0].tokens) >= 20
    assert translator.options is before and before.beam == 4


def test_what_is_unknown(translator: Translator) -> None:
    assert translator("A dog\0runs through the tall grass.") == HUND
    strange = translator.translate(["中文 \u2028 \U0001f600 \x07", "</s> <pad> " + DOG])
    assert all(isinstance(each.text, str) for each in strange)
    assert "<unk>" in translator.translate([DOG], prefixes=["Ein 中"])[0].text


def test_a_translation_that_does_not_end_is_noted(translator: Translator) -> None:
    stopped = translator.translate([DOG], max_length_a=0, max_length_b=3)[0]
    assert stopped.notes == ("its translation reached the max length, 3 tokens (max_length_a, max_length_b)",)
    assert len(stopped.hypotheses[0].tokens) == 3


@pytest.mark.parametrize(
    ("sentences", "settings", "message"),
    [
        (DOG, {}, r"expected a list of texts, got one string: use translate\(\[text\]\)"),
        ([DOG, "A dog\nruns."], {"split_sentences": False}, "sentence 2: it has a line feed inside"),
        ([DOG, "A dog \udc80"], {}, "sentence 2: .* surrogates not allowed"),
        ([DOG], {"prefixes": ["Ein\n"]}, "sentence 1: its prefix: it has a line feed inside"),
        ([DOG], {"prefixes": ["ein " * 90]}, "sentence 1: its prefix has 90 tokens, but its translation may have 68 "),
        ([DOG], {"beams": 3}, "unknown key beams; did you mean beam\\?"),
        ([DOG], {"too_long": "drop"}, "too_long is 'drop': expected keep or cut or split"),
        ([DOG], {"max_source_tokens": 0}, "max_source_tokens is 0: expected 2 or more"),
        ([DOG], {"prefixes": []}, "prefixes has 0 items: expected one per text, 1"),
    ],
)
def test_mistakes(translator: Translator, sentences: object, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        translator.translate(sentences, **settings)
    assert "\n" not in str(caught.value)


@needs_int8
def test_int8_stays_on_the_cpu(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = Translator.from_pretrained(root / "checkpoints/multi30k_en_de/2rskip_ln", precision="int8")
    assert translator(DOG) == HUND
    monkeypatch.setattr("rskip.translation.translator.usable_device", torch.device)  # as if there were a GPU
    with pytest.raises(ValueError, match="an int8 model runs only on CPUs, not on cuda"):
        translator.to("cuda")
