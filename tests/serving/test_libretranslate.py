"""LibreTranslate's API, with its client library and by hand."""

from __future__ import annotations

import json
from urllib.error import HTTPError

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
DOG = {"q": "A dog runs.", "source": "en", "target": "de"}


def test_its_client_library_works(address):
    library = pytest.importorskip("libretranslatepy", reason="needs the group dev")
    client = library.LibreTranslateAPI(address(keys=["secret", "other"]), api_key="secret")
    assert client.translate("A dog runs.", "en", "de") == "Ein Hund rennt."
    assert client.translate("A dog runs.", "en", "fr") == "Un chien court."
    assert {"code": "en", "name": "English", "targets": ["de", "fr"]} in client.languages()
    assert client.detect("Zwei Hunde spielen im Schnee.")[0]["language"] == "de"
    client.api_key = "wrong"
    with pytest.raises(HTTPError, match="403"):
        client.translate("A dog runs.", "en", "de")


def test_lists_detection_alternatives_html_and_lines(serving):
    service = serving()

    def translated(**fields):
        answer = service.send("POST", "/translate", json={**DOG, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert translated() == {"translatedText": "Ein Hund rennt."}
    assert translated(q=["A dog runs.", "", "A man sleeps."]) == {
        "translatedText": ["Ein Hund rennt.", "", "Ein Mann schläft."]
    }
    emoji = {"q": "Hello! 😊 A man sleeps. 😆 A dog runs.\n👍", "target": "fr"}
    assert translated(**emoji)["translatedText"].endswith(" 😆 Un chien court.\n👍")
    assert translated(q=[]) == {"translatedText": []}
    assert translated(q="A dog runs. A man sleeps.\n\nA dog runs.\n")["translatedText"] == (
        "Ein Hund rennt. Ein Mann schläft.\n\nEin Hund rennt.\n"
    )
    several = translated(alternatives=2, source="auto")
    assert several["translatedText"] == "Ein Hund rennt."
    assert several["alternatives"][0] == "Ein Hund läuft." and len(several["alternatives"]) == 2
    assert several["detectedLanguage"]["language"] == "en" and 0 <= several["detectedLanguage"]["confidence"] <= 100
    assert translated(target="fr", model="fr")["translatedText"] == "Un chien court."
    kept = {"q": "<b>1</b>. <i>A dog runs.</i> &amp; <u>!</u>", "format": "html"}
    assert translated(**kept)["translatedText"] == kept["q"].replace("A dog runs.", "Ein Hund rennt.")
    assert translated(q="<p>A dog runs.</p>", format="html") == {"translatedText": "<p>Ein Hund rennt.</p>"}
    assert translated(q=["A dog runs.", "\x00"], alternatives=1)["translatedText"] == ["Ein Hund rennt.", "\x00"]
    assert len(translated(q="A dog runs.\n\u200b\n", alternatives=2)["alternatives"]) == 2
    unchanged = {"q": "<b>Ein  Hund &amp; 'rennt'.</b>", "format": "html"}
    assert translated(**unchanged, source="de") == {"translatedText": unchanged["q"]}
    digits = f"<b>&#{'9' * 4301};</b><i>&#{'0' * 4301}33;</i><u>A dog runs.</u>"  # as browsers read them
    assert translated(q=digits, format="html")["translatedText"] == "<b>\ufffd</b><i>!</i><u>Ein Hund rennt.</u>"
    found = translated(q=["Ein Hund rennt durch den Schnee.", "A dog runs."], source="auto")
    assert found["translatedText"] == ["Ein Hund rennt durch den Schnee.", "Ein Hund rennt."]
    assert [each["language"] for each in found["detectedLanguage"]] == ["de", "en"]
    form = service.send("POST", "/translate?target=fr", data={"q": "A dog runs.", "source": "en", "alternatives": "1"})
    assert form.json()["translatedText"] == "Un chien court." and len(form.json()["alternatives"]) == 1
    settings = service.send("GET", "/frontend/settings").json()
    assert settings["charLimit"] == 100_000 and settings["language"]["target"] == {"code": "de", "name": "German"}


def test_forms_may_hold_raw_utf_8(serving):
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    body = "q=Größe+%C3%B6&source=de&target=de".encode()
    answer = serving().send("POST", "/translate", content=body, headers=kind)
    assert answer.json() == {"translatedText": "Größe ö"}


@pytest.mark.parametrize(
    ("status", "message", "fields"),
    [
        (400, "Invalid request: Object missing required field `q`", {"q": None}),
        (400, "missing required field `target`", {"target": None}),
        (400, "xx is not supported", {"target": "xx"}),
        (400, "German (de) is not available as a target language from French (fr)", {"source": "fr"}),
        (400, "Invalid enum value 'xml' - at `$.format`", {"format": "xml"}),
        (400, "Expected `str | array`, got `int` - at `$.q`", {"q": 3}),
        (400, "Expected `str`, got `null` - at `$.q[0]`", {"q": [None]}),
        (400, "Expected `int` >= 0 - at `$.alternatives`", {"alternatives": -1}),
        (400, "alternatives is 16: expected at most 15", {"alternatives": 16}),
        (404, "no model is called 'fra'", {"model": "fra"}),
        (400, "French (fr) is not available as a target language", {"model": "de", "target": "fr"}),
        (400, "Invalid request: request (10000001) exceeds text limit (100000)", {"q": "a" * 10_000_001}),
        (400, "Invalid request: 1001 sentences exceed the limit (1000)", {"q": "a\n" * 1001}),
        (400, "a word is too long: expected a space after at most 2,000 characters", {"q": "a" * 2001}),
        (200, "", {"q": "\x00\x01\x1b[0m \u200b\u202e"}),
    ],
)
def test_errors_have_its_form(serving, status, message, fields):
    content = {name: value for name, value in {**DOG, **fields}.items() if value is not None}
    kind = {"Content-Type": "application/json"}
    answer = serving(max_body=20_000_000).send("POST", "/translate", content=json.dumps(content), headers=kind)
    assert answer.status_code == status
    if status == 200:
        assert [*answer.json()] == ["translatedText"]
    else:
        assert [*answer.json()] == ["error"] and message in answer.json()["error"]
        assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize("path", ["/translate", "/v1/translate"])
@pytest.mark.parametrize(
    ("status", "message", "body", "kind"),
    [
        (400, "not JSON", b"[" * 100_000, "application/json"),
        (400, "not JSON", b'{"q": "\xff"}', "application/json"),
        (400, "not an object", b"[]", "application/json; charset=utf-8"),
        (400, "missing", b"{}", "application/json"),
        (415, "text/xml: expected application/json", b"<a/>", "text/xml"),
        (415, "missing: expected application/json", b"x", ""),
    ],
)
def test_malformed_bodies_are_refused(serving, path, status, message, body, kind):
    answer = serving().send("POST", path, content=body, headers={"Content-Type": kind} if kind else {})
    assert answer.status_code == status and message in answer.json()["error"]


FIELD = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nA dog runs.\r\n'
FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"


def test_a_form_may_have_parts(serving):
    parts = {name: (None, value) for name, value in {**DOG, "api_key": "k"}.items()}
    assert serving(keys=["k"]).send("POST", "/translate", files=parts).json() == {"translatedText": "Ein Hund rennt."}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"q=%FF&source=en&target=de", FORM),
        (b"\xff=1", FORM),
        (b"&".join([b"a=1"] * 200), FORM),
        (b"A dog runs.", MULTIPART),
        (b"--x\r\n\r\nA dog runs.\r\n--x--\r\n", MULTIPART),
        (FIELD.replace(b'"q"', b'"q"; filename="a.txt"') + b"--x--\r\n", MULTIPART),
        (FIELD * 101 + b"--x--\r\n", MULTIPART),
        (FIELD, "multipart/form-data"),
    ],
)
def test_malformed_forms_are_refused(serving, body, kind):
    answer = serving().send("POST", "/translate", content=body, headers={"Content-Type": kind})
    assert answer.status_code == 400 and "the form can't be read: " in answer.json()["error"]


def test_keys(serving):
    service = serving(keys=["clé"])
    for more, status in (
        ({"json": DOG}, 403),
        ({"json": {**DOG, "api_key": "clé"}}, 200),
        ({"json": {**DOG, "api_key": 5}}, 403),
        ({"json": DOG, "headers": {"Authorization": "Bearer clé".encode()}}, 403),  # a header is latin-1
        ({"json": DOG, "params": {"api_key": "clé"}}, 200),
    ):
        assert service.send("POST", "/translate", **more).status_code == status, more
    assert service.send("GET", "/frontend/settings").json()["keyRequired"] is True
    assert service.send("GET", "/v1/models").status_code == 403
    assert json.loads(service.send("POST", "/detect", data={"q": "x"}).text)["error"].startswith("an API key is needed")
