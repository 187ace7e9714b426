"""Our API for text."""

from __future__ import annotations

import random

import pytest

import rskip

pytest.importorskip("fastapi", reason="needs the extra serve")


def test_translations_are_those_of_the_translator_with_scores_alignment_and_notes(serving, models, root):
    service = serving()
    sentences = ["Two dogs are playing in the snow.", "", "a man and " * 350]
    asked = {
        "text": sentences, "nbest": 2, "beam": 3, "token_scores": True, "alignment": True, "attention": True,
    }  # fmt: skip
    answer = service.send("POST", "/v1/translate", json=asked).json()
    assert (answer["model"], answer["source"], answer["target"]) == ("de", "en", "de")
    _, translator = models.translator("de", None, None)
    expected = translator.translate(sentences, nbest=2, beam=3, token_scores=True, attention=True)
    for given, translation in zip(answer["translations"], expected, strict=True):
        (sentence,) = given["sentences"]
        assert given["text"] == translation.text
        assert sentence["notes"] == [*translation.notes]
        assert sentence["source_tokens"] == [*translation.source_tokens]
        for one, hypothesis in zip(sentence["hypotheses"], translation.hypotheses, strict=True):
            assert (one["text"], one["tokens"]) == (hypothesis.text, [*hypothesis.tokens])
            assert one["score"] == pytest.approx(hypothesis.score, abs=1e-5)
            assert one["alignment"] == [[*pair] for pair in hypothesis.alignment]
            assert one["token_scores"] == pytest.approx([*hypothesis.token_scores], abs=1e-4)
    attention = answer["translations"][0]["sentences"][0]["hypotheses"][0]["attention"]
    assert sum(attention[0]) == pytest.approx(1, abs=1e-2)
    assert "split into 5 parts" in answer["translations"][2]["sentences"][0]["notes"][0]


def test_whatever_the_batches_outputs_are_those_of_offline_translation(serving, models):
    rng = random.Random(1)
    words = ["a", "man", "woman", "dog", "two", "red", "in", "on", "the", "street", "plays", "with", "ball", "and"]
    sentences = [" ".join(rng.choices(words, k=rng.randint(1, 25))).capitalize() + "." for _ in range(60)]
    _, translator = models.translator("de", None, None)
    expected = [each.text for each in translator.translate(sentences)]
    for settings in ({"batch_tokens": 50}, {"batch_wait": 5.0}):
        requests = [("POST", "/v1/translate", {"json": {"text": each, "target": "de"}}) for each in sentences]
        answers = serving(**settings).send_all(requests)
        assert [each.json()["translations"][0]["text"] for each in answers] == expected


def test_attention_has_a_limit_and_a_small_max_beam_caps_the_default(serving, models, monkeypatch):
    from rskip.serving import own_api

    asked = {"text": "A dog runs.", "nbest": 2, "attention": True}
    _, translator = models.translator("de", None, None)
    size = len(translator.translate(["A dog runs."])[0].source_tokens) + 1
    values = 2 * size * (translator.options.max_length(size) + 1)
    for limit, status in ((values, 200), (values - 1, 400)):
        monkeypatch.setattr(own_api, "_MOST_ATTENTION", limit)
        answer = serving(max_beam=2).send("POST", "/v1/translate", json=asked)
        assert answer.status_code == status
    assert f"need up to {values:,} values for this text: expected at most {limit:,}" in answer.json()["error"]
    assert serving(max_beam=1).send("POST", "/v1/translate", json={"text": "A dog runs."}).status_code == 200


def test_a_text_is_split_on_request(serving):
    asked = {"text": "A dog runs. A man sleeps.\n\nA dog runs.", "split": True}
    (found,) = serving().send("POST", "/v1/translate", json=asked).json()["translations"]
    assert found["text"] == "Ein Hund rennt. Ein Mann schläft.\n\nEin Hund rennt."
    assert [each["source"] for each in found["sentences"]] == ["A dog runs.", "A man sleeps.", "A dog runs."]


@pytest.mark.parametrize(
    ("status", "message", "fields"),
    [
        (400, "unknown key txt; did you mean text?", {"txt": "a"}),
        (400, "unknown key foo; the closest of 13 keys: token_scores, model, source; GET /openapi.json", {"foo": 1}),
        (400, "text is 3", {"text": 3}),
        (400, "no model translates from German (de): expected en as the source language", {"source": "de"}),
        (400, "nbest is 0: expected a whole number, 1 or more", {"nbest": 0}),
        (400, "beam is 17: expected at most 16, the server's maximum", {"beam": 17}),
        (400, "nbest is 3: expected at most beam (--beam), which is 2", {"beam": 2, "nbest": 3}),
        (200, "", {"text": "a\nb"}),
        (404, "no model is called 'dee' (did you mean 'de'?): expected de, fr", {"model": "dee"}),
        (400, "as a target language from the source language of a model; the request names the model de",
         {"model": "de", "target": "fr"}),
        (200, "", {"text": []}),
    ],
)
def test_wrong_values_are_one_line(serving, status, message, fields):
    answer = serving().send("POST", "/v1/translate", json={"text": "A dog.", **fields})
    assert answer.status_code == status and message in answer.json().get("error", "")


def test_models_and_the_description_of_the_api(serving):
    service = serving()
    found = service.send("GET", "/v1/models").json()["data"]
    assert [(each["id"], each["kind"], each["connection"]) for each in found] == [
        ("de", "translation", "2rskip+ln"), ("fr", "translation", "2rskip+ln"),
    ]  # fmt: skip
    described = service.send("GET", "/openapi.json").json()
    assert described["info"]["version"] == rskip.__version__
    for path in ("/translate", "/detect"):
        assert "multipart/form-data" in described["paths"][path]["post"]["requestBody"]["content"]
    body = described["paths"]["/v1/translate"]["post"]["requestBody"]
    assert body["content"]["application/json"]["schema"]["properties"]["nbest"]["minimum"] == 1
    assert [service.send("GET", path).status_code for path in ("/docs", "/health", "/ready")] == [404, 200, 200]
