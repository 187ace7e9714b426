"""Captions and classes of images over HTTP."""

from __future__ import annotations

import io
import struct
import zlib

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
Image = pytest.importorskip("PIL.Image", reason="needs the extra vision")

from rskip.captioning.captioner import Caption, CaptionHypothesis, UnreadableImage  # noqa: E402
from rskip.captioning.options import CAPTION_OPTIONS  # noqa: E402
from rskip.files.images import read_image  # noqa: E402
from rskip.serving.models import Models, ServedModel, load_models  # noqa: E402


class Sizes:
    """A captioner that needs no backbone: it tells the size of an image."""

    options = CAPTION_OPTIONS

    def caption(self): ...

    def read(self, images):
        read = []
        for number, each in enumerate(images, start=1):
            try:
                read.append(read_image(each).size)
            except ValueError as error:
                read.append(UnreadableImage(number, str(error)))
        return read

    def search(self, features, options):
        return [
            Caption(tuple(CaptionHypothesis(f"{size}", -1.0, ("a",)) for _ in range(options.nbest)), None)
            for size in features
        ]


@pytest.fixture(scope="module")
def seeing(root):
    (classifier,) = load_models([f"{root}/checkpoints/cifar10_resnet20/preact20_2rskip_ln"])
    return Models([classifier, ServedModel("sizes", Sizes())])


def png(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def test_images_are_captioned_and_classified(serving, seeing, drawn):
    service, picture = serving(models=seeing), drawn(size=(60, 40))
    headers = {"Content-Type": "image/png"}
    bodies = [png(drawn(size=(50 + number, 40))) for number in (1, 2)]
    answers = service.send_all(
        [("POST", "/v1/caption?nbest=2", {"content": body, "headers": headers}) for body in bodies]
    )
    texts = [[each["text"] for each in answer.json()["hypotheses"]] for answer in answers]
    assert texts == [["(51, 40)"] * 2, ["(52, 40)"] * 2]
    found = service.send("POST", "/v1/classify?count=3", content=png(picture), headers=headers).json()
    expected = seeing.named(None, "classification").model.classify(picture.resize((32, 32)))[0]
    assert found["classes"][0] == {"name": expected.name, "probability": pytest.approx(expected.score)}
    form = {"files": {"image": ("a.png", png(picture), "image/png")}, "data": {"count": "3"}}
    assert service.send("POST", "/v1/classify", **form).json() == found
    twice = service.send("POST", "/v1/caption", files=[("a", ("a.png", b"")), ("b", ("b.png", b""))])
    assert (twice.status_code, twice.json()) == (400, {"error": "the form has 2 files: expected one, an image"})
    assert seeing.named(None, "classification").connection == "2rskip+ln"
    assert len(found["classes"]) == 3 and found["model"] == "preact20_2rskip_ln"


def test_an_image_counts_by_its_pixels_and_captioning_stops_between_images(seeing, drawn):
    from rskip.serving.images import CaptionLane, _size

    assert [_size(png(drawn(size=size))) for size in ((60, 40), (2048, 1024))] == [256, 512]
    assert (_size(bomb(7000, 7000)), _size(b"x")) == (11_962, 256)
    lane, steps = CaptionLane("sizes", seeing.named("sizes", "captioning").model, CAPTION_OPTIONS), []
    lane.compute([png(drawn())] * 3, steps.append)
    assert steps[:3] == [1, 2, 3]


def bomb(width, height):
    """A PNG of a few bytes that claims this size."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


@pytest.mark.parametrize("path", ["/v1/caption", "/v1/classify"])
@pytest.mark.parametrize(
    ("status", "message", "body", "kind"),
    [
        (422, "more than 50,000,000 pixels: make it smaller", bomb(60_000, 60_000), "image/png"),
        (422, "truncated or damaged", bomb(1000, 1000), "image/png"),
        (422, "not an image in a readable format", b"%!PS-Adobe-3.0", "image/jpeg"),
        (422, "not an image in a readable format", b"/etc/passwd", "image/jpeg"),
        (422, "not an image in a readable format", b"", "image/jpeg"),
        (415, "the content type is text/plain: expected that of an image", b"x", "text/plain"),
    ],
)
def test_what_is_not_an_image_is_refused_in_one_line(serving, seeing, path, status, message, body, kind):
    answer = serving(models=seeing).send("POST", path, content=body, headers={"Content-Type": kind})
    assert (answer.status_code, [*answer.json()]) == (status, ["error"]) and message in answer.json()["error"]


def test_bad_addresses_and_too_much_at_once(serving, seeing, drawn):
    service = serving(models=seeing)
    image = {"content": png(drawn()), "headers": {"Content-Type": "image/png"}}
    for query, status, message in (
        ("nbest=x", 400, "nbest is 'x': expected a whole number, 1 or more"),
        ("beam=99", 400, "beam is 99: expected at most 16"),
        ("model=a", 404, "no model for captioning is called 'a': expected sizes"),
    ):
        answer = service.send("POST", f"/v1/caption?{query}", **image)
        assert answer.status_code == status and message in answer.json()["error"]
    answer = serving(models=seeing, max_bodies=100).send("POST", "/v1/caption", **image)
    assert answer.status_code == 503 and "the server holds too many large requests" in answer.json()["error"]
    assert service.send("POST", "/v1/translate", json={"text": "a"}).json() == {
        "error": "the server has no model for translation"
    }


def test_a_key_is_checked_before_an_image_is_read(serving, seeing, drawn):
    service = serving(models=seeing, keys=["k"])
    right, wrong = ({"Authorization": f"Bearer {key}"} for key in ("k", "x"))
    text, form = {"Content-Type": "text/plain"}, {"Content-Type": "multipart/form-data; boundary=x"}
    for query, headers, status in (
        ("", text, 403),
        ("", text | wrong, 403),
        ("?api_key=x", text, 403),
        ("", text | right, 415),
        ("", form | wrong, 403),
        ("?api_key=x", form, 403),
        ("", form, 400),  # the form may hold a key
        ("?api_key=k", form, 400),
    ):
        answer = service.send("POST", f"/v1/classify{query}", content=b"damaged", headers=headers)
        assert answer.status_code == status, (query, headers)
    files = {"files": {"image": ("a.png", png(drawn()), "image/png")}}
    found = [service.send("POST", "/v1/classify", **files, data={"api_key": key}).status_code for key in ("k", "x", "")]
    assert found == [200, 403, 403]
