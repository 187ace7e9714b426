"""Images from files: read within a bound on memory, upright, in red, green and blue."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.extras import extra
from rskip.files.decoding import EXTRAS, FORMATS, ImageError, decoding, rgb
from rskip.files.names import line_name, shown_name

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm")
LEAST_SIDE = 16  # pixels; less shows nothing
MOST_PIXELS = 50_000_000  # 150 MB in RGB


def read_image(source: Any, *, least_side: int = LEAST_SIDE) -> Image:
    """Reads an image (of an animation the first) in RGB, rotated as its EXIF says. Transparent parts become white.

    Only FORMATS are read; the file name doesn't matter. The size is checked before decoding. A JPEG of more than
    MOST_PIXELS is decoded at a half, a quarter or an eighth of its size.

    :param source: a path, an open binary file, or a PIL image.
    :param least_side: minimum pixels per side.
    :raises FileNotFoundError: the file doesn't exist.
    :raises ValueError: the source is not an image, may not be read, is truncated, has less than `least_side` pixels on
        a side, or has more than MOST_PIXELS.
    """
    with extra(*EXTRAS, what="an image"):
        from PIL import Image, ImageOps

    is_path = isinstance(source, (str, os.PathLike))
    if not (is_path or hasattr(source, "read") or isinstance(source, Image.Image)):
        raise ValueError(f"a {type(source).__name__} is not an image: expected a path, an open file or a PIL image")
    named = os.fspath(source) if is_path else getattr(source, "filename", "") or getattr(source, "name", "")
    name = line_name(str(named or "an image"))
    if is_path and not os.path.isfile(source):
        what = "is a folder, expected an image" if os.path.isdir(source) else "no such file"
        raise FileNotFoundError(f"{name}: {what}")
    if is_path and shown_name(source) != os.fspath(source):
        raise ValueError(f"{name}: a file name that is not UTF-8: rename it")
    with decoding(name):
        if isinstance(source, Image.Image):
            _refuse_size(source.size, name, least=least_side, most=MOST_PIXELS)
            return rgb(ImageOps.exif_transpose(source), name, of=source)
        with _opened(source, name) as image:
            most = 64 * MOST_PIXELS if image.format == "JPEG" else MOST_PIXELS
            _refuse_size(image.size, name, least=least_side, most=most)
            part = 1
            while image.width * image.height > MOST_PIXELS * part * part:
                part *= 2
            if part > 1:
                image.draft("RGB", (image.width // part, image.height // part))
            ImageOps.exif_transpose(image, in_place=True)
            return rgb(image, name)


def image_size(source: Any) -> tuple[int, int]:
    """Width and height of the image in a file, without decoding it and before the rotation of its EXIF.

    :param source: a path or an open binary file.
    :raises ImageError: the file is not an image, or is damaged at its beginning.
    """
    name = "an image" if hasattr(source, "read") else line_name(source)
    with decoding(name), _opened(source, name) as image:
        width, height = image.size
        return width, height


def files_below(folder: Path) -> list[Path]:
    """The files of a folder and its subfolders, sorted. Links to folders count, except to those that they are in."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder, followlinks=True):
        inside = Path(place).resolve()
        folders[:] = [name for name in folders if not inside.is_relative_to(Path(place, name).resolve())]
        found += (Path(place, name) for name in names)
    return sorted(path for path in found if path.is_file())


def find_images(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The given files, and the images in the given folders and subfolders by their suffixes, sorted per folder.

    :raises FileNotFoundError: a file or folder doesn't exist, or a folder has no images.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = [each for each in files_below(path) if each.suffix.lower() in SUFFIXES]
            if not inside:
                raise FileNotFoundError(f"{path}: no images in this folder: expected files of {', '.join(SUFFIXES)}")
            found += inside
        else:
            path.stat()  # raises the error of a missing file
            found.append(path)
    return found


def find_named_images(folder: Path) -> list[tuple[str, Path]]:
    """The images of a folder and its subfolders, sorted, each with its path inside the folder as its name.

    :raises FileNotFoundError: the folder is missing or has no images.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder: expected a folder of images")
    return [(path.relative_to(folder).as_posix(), path) for path in find_images([folder])]


def _opened(source: Any, name: str) -> Any:
    """Opens an image without decoding it. JPEGs can be decoded smaller, so Pillow's limit on pixels doesn't apply."""
    from PIL import Image, JpegImagePlugin

    if hasattr(source, "read"):
        try:
            source.seek(0)
        except (AttributeError, io.UnsupportedOperation):
            source = io.BytesIO(source.read())
    try:
        return JpegImagePlugin.JpegImageFile(source)
    except SyntaxError:  # not a JPEG
        pass
    try:
        return Image.open(source, formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageError(f"{name}: more than {MOST_PIXELS:,} pixels: make it smaller") from None


def _refuse_size(pixels: Sequence[int], name: str, *, least: int, most: int) -> None:
    width, height = pixels
    size = f"{name}: {width:,} x {height:,} pixels: expected"
    if min(width, height) < least:
        raise ImageError(f"{size} at least {least} on each side")
    if width * height > most:
        raise ImageError(f"{size} at most {most:,} in all: make it smaller")
