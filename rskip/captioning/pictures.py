"""Pictures from files: read within a bound on memory, upright, in red, green and blue."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm")
LEAST_SIDE = 16  # pixels; less shows nothing
MOST_PIXELS = 50_000_000  # 150 MB in RGB
_DECODER_ERRORS = (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, TypeError, struct.error)


def read_picture(source: Any) -> Image:
    """The picture, upright as its EXIF says, in RGB; the first one of an animated file. Transparent parts become white.

    A JPEG of more than MOST_PIXELS is decoded at a half, a quarter or an eighth of its size.

    :param source: a file's path, an open binary file, or a PIL image.
    :raises FileNotFoundError: no such file.
    :raises ValueError: no picture, one that may not be read, a truncated one, one of less than LEAST_SIDE pixels a
        side or of more than MOST_PIXELS.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    is_path = isinstance(source, (str, os.PathLike))
    if not (is_path or hasattr(source, "read") or isinstance(source, Image.Image)):
        raise ValueError(f"a {type(source).__name__} is no picture: expected a path, an open file or a PIL image")
    named = getattr(source, "filename", "") or getattr(source, "name", "")
    name = os.fspath(source) if is_path else str(named or "a picture")
    if is_path and not os.path.isfile(source):
        what = "is a folder, expected a picture" if os.path.isdir(source) else "no such file"
        raise FileNotFoundError(f"{name}: {what}")
    if shown_name(name) != name:
        raise ValueError(f"{shown_name(name)}: a file name that is not UTF-8: rename it")
    try:
        if isinstance(source, Image.Image):
            _refuse_size(source, name, most=MOST_PIXELS)
            return _rgb(ImageOps.exif_transpose(source))
        with _opened(source) as image:
            # a progressive JPEG is held whole, at whatever size it is decoded
            reducible = image.format == "JPEG" and not image.info.get("progressive")
            _refuse_size(image, name, most=64 * MOST_PIXELS if reducible else MOST_PIXELS)
            part = 1
            while image.width * image.height > MOST_PIXELS * part * part:
                part *= 2
            if part > 1:
                image.draft("RGB", (image.width // part, image.height // part))
            image.load()
            return _rgb(ImageOps.exif_transpose(image))
    except _Refused:
        raise
    except UnidentifiedImageError:
        raise ValueError(f"{name}: not a picture that can be read (JPEG, PNG, GIF, WebP, TIFF, ...)") from None
    except Image.DecompressionBombError:
        raise ValueError(f"{name}: more than {MOST_PIXELS:,} pixels: make it smaller") from None
    except MemoryError:
        raise ValueError(f"{name}: not enough memory for this picture: make it smaller") from None
    except _DECODER_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise ValueError(f"{name}: {error.strerror}") from None
        raise ValueError(f"{name}: truncated or damaged ({' '.join(str(error).split())})") from None


def shown_name(name: str | os.PathLike[str]) -> str:
    """A file's name as text, with a replacement for what is not UTF-8 in it."""
    return os.fsencode(name).decode("utf-8", "replace")


def find_pictures(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files, and those of the folders and their subfolders that have a picture's suffix, sorted in each folder.

    :raises FileNotFoundError: no such file or folder, or a folder without pictures.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES and each.is_file())
            if not inside:
                raise FileNotFoundError(f"{path}: no pictures there: expected files of {', '.join(SUFFIXES)}")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise FileNotFoundError(f"{path}: no such file or folder")
    return found


class _Refused(ValueError):
    pass


def _opened(source: Any) -> Image:
    """The picture, not decoded yet."""
    from PIL import Image, JpegImagePlugin

    try:
        return Image.open(source)
    except Image.DecompressionBombError:  # over 179 million pixels, also of what is not decoded whole
        try:
            return JpegImagePlugin.JpegImageFile(source)
        except SyntaxError:
            raise Image.DecompressionBombError from None


def _refuse_size(image: Image, name: str, *, most: int) -> None:
    size = f"{name}: {image.width:,} x {image.height:,} pixels: expected"
    if min(image.size) < LEAST_SIDE:
        raise _Refused(f"{size} at least {LEAST_SIDE} on each side")
    if image.width * image.height > most:
        raise _Refused(f"{size} at most {most:,} in all: make it smaller")


def _rgb(image: Image) -> Image:
    """In RGB: 16 bits a pixel are scaled to 8, transparent parts are laid on white."""
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":
        import numpy as np

        values = np.asarray(image).astype(np.float32)
        white = 65_535 if image.mode.startswith("I;16") else max(255.0, values.max())
        return Image.fromarray((values * (255 / white)).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")
