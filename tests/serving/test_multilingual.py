"""A multilingual model over HTTP."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from rskip.serving.models import Models, ServedModel, load_models  # noqa: E402
from rskip.text.language_codes import short_code  # noqa: E402


def test_requests_choose_among_the_models_languages(serving, tmp_path):
    families = pytest.importorskip("tests.checkpoint.hugging_face.families", reason="needs transformers")
    family = families.FAMILIES["nllb"]
    folder = family.write(tmp_path / "nllb")
    models = load_models([str(folder)], languages=family.languages)
    service = serving(models=models)
    codes = [each["code"] for each in service.send("GET", "/languages").json()]
    assert {*family.languages} <= {*codes} and len(codes) > 2
    (translator,) = [each.model for each in models]
    for source, target in ((codes[0], codes[1]), (codes[1], codes[2])):
        expected = translator.translate(["the dog runs"], source_language=source, target_language=target)[0].text
        for pair in ((source, target), (short_code(source), short_code(target))):
            asked = dict(zip(("source", "target"), pair, strict=True))
            ours = service.send("POST", "/v1/translate", json={"text": "the dog runs", **asked}).json()
            assert (ours["source"], ours["target"], ours["translations"][0]["text"]) == (source, target, expected)
            libre = service.send("POST", "/translate", json={"q": "the dog runs", **asked}).json()
            assert libre["translatedText"] == expected
    wrong = service.send("POST", "/v1/translate", json={"text": "a", "source": codes[0], "target": codes[0]})
    assert wrong.status_code == 400


def test_models_of_other_codes_are_served_together(serving, tmp_path):
    families = pytest.importorskip("tests.checkpoint.hugging_face.families", reason="needs transformers")
    given = [f"{name}={families.FAMILIES[name].write(tmp_path / name)}" for name in ("nllb", "mbart50")]
    service = serving(models=load_models(given, languages=("gl_ES", "en_XX")))
    models = service.models
    assert [each.must_name for each in models] == [(True, True), (False, False)]
    answers = [
        service.send("POST", "/v1/translate", json={"text": "the dog runs", **asked})
        for asked in ({}, {"model": "nllb", "source": "en", "target": "de"}, {"model": "nllb", "source": "en"})
    ]
    assert [each.json().get("model") for each in answers] == ["mbart50", "nllb", None]
    assert answers[2].json()["error"] == "the model nllb is multilingual: give target"
    models = load_models(given)
    assert [each.must_name for each in models] == [(True, True)] * 2
    with pytest.raises(ValueError, match="--source-lang is en and --target-lang is xx: expected two languages of one"):
        load_models(given, languages=("en", "xx"))


def translating(source, target, codes=None):
    """A model that translates between these languages, or among several."""
    languages = None if codes is None else SimpleNamespace(codes=codes, unmarked=[])
    return SimpleNamespace(
        translate=None, tokenizer=SimpleNamespace(languages=languages), source_language=source, target_language=target,
        between=lambda *pair: pair,
    )  # fmt: skip


def test_a_request_without_source_gets_a_model_of_another_source(serving):
    models = Models(
        [ServedModel("many", translating("en", "de", ["en", "de"])), ServedModel("back", translating("de", "en"))]
    )
    assert models.translator(None, None, "en") == ("back", (None, "en"))
    assert models.translator(None, None, "de") == ("many", (None, "de"))
    assert models.translator(None, None, None)[0] == "many"
    assert models.same_language("en", "eng_Latn") and not models.same_language("xx", "xx")
    alone = serving(models=Models([ServedModel("one", translating("en", "en", ["en"]))]))
    found = alone.send("GET", "/frontend/settings").json()["language"]
    assert found == {side: {"code": "", "name": ""} for side in ("source", "target")}
