"""Images as Pillow decodes them: upright, in red, green and blue, and every failure a line of text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from PIL.Image import Image

# Pillow reads some 40 more; of these PostScript starts Ghostscript, and icons hide the size of their content.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
_STRIP = 1 << 20  # pixels that are converted at a time


class ImageError(ValueError):
    """An image that can't be read. The message begins with its name."""


@contextmanager
def decoding(name: str) -> Iterator[None]:
    """Makes an `ImageError` of whatever stops the block, which opens, decodes or converts the image `name`."""
    from PIL import UnidentifiedImageError

    try:
        yield
    except ImageError:
        raise
    except UnidentifiedImageError:
        raise ImageError(f"{name}: not a picture that can be read: expected {', '.join(FORMATS)}") from None
    except MemoryError:
        raise ImageError(f"{name}: not enough memory for this picture: make it smaller") from None
    except Exception as error:  # Pillow's decoders raise whatever a damaged file makes them meet
        if isinstance(error, OSError) and error.errno is not None:
            raise ImageError(f"{name}: {error.strerror}") from None
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ImageError(f"{name}: truncated or damaged ({reason})") from None


def rgb(image: Image) -> Image:
    """In RGB: 16 bits a pixel are scaled to 8, transparent parts are laid on white. Works strip by strip.

    :raises ValueError: pixels that are not finite numbers.
    """
    from PIL import Image

    deep = image.mode.startswith("I") or image.mode == "F"
    if not deep and not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    white = None
    if deep:
        white = 65_535 if image.mode.startswith("I;16") else max(255.0, cast(float, image.getextrema()[1]))
    result = Image.new("RGB", image.size)
    rows = max(1, _STRIP // image.width)
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        result.paste(_on_white(strip) if white is None else _scaled(strip, white), (0, top))
    return result


def _on_white(image: Image) -> Image:
    from PIL import Image

    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


def _scaled(image: Image, white: float) -> Image:
    import numpy as np
    from PIL import Image

    values = np.asarray(image).astype(np.float32)
    if not np.isfinite(values).all():
        raise ValueError("pixels that are not finite numbers")
    return Image.fromarray((values * (255 / np.float32(white))).clip(0, 255).astype(np.uint8))
