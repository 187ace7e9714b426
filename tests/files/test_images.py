"""Images of all kinds become RGB, or an error of one clear line."""

from __future__ import annotations

import io
import struct
import subprocess
import sys

import numpy as np
import PIL
import pytest
from PIL import Image

from rskip.files.images import find_images, read_image

RED = (200, 30, 40)
SIZE = (32, 24)


def colour(image):
    assert image.mode == "RGB"
    return np.asarray(image).reshape(-1, 3).mean(0)


since_pillow_13 = pytest.mark.skipif(
    int(PIL.__version__.partition(".")[0]) < 13, reason="Pillow 12 can't read the YCbCr TIFF that it writes"
)


@pytest.mark.parametrize(
    ("name", "mode", "expected"),
    [
        ("rgb.png", "RGB", RED),
        ("cmyk.jpg", "CMYK", RED),
        ("cmyk.tif", "CMYK", RED),
        ("palette.png", "P", RED),
        ("palette.gif", "P", RED),
        ("grey.jpg", "L", (82, 82, 82)),
        ("bits.png", "1", (0, 0, 0)),
        pytest.param("ycc.tif", "YCbCr", RED, marks=since_pillow_13),
        ("lab.tif", "LAB", RED),
    ],
)
def test_modes_become_rgb(name, mode, expected, tmp_path):
    image = Image.new("RGB", SIZE, RED)
    if mode == "LAB":
        from PIL import ImageCms

        profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
        image = ImageCms.applyTransform(image, ImageCms.buildTransform(*profiles, "RGB", "LAB"))
    else:
        image = image.convert(mode, dither=Image.Dither.NONE) if mode == "1" else image.convert(mode)
    image.save(tmp_path / name)
    found = read_image(tmp_path / name)
    assert found.size == SIZE and np.abs(colour(found) - expected).max() < 6


@pytest.mark.parametrize("brightest", [65_535, 32_896, 4_095])
@pytest.mark.parametrize("kind", ["png", "tif", "pgm"])
def test_16_bits_are_scaled_by_their_type_and_not_by_an_image_s_maximum(kind, brightest, tmp_path):
    pixels = np.full(SIZE[::-1], 2_570, dtype=np.uint16)
    pixels[0, 0] = brightest
    Image.fromarray(pixels).save(tmp_path / f"deep.{kind}")
    for source in (tmp_path / f"deep.{kind}", Image.open(tmp_path / f"deep.{kind}")):
        found = np.asarray(read_image(source))
        assert found[5, 5].tolist() == [10, 10, 10] and found[0, 0].tolist() == [brightest // 257] * 3


def test_12_bits_of_a_tiff_are_scaled_to_8(tmp_path):
    Image.fromarray(np.full(SIZE[::-1], 0xFFFF, dtype=np.uint16)).save(tmp_path / "deep.tif")
    content = (tmp_path / "deep.tif").read_bytes()
    bits = struct.pack("<HHI", 258, 3, 1)  # the tag of bits per sample
    assert content.count(bits + b"\x10") == 1
    (tmp_path / "deep.tif").write_bytes(content.replace(bits + b"\x10", bits + b"\x0c"))
    for source in (tmp_path / "deep.tif", Image.open(tmp_path / "deep.tif")):
        assert colour(read_image(source)).tolist() == [255, 255, 255]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_32_bits_whose_white_is_unknown_are_refused(dtype, tmp_path):
    image = Image.fromarray(np.full(SIZE[::-1], 1, dtype=dtype))
    image.save(tmp_path / "deep.tif")
    for source in (image, tmp_path / "deep.tif"):
        with pytest.raises(ValueError, match="8 or 16 bits per channel"):
            read_image(source)


def test_transparent_parts_are_white_and_an_animation_is_its_first_picture(tmp_path):
    image = Image.new("RGBA", SIZE, (*RED, 0))
    image.save(tmp_path / "clear.png")
    assert colour(read_image(tmp_path / "clear.png")).tolist() == [255, 255, 255]
    frames = [Image.new("RGB", SIZE, each) for each in (RED, "blue", "green")]
    for name in ("moving.gif", "moving.webp", "moving.png"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], lossless=True)
        assert np.abs(colour(read_image(tmp_path / name)) - RED).max() < 3


def test_the_exif_orientation_is_heeded_and_all_sources_give_the_same(tmp_path):
    image = Image.new("RGB", SIZE, RED)
    image.paste("blue", (0, 0, 16, 24))
    exif = image.getexif()
    exif[0x0112] = 6  # turned by 90 degrees
    path = tmp_path / "turned.png"
    image.save(path, exif=exif)
    found = read_image(path)
    assert found.size == (24, 32) and found.getpixel((12, 2)) == (0, 0, 255)
    with path.open("rb") as file, Image.open(path) as opened:
        others = [str(path), file, io.BytesIO(path.read_bytes()), opened, found]
        assert all(np.array_equal(np.asarray(read_image(other)), np.asarray(found)) for other in others)


def content(name):
    """Bytes that are not an image, or a truncated one."""
    file = io.BytesIO()
    noise = np.random.default_rng(1).integers(0, 256, size=(64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, name.rpartition(".")[2].replace("jpg", "jpeg"))
    return file.getvalue()


@pytest.mark.parametrize("name", ["cut.jpg", "cut.png", "cut.gif", "cut.webp", "cut.tiff", "cut.bmp"])
def test_truncated_pictures_are_refused_in_one_line(name, tmp_path):
    whole = content(name)
    for size in (0, 10, len(whole) // 2):
        (tmp_path / name).write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"truncated or damaged|not an image") as caught:
            read_image(tmp_path / name)
        assert "\n" not in str(caught.value) and str(caught.value).startswith(str(tmp_path / name))


def test_what_is_no_picture_is_refused(tmp_path):
    for name, text in (("words.jpg", b"words\n" * 100), ("page.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>")):
        (tmp_path / name).write_bytes(text)
        with pytest.raises(ValueError, match=f"{name}: not an image"):
            read_image(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_image(tmp_path / "none.jpg")
    with pytest.raises(FileNotFoundError, match="is a folder"):
        read_image(tmp_path)
    with pytest.raises(ValueError, match="a float is not an image"):
        read_image(1.5)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\n{} loop\n%%EOF\n"
DDS = struct.pack("<4s7I44x2I4s40x", b"DDS ", 124, 0x1007, 64, 64, 0, 0, 0, 32, 4, b"????") + bytes(4096)


def icon():
    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, "ICO")
    return file.getvalue()


@pytest.mark.parametrize("data", [EPS, DDS, icon()], ids=["PostScript", "DDS", "icon"])
@pytest.mark.parametrize("name", ["a.jpg", "a.eps"])
def test_other_formats_are_refused_and_start_no_program(data, name, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: started.append("gs"))
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: started.append("process"))
    (tmp_path / name).write_bytes(data)
    for source in (tmp_path / name, io.BytesIO(data)):
        with pytest.raises(ValueError, match="not an image in a readable format: expected JPEG, PNG, "):
            read_image(source)
    assert not started


@pytest.mark.parametrize("size", [(1, 1), (15, 400), (1, 20_000)])
def test_tiny_pictures_are_refused(size, tmp_path):
    Image.new("RGB", size).save(tmp_path / "tiny.png")
    for source in (tmp_path / "tiny.png", Image.new("RGB", size)):
        with pytest.raises(ValueError, match="expected at least 16 on each side"):
            read_image(source)


def test_large_pictures_are_decoded_smaller_or_refused(drawn, tmp_path, monkeypatch):
    monkeypatch.setattr("rskip.files.images.MOST_PIXELS", 10_000)
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 40_000)
    for side, shown in ((100, 100), (101, 51), (600, 75), (800, 100)):
        image = drawn(size=(side, side))
        image.save(tmp_path / "plain.jpg", quality=95, subsampling=0)
        found = read_image(tmp_path / "plain.jpg")
        assert found.size == (shown, shown)
        expected = np.asarray(image.resize((shown, shown), Image.Resampling.BOX), dtype=float)
        assert np.abs(np.asarray(found) - expected).mean() < 6
        if side == 100:
            continue
        image.save(tmp_path / "large.png")
        with pytest.raises(ValueError, match="pixels.*: make it smaller"):
            read_image(tmp_path / "large.png")
    drawn(size=(900, 900)).save(tmp_path / "plain.jpg")
    for source in (tmp_path / "plain.jpg", drawn(size=(101, 101))):
        with pytest.raises(ValueError, match="expected at most .* in all: make it smaller"):
            read_image(source)


@pytest.mark.slow
def test_20000_pixels_a_side_stay_within_a_bound_on_memory(tmp_path):
    """They are 1.2 GB in RGB."""
    code = f"""
import resource, sys
from PIL import Image
from rskip.files.images import read_image
if sys.argv[1] == "write":
    Image.new("L", (20_000, 20_000), 90).save({str(tmp_path / "large.jpg")!r})
else:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = read_image({str(tmp_path / "large.jpg")!r})
    assert found.size == (5_000, 5_000) and found.getpixel((17, 4_000)) == (90, 90, 90)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000, "kB"
"""
    for what in ("write", "read"):
        subprocess.run([sys.executable, "-c", code, what], check=True)


def test_sizes_are_compared_before_anything_is_decoded(monkeypatch):
    def fails(*_):
        raise AssertionError("decoded")

    monkeypatch.setattr("rskip.files.images.MOST_PIXELS", 4_095)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", fails)
    for kind in ("png", "gif", "bmp", "webp", "tiff", "ppm"):
        with pytest.raises(ValueError, match="64 x 64 pixels: expected at most 4,095 in all"):
            read_image(io.BytesIO(content(f"a.{kind}")))


@pytest.mark.parametrize("mode", ["RGBA", "I;16"])
def test_strips_are_converted_alike(mode, monkeypatch):
    values = np.random.default_rng(2).integers(0, 256, size=(40, 30, 4), dtype=np.uint8)
    image = {
        "RGBA": lambda: Image.fromarray(values),
        "I;16": lambda: Image.fromarray(values.view(np.uint16)[..., 0].copy()),
    }[mode]()
    assert image.mode == mode
    whole = np.asarray(read_image(image))
    monkeypatch.setattr("rskip.files.decoding._STRIP", 7 * 30)
    assert np.array_equal(np.asarray(read_image(image)), whole)


def test_a_name_with_a_line_break_is_told_in_a_line(tmp_path):
    (tmp_path / "a\nb.jpg").write_text("words")
    with pytest.raises(ValueError, match=r'/a\\nb.jpg": not an image'):
        read_image(tmp_path / "a\nb.jpg")


def test_pictures_of_folders_are_found_in_order(pictures, tmp_path):
    (pictures / "notes.txt").write_text("no picture")
    names = [path.relative_to(pictures).as_posix() for path in find_images([pictures])]
    assert names == ["a.png", "b.jpg", "c.JPG", "d.webp", "more/a.png"]
    assert find_images([pictures / "notes.txt", pictures / "more"]) == [
        pictures / "notes.txt", pictures / "more" / "a.png"
    ]  # fmt: skip
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "half").symlink_to(pictures / "more")
    (tmp_path / "linked" / "itself").symlink_to(tmp_path / "linked")
    assert find_images([tmp_path / "linked"]) == [tmp_path / "linked" / "half" / "a.png"]
    (tmp_path / "empty").mkdir()
    for path, words in ((tmp_path / "empty", "no images in this"), (tmp_path / "none", "No such file")):
        with pytest.raises(FileNotFoundError, match=words):
            find_images([path])
