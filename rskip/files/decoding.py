"""Decodes images with Pillow: upright, in RGB, and with a one-line error for every failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rskip.extras import extra

if TYPE_CHECKING:
    from PIL.Image import Image

# Pillow reads about 40 more formats. Among these, PostScript starts Ghostscript, and icons hide their true size.
EXTRAS = ("vision", "captioning")  # both install Pillow
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
OTHER_FORMAT = f": expected {', '.join(FORMATS)}"  # the end of the message about a file in another format
_BITS = 258  # TIFF tag: bits per sample
_STRIP = 1 << 20  # pixels that are converted together


class ImageError(ValueError):
    """Raised for an image that can't be read. The message begins with its name."""


@contextmanager
def decoding(name: str) -> Iterator[None]:
    """Turns every error in a block that opens, decodes or converts the image `name` into an `ImageError`."""
    with extra(*EXTRAS, what="an image"):
        from PIL import UnidentifiedImageError

    try:
        yield
    except ImageError:
        raise
    except Exception as error:  # Pillow's decoders raise errors of any type for a damaged file
        if isinstance(error, UnidentifiedImageError):
            problem = f"not an image in a readable format{OTHER_FORMAT}"
        elif isinstance(error, MemoryError):
            problem = "not enough memory for this image: make it smaller"
        elif isinstance(error, OSError) and error.errno is not None:
            problem = str(error.strerror)
        else:
            problem = f"truncated or damaged ({' '.join(str(error).split()) or type(error).__name__})"
        raise ImageError(f"{name}: {problem}") from None


def rgb(image: Image, name: str = "an image", *, of: Image | None = None) -> Image:
    """Converts the image to RGB. Scales 16 bits per value to 8, and puts transparent parts on white.

    Works strip by strip, to save memory.

    :param of: the image that this is a rotated copy of, which lacks the file's type; None: this is the image.
    :raises ImageError: the image has 32 bits per value, whose type doesn't tell which value is white.
    """
    from PIL import Image

    deep = image.mode.startswith("I") or image.mode == "F"
    if not deep and not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    white = _white(of or image, name) if deep else None
    result = Image.new("RGB", image.size)
    rows = max(1, _STRIP // image.width)
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        result.paste(_on_white(strip) if white is None else _scaled(strip, white), (0, top))
    return result


def _white(image: Image, name: str) -> int:
    """The value of white by the image's type, never by its pixels: images of one kind keep their relative brightness.

    :raises ImageError: the type has no such value.
    """
    if image.mode == "I" and image.format in ("PNG", "PPM"):
        return 65_535  # Pillow's 32 bits for 16 in the file
    if not image.mode.startswith("I;16"):
        kind = "floats" if image.mode == "F" else "integers"
        advice = "scale the values to 0 to 255 and save them as uint8"
        raise ImageError(f"{name}: pixels of 32-bit {kind}: expected 8 or 16 bits per channel; {advice}")
    of_tiff = getattr(image, "tag_v2", {})
    return 4_095 if of_tiff.get(_BITS) in (12, (12,)) else 65_535


def _on_white(image: Image) -> Image:
    from PIL import Image

    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


def _scaled(image: Image, white: int) -> Image:
    import numpy as np
    from PIL import Image

    values = np.asarray(image).astype(np.float32)
    return Image.fromarray((values * (255 / np.float32(white))).clip(0, 255).astype(np.uint8))
