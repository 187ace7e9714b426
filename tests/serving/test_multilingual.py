"""A multilingual model over HTTP."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from rskip.serving.models import Models, ServedModel, load_models  # noqa: E402
from rskip.text.language_codes import short_code  # noqa: E402
from rskip.text.languages import LanguageTokens  # noqa: E402


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


def test_no_direction_is_offered_that_no_model_has_and_a_group_takes_the_codes_of_its_languages(serving, tmp_path):
    families = pytest.importorskip("tests.checkpoint.hugging_face.conftest", reason="needs transformers")
    folders = {
        name: families.write_marian(tmp_path / name, languages=codes) for name, codes in
        (("en-roa", ("fra", "spa")), ("ROMANCE-en", ()))
    }  # fmt: skip
    for name, folder in folders.items():
        file = folder / "tokenizer_config.json"
        sides = dict(zip(("source_lang", "target_lang"), name.split("-"), strict=True))
        file.write_text(json.dumps(json.loads(file.read_text()) | sides))
    service = serving(models=load_models([str(folders["en-roa"])]))
    assert service.send("GET", "/languages").json() == [
        {"code": "en", "name": "English", "targets": ["fra", "spa"]},
        {"code": "fra", "name": "French", "targets": []},
        {"code": "spa", "name": "Spanish", "targets": []},
    ]
    (found,) = service.send("GET", "/v1/models").json()["data"]
    assert [[each["code"] for each in found[side]] for side in ("sources", "targets")] == [["en"], ["fra", "spa"]]

    def asked(source, target, text="Le chien dort dans le jardin de ma sœur."):
        answer = service.send("POST", "/translate", json={"q": text, "source": source, "target": target})
        return answer.status_code, answer.json()

    for source, target in (("fra", "en"), ("fr", "es"), ("en", "de")):
        assert asked(source, target)[0] == 400
    assert [asked("en", target)[0] for target in ("fr", "fra", "roa")] == [200] * 3

    service = serving(models=load_models([str(folders["ROMANCE-en"])]))
    codes = [each["code"] for each in service.send("GET", "/languages").json()]
    assert {"fr", "es", "it", "en"} <= {*codes} and "ROMANCE" not in codes and "de" not in codes
    answers = [asked(source, "en") for source in ("fr", "fra", "ROMANCE", "auto")]
    assert [status for status, _ in answers] == [200] * 4 and asked("de", "en")[0] == 400
    assert len({each["translatedText"] for _, each in answers}) == 1
    assert answers[3][1]["detectedLanguage"]["language"] == "fr"


def translating(source, target, codes=None):
    """A model that translates between these languages, or among several."""
    languages = None if codes is None else LanguageTokens(codes=codes)
    return SimpleNamespace(
        translate=None, tokenizer=SimpleNamespace(languages=languages), source_language=source, target_language=target,
        between=lambda *pair: pair,
    )  # fmt: skip


def test_a_request_without_source_gets_a_model_of_another_source(serving):
    models = Models(
        [ServedModel("many", translating("en", "de", ("en", "de"))), ServedModel("back", translating("de", "en"))]
    )
    assert models.translator(None, None, "en") == ("back", (None, "en"))
    assert models.translator(None, None, "de") == ("many", (None, "de"))
    assert models.translator(None, None, None)[0] == "many"
    assert models.same_language("en", "eng_Latn") and not models.same_language("xx", "xx")
    alone = serving(models=Models([ServedModel("one", translating("en", "en", ("en",)))]))
    found = alone.send("GET", "/frontend/settings").json()["language"]
    assert found == {side: {"code": "", "name": ""} for side in ("source", "target")}
