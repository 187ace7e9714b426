"""Captions many images into a file, batch by batch, and resumes after an interruption."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rskip
from rskip.captioning.captioner import Caption, Captioner
from rskip.captioning.features import Features
from rskip.captioning.outputs import written_lines
from rskip.files.names import line_name, shown_name
from rskip.files.resumable import ResumableFile, part_path
from rskip.files.windows import Window
from rskip.generation import SearchOptions


@dataclass(frozen=True)
class CaptionResult:
    """An image with its captions, or with its error.

    caption: None if the image can't be read; `error` then says why.
    """

    path: Path
    caption: Caption | None
    error: str = ""

    def json(self) -> str:
        """A line of JSON: `image`, and `caption`, `score` and `hypotheses` or `error`."""
        content: dict[str, Any] = {"image": shown_name(self.path)}
        if self.caption is None:
            content["error"] = self.error
        else:
            content |= {"caption": self.caption.text, "score": self.caption.score}
            content["hypotheses"] = [
                {"text": each.text, "score": each.score, "tokens": each.tokens, "token_scores": each.token_scores}
                for each in self.caption.hypotheses
            ]
        return json.dumps(content, ensure_ascii=False) + "\n"

    def text(self) -> str:
        """One line per caption: path (`line_name`), tab, text. With several captions, the score comes second."""
        hypotheses = () if self.caption is None else self.caption.hypotheses
        scores = [f"{each.score:.4f}\t" if len(hypotheses) > 1 else "" for each in hypotheses]
        name = line_name(self.path)
        return "".join(f"{name}\t{score}{each.text}\n" for score, each in zip(scores, hypotheses, strict=True))


def caption_images(
    captioner: Captioner, images: Sequence[Path], options: SearchOptions, *, batch_size: int
) -> Iterator[CaptionResult]:
    """Yields captions of images, in their order. Images that can't be read have an error."""
    for window in image_windows(images, batch_size):
        yield from caption_window(captioner, window, options)


def write_captions(
    captioner: Captioner,
    images: Sequence[Path],
    output: Path,
    options: SearchOptions,
    *,
    batch_size: int,
    precision: str,
    resume: bool,
    report: Callable[[int], None] = lambda _: None,
) -> dict[str, str]:
    """Writes one line of JSON per image, and returns the errors of images that can't be read, by path.

    Resuming a complete output captions its failed images again, and keeps all other lines. It needs the same images,
    and does not compare settings.

    :param precision: the precision in which the captioner was loaded.
    :param report: called with the number of finished images.
    :raises ValueError: `output` has captions of other images.
    :raises StoppedError: an error or interrupt came after the first batch; the output can be resumed.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    journal = {
        "model": {"path": str(captioner.path), "sha256": captioner.sha256},
        "dictionary_sha256": captioner.dictionary.sha256,
        "rskip's version": rskip.__version__,
        **asdict(options),
        "precision": precision,
        "device": captioner.device.type,
        "batch_size": batch_size,
    }
    before = written_lines(output)[0] if resume else {}
    if lost := before.keys() - set(map(shown_name, images)):
        raise ValueError(f"{output} has captions of images that are not given, such as {min(lost)}: give all of them")
    with ResumableFile(part_path(output), journal, resume=resume) as file:
        for window in file.missing(image_windows(images, batch_size)):
            lines = [before.get(shown_name(each), "") for each in window.lines]
            if not all(lines):
                made = caption_window(captioner, window, options)
                lines = [line or each.json() for line, each in zip(lines, made, strict=True)]
            file.write(window, "".join(lines).encode("utf-8"))
            report(file.lines)
        file.finish(output)
    return written_lines(output)[1]


def image_windows(images: Sequence[Path], batch_size: int) -> Iterator[Window]:
    """Batches of images as windows of a resumable output. Their checksums are of names and sizes."""
    digest = hashlib.sha256()
    for number, start in enumerate(range(0, len(images), batch_size)):
        batch = images[start : start + batch_size]
        for path in batch:
            digest.update(os.fsencode(path) + f"\0{path.stat().st_size if path.exists() else -1}\n".encode())
        end = start + len(batch)
        yield Window(
            number=number, name="pictures", first_line=start + 1, start=start, lines=tuple(map(str, batch)),
            size=len(batch), position=end, sha256=digest.hexdigest(),
        )  # fmt: skip


def caption_window(captioner: Captioner, window: Window, options: SearchOptions) -> list[CaptionResult]:
    """Captions one batch of images. Sampling has a seed per batch, so that a resumed run draws the same captions."""
    read, options = captioner.read(window.lines), options.of_part(window.number)
    found = iter(captioner.search([each for each in read if isinstance(each, Features)], options))
    return [
        CaptionResult(Path(path), None, str(each))
        if isinstance(each, Exception)
        else CaptionResult(Path(path), next(found))
        for path, each in zip(window.lines, read, strict=True)
    ]
