"""Pictures of all kinds become RGB or one clear line."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from rskip.captioning.pictures import find_pictures, read_picture

RED = (200, 30, 40)
SIZE = (32, 24)


def colour(image):
    assert image.mode == "RGB"
    return np.asarray(image).reshape(-1, 3).mean(0)


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
        ("ycc.tif", "YCbCr", RED),
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
    found = read_picture(tmp_path / name)
    assert found.size == SIZE and np.abs(colour(found) - expected).max() < 6


@pytest.mark.parametrize(("dtype", "value"), [(np.uint16, 32_896), (np.int32, 32_896), (np.float32, 128.0)])
def test_more_than_8_bits_are_scaled(dtype, value, tmp_path):
    pixels = np.full(SIZE[::-1], value, dtype=dtype)
    pixels[0, 0] = 65_535 if value > 255 else 255
    Image.fromarray(pixels).save(tmp_path / "deep.tif")
    found = np.asarray(read_picture(tmp_path / "deep.tif"))
    assert abs(int(found[5, 5, 0]) - 128) <= 1 and found[0, 0].tolist() == [255, 255, 255]


def test_transparent_parts_are_white_and_an_animation_is_its_first_picture(tmp_path):
    image = Image.new("RGBA", SIZE, (*RED, 0))
    image.save(tmp_path / "clear.png")
    assert colour(read_picture(tmp_path / "clear.png")).tolist() == [255, 255, 255]
    frames = [Image.new("RGB", SIZE, each) for each in (RED, "blue", "green")]
    for name in ("moving.gif", "moving.webp", "moving.png"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], lossless=True)
        assert np.abs(colour(read_picture(tmp_path / name)) - RED).max() < 3


def test_the_exif_orientation_is_heeded_and_all_sources_give_the_same(tmp_path):
    image = Image.new("RGB", SIZE, RED)
    image.paste("blue", (0, 0, 16, 24))
    exif = image.getexif()
    exif[0x0112] = 6  # turned by 90 degrees
    path = tmp_path / "turned.png"
    image.save(path, exif=exif)
    found = read_picture(path)
    assert found.size == (24, 32) and found.getpixel((12, 2)) == (0, 0, 255)
    with path.open("rb") as file, Image.open(path) as opened:
        others = [str(path), file, io.BytesIO(path.read_bytes()), opened, found]
        assert all(np.array_equal(np.asarray(read_picture(other)), np.asarray(found)) for other in others)


def content(name):
    """Bytes that are no picture, or no whole one."""
    file = io.BytesIO()
    noise = np.random.default_rng(1).integers(0, 256, size=(64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, name.rpartition(".")[2].replace("jpg", "jpeg"))
    return file.getvalue()


@pytest.mark.parametrize("name", ["cut.jpg", "cut.png", "cut.gif", "cut.webp", "cut.tiff", "cut.bmp"])
def test_truncated_pictures_are_refused_in_one_line(name, tmp_path):
    whole = content(name)
    for size in (0, 1, 10, len(whole) // 2, len(whole) * 9 // 10):
        (tmp_path / name).write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"truncated or damaged|not a picture") as caught:
            read_picture(tmp_path / name)
        assert "\n" not in str(caught.value) and str(caught.value).startswith(str(tmp_path / name))


def test_what_is_no_picture_is_refused(tmp_path):
    for name, text in (("words.jpg", b"words\n" * 100), ("page.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>")):
        (tmp_path / name).write_bytes(text)
        with pytest.raises(ValueError, match=f"{name}: not a picture"):
            read_picture(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_picture(tmp_path / "none.jpg")
    with pytest.raises(FileNotFoundError, match="is a folder"):
        read_picture(tmp_path)
    with pytest.raises(ValueError, match="a float is no picture"):
        read_picture(1.5)


def test_what_may_not_be_read_is_told(tmp_path, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied", path)

    (tmp_path / "secret.png").touch()
    monkeypatch.setattr(Image, "open", denied)
    with pytest.raises(ValueError, match="secret.png: Permission denied"):
        read_picture(tmp_path / "secret.png")


@pytest.mark.parametrize("size", [(1, 1), (15, 400), (1, 20_000)])
def test_tiny_pictures_are_refused(size, tmp_path):
    Image.new("RGB", size).save(tmp_path / "tiny.png")
    for source in (tmp_path / "tiny.png", Image.new("RGB", size)):
        with pytest.raises(ValueError, match="expected at least 16 on each side"):
            read_picture(source)


def test_large_pictures_are_decoded_smaller_or_refused(drawn, tmp_path, monkeypatch):
    monkeypatch.setattr("rskip.captioning.pictures.MOST_PIXELS", 10_000)
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 40_000)
    for side, shown in ((100, 100), (101, 51), (600, 75), (800, 100)):
        image = drawn(size=(side, side))
        image.save(tmp_path / "plain.jpg", quality=95, subsampling=0)
        found = read_picture(tmp_path / "plain.jpg")
        assert found.size == (shown, shown)
        expected = np.asarray(image.resize((shown, shown), Image.Resampling.BOX), dtype=float)
        assert np.abs(np.asarray(found) - expected).mean() < 6
        if side == 100:
            continue
        image.save(tmp_path / "progressive.jpg", progressive=True)
        image.save(tmp_path / "large.png")
        for name in ("progressive.jpg", "large.png"):
            with pytest.raises(ValueError, match="pixels.*: make it smaller"):
                read_picture(tmp_path / name)
    drawn(size=(900, 900)).save(tmp_path / "plain.jpg")
    for source in (tmp_path / "plain.jpg", drawn(size=(101, 101))):
        with pytest.raises(ValueError, match="expected at most .* in all: make it smaller"):
            read_picture(source)


@pytest.mark.slow
def test_20000_pixels_a_side_stay_within_a_bound_on_memory(tmp_path):
    """They are 1.2 GB in RGB."""
    code = f"""
import resource, sys
from PIL import Image
from rskip.captioning.pictures import read_picture
if sys.argv[1] == "write":
    Image.new("L", (20_000, 20_000), 90).save({str(tmp_path / "large.jpg")!r})
else:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = read_picture({str(tmp_path / "large.jpg")!r})
    assert found.size == (5_000, 5_000) and found.getpixel((17, 4_000)) == (90, 90, 90)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000, "kB"
"""
    for what in ("write", "read"):
        subprocess.run([sys.executable, "-c", code, what], check=True)


def test_pictures_of_folders_are_found_in_order(pictures, tmp_path):
    (pictures / "notes.txt").write_text("no picture")
    names = [path.relative_to(pictures).as_posix() for path in find_pictures([pictures])]
    assert names == ["a.png", "b.jpg", "c.JPG", "d.webp", "more/a.png"]
    assert find_pictures([pictures / "notes.txt", pictures / "more"]) == [
        pictures / "notes.txt", pictures / "more" / "a.png"
    ]  # fmt: skip
    (tmp_path / "empty").mkdir()
    for path, words in ((tmp_path / "empty", "no pictures there"), (tmp_path / "none", "no such file or folder")):
        with pytest.raises(FileNotFoundError, match=words):
            find_pictures([path])
