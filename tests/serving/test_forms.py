"""Forms of the type multipart/form-data."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from rskip.serving.forms import MULTIPART, parse_multipart  # noqa: E402

DOG = {"q": "A dog runs.", "source": "en", "target": "de"}
KIND = {"Content-Type": f"{MULTIPART}; boundary=x"}
FIELD = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nA dog runs.\r\n'


def test_fields_and_files_are_read_as_they_were_sent(serving):
    service = serving(keys=["k"])
    parts = {name: (None, value) for name, value in DOG.items()}
    assert service.send("POST", "/translate", files=parts).status_code == 403
    answer = service.send("POST", "/translate", files={**parts, "api_key": (None, "k")})
    assert answer.json() == {"translatedText": "Ein Hund rennt."}

    content = random.Random(1).randbytes(5000) + b"\r\n--x\r\n--\r\n--"
    head = b'--y"\r\ncontent-DISPOSITION: form-data; filename="../a.png"; name="\xc3\xa9"\r\nA: b\r\n\r\n'
    (part,) = parse_multipart(f'{MULTIPART}; boundary="y\\""', head + content + b'\r\n--y"--\r\n')
    assert (part.name, part.is_file, part.content) == ("é", True, content)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the last boundary is missing"),
        (FIELD, "the last boundary is missing"),
        (FIELD[:-2], "the last boundary is missing"),
        (b"A dog runs.", "boundary"),
        (b"--x\r\n\r\nA dog runs.\r\n--x--\r\n", "a field has no name"),
        (b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--\r\n", "a field has no name"),
        (b"--x\r\nContent Disposition\r\n\r\na\r\n--x--\r\n", "header"),
        (FIELD.replace(b"A dog", b"\xff") + b"--x--\r\n", "can't decode byte 0xff"),
        (FIELD.replace(b'"q"', b'"q"; filename="a.txt"') + b"--x--\r\n", "q is a file: expected text"),
        (FIELD * 101 + b"--x--\r\n", "expected at most 100 fields"),
    ],
)
def test_a_damaged_form_is_refused_in_one_line(serving, body, message):
    answer = serving().send("POST", "/translate", content=body, headers=KIND)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("the form can't be read: ") and message in answer.json()["error"]


def test_a_form_has_the_limits_of_other_bodies_and_needs_a_boundary(serving):
    service = serving(max_body=100)
    assert service.send("POST", "/translate", content=FIELD * 2, headers=KIND).status_code == 413
    answer = service.send("POST", "/translate", content=b"", headers={"Content-Type": MULTIPART})
    assert (answer.status_code, "names no boundary" in answer.text) == (400, True)


def test_damaged_forms_never_fail_otherwise():
    rng, whole = random.Random(1), FIELD * 2 + b"--x--\r\n"
    for _ in range(2000):
        body = bytearray(whole[: rng.randrange(len(whole))] if rng.random() < 0.3 else whole)
        for _ in range(rng.randrange(4)):
            if body:
                body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            parse_multipart(KIND["Content-Type"], bytes(body))
        except ValueError as error:
            assert "\n" not in str(error)
