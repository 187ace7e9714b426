"""Captions and classes of images: /v1/caption and /v1/classify."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rskip.files.images import MOST_PIXELS, image_size, read_image
from rskip.generation.options import SearchOptions
from rskip.machine.extras import extra
from rskip.serving.access_log import note
from rskip.serving.forms import MULTIPART
from rskip.serving.jobs import EachStep, Job
from rskip.serving.reading import content_type, parameters, read_upload, whole_number
from rskip.serving.service import Service
from rskip.serving.translating import search_options

if TYPE_CHECKING:
    from rskip.captioning.captioner import Caption, Captioner
    from rskip.vision import Classifier
    from rskip.vision.classifier import Prediction

with extra("serve", what="a server"):
    from fastapi import APIRouter, Request
    from starlette.concurrency import run_in_threadpool

# tokens that an image counts as, which limits the images of a batch
_LEAST_SIZE, _PIXELS_PER_TOKEN = 256, 4096
_CIFAR = (32, 32)
_FILE = {"type": "string", "format": "binary"}
_BODY = {
    "requestBody": {
        "required": True,
        "description": "the bytes of an image file, or a form with the file and the parameters",
        "content": {
            "image/*": {"schema": _FILE},
            MULTIPART: {"schema": {"type": "object", "properties": {"image": _FILE}}},
        },
    }
}


@dataclass(frozen=True)
class CaptionLane:
    """Images, as the bytes of their files, for one captioner with the same options.

    The backbone computes one image at a time. So a search ends soon after its clients have gone, and the features of an
    image don't depend on the others of its batch. Batches of 8 were not faster (docs/serve_reference.md).
    """

    model: str
    captioner: Captioner
    options: SearchOptions

    def compute(self, items: Sequence[bytes], each_step: EachStep) -> list[Caption | Exception]:
        """The captions of each image, or its error."""
        read = []
        for number, item in enumerate(items, start=1):
            each_step(number)
            read += self.captioner.read([io.BytesIO(item)])
        each_step(len(items))
        found = iter(self.captioner.search([each for each in read if not isinstance(each, Exception)], self.options))
        return [ValueError(each.reason) if isinstance(each, Exception) else next(found) for each in read]

    def produced(self, result: Caption) -> int:
        """The words of the best caption."""
        return len(result.hypotheses[0].tokens)


@dataclass(frozen=True)
class ClassLane:
    """Images, as the bytes of their files, for one classifier."""

    model: str
    classifier: Classifier

    def compute(self, items: Sequence[bytes], each_step: EachStep) -> list[Prediction | Exception]:
        """The prediction of each image, or its error. Images for a model of CIFAR are resized to its 32 x 32 pixels."""
        found: list[Prediction | Exception] = []
        for number, item in enumerate(items, start=1):
            each_step(number)
            try:
                image = read_image(io.BytesIO(item))
                if self.classifier.images is None:
                    image = image.resize(_CIFAR)
                found += self.classifier.classify(image)
            except ValueError as error:
                found.append(error)
        return found

    def produced(self, result: Prediction) -> int:
        """One class."""
        return 1


def images_api(service: Service) -> APIRouter:
    """The routes for images. The body of a request is an image file."""
    api = APIRouter(prefix="/v1", tags=["rskip"])

    @api.post("/caption", openapi_extra={**_BODY, **parameters("model", "beam", "nbest")})
    async def caption(request: Request) -> dict[str, Any]:
        """Captions an image."""
        fields, image = await _upload(service, request)
        served = service.models.named(fields.get("model"), "captioning")
        given = {name: whole_number(fields, name, least=1) for name in ("beam", "nbest")}
        options = search_options(served.model, max_beam=service.settings.max_beam, **given)
        found: Caption = await _result(service, request, CaptionLane(served.name, served.model, options), image)
        return {
            "model": served.name,
            "hypotheses": [
                {"text": each.text, "score": each.score, "tokens": each.tokens} for each in found.hypotheses
            ],
        }

    @api.post("/classify", openapi_extra={**_BODY, **parameters("model", "count")})
    async def classify(request: Request) -> dict[str, Any]:
        """Finds the most probable classes of an image."""
        fields, image = await _upload(service, request)
        served = service.models.named(fields.get("model"), "classification")
        count = whole_number(fields, "count", least=1) or 5
        found: Prediction = await _result(service, request, ClassLane(served.name, served.model), image)
        classes = [{"name": name, "probability": score} for name, score in found.scores.items()]
        return {"model": served.name, "classes": classes[:count]}

    return api


async def _upload(service: Service, request: Request) -> tuple[dict[str, str], bytes]:
    """The fields and the image of a client with a right key. Only a form can hold the key, so others are not read."""
    if content_type(request) == MULTIPART:
        service.check_early(request)
    else:
        service.check_key(request)
    fields, image = await read_upload(request)
    service.check_key(request, fields)
    return fields, image


async def _result(service: Service, request: Request, lane: CaptionLane | ClassLane, image: bytes) -> Any:
    note(request, model=lane.model, bytes=len(image))
    (result,) = await service.results(request, Job(lane, [image], [await run_in_threadpool(_size, image)]))
    return result


def _size(body: bytes) -> int:
    """The tokens that an image counts as. One that can't be read counts little: it fails when it is decoded."""
    try:
        width, height = image_size(io.BytesIO(body))
    except ValueError:
        return _LEAST_SIZE
    return max(_LEAST_SIZE, min(width * height, MOST_PIXELS) // _PIXELS_PER_TOKEN)
