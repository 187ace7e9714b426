"""From an image to a model's input."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from rskip.vision import CifarClassification
from rskip.vision.datasets import DATASETS


def test_a_pixel_by_hand():
    image = torch.zeros(3, 32, 32, dtype=torch.uint8)
    image[0, 1, 2], image[2, 31, 0] = 255, 51
    y = CifarClassification()(image)
    expected = torch.tensor([(1 - 0.4914) / 0.2470, (0 - 0.4822) / 0.2435, (0.2 - 0.4465) / 0.2616])
    torch.testing.assert_close(torch.stack([y[0, 1, 2], y[1, 5, 5], y[2, 31, 0]]), expected)
    assert y.dtype == torch.float32


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_every_kind_of_input_gives_what_torchvision_gives(dataset):
    transforms = pytest.importorskip("torchvision.transforms", reason="compares with torchvision")
    pixels = np.random.default_rng(1).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    expected = transforms.Normalize(DATASETS[dataset].mean, DATASETS[dataset].std)(transforms.ToTensor()(image))
    preset = CifarClassification(dataset)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    assert all(torch.equal(preset(each), expected) for each in (image, pixels, tensor, tensor.float() / 255))
    assert torch.equal(preset(torch.stack([tensor, tensor.flip(2)])), torch.stack([expected, expected.flip(2)]))


def as_pixels(y):
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (DATASETS["cifar10"].mean, DATASETS["cifar10"].std))
    return ((y * std + mean) * 255).round().int()[:, ::31, ::31].flatten(1).T.tolist()  # the four corners


def test_pil_images_of_all_kinds_become_upright_rgb():
    def saved(image, kind, **options):
        file = io.BytesIO()
        image.save(file, kind, **options)
        return Image.open(file, formats=[kind])

    red, blue, white = [200, 30, 40], [0, 0, 255], [255, 255, 255]
    plain = Image.new("RGB", (32, 32), tuple(red))
    palette = Image.new("P", (32, 32), 1)
    palette.putpalette([0, 0, 0, *red])
    palette.paste(0, (0, 0, 16, 16))
    turned = plain.copy()
    turned.paste(tuple(blue), (0, 0, 16, 32))
    exif = turned.getexif()
    exif[0x0112] = 6  # turned by 90 degrees
    deep = Image.fromarray(np.full((32, 32), 32_896, np.uint16))
    moving = saved(plain, "GIF", save_all=True, append_images=[Image.new("RGB", (32, 32), "blue")])
    for name, image, expected in (
        ("CMYK", saved(plain.convert("CMYK"), "JPEG", quality=100), [red] * 4),
        ("16 bits", saved(deep, "PNG"), [[128] * 3] * 4),
        ("transparent", saved(palette, "PNG", transparency=0), [white, red, red, red]),
        ("animated", moving, [red] * 4),
        ("turned", saved(turned, "PNG", exif=exif), [blue, blue, red, red]),
        ("resized", saved(turned.resize((64, 64)), "PNG", exif=exif).resize((32, 32)), [blue, blue, red, red]),
    ):
        assert as_pixels(CifarClassification()(image)) == expected, name


def test_other_input_is_an_error_that_says_what_is_expected():
    for image, message in [
        (torch.zeros(3, 28, 28), r"\(3, 28, 28\): expected \(3, 32, 32\) or \(N, 3, 32, 32\); resize it to 32 x 32 "),
        (torch.zeros(32, 32, 3), r"an image of shape \(32, 32, 3\): expected .*; move the channels to the front$"),
        (torch.zeros(32, 32), r"an image of shape \(32, 32\): expected"),
        (np.zeros((3, 32, 32), np.uint8), r"an array of shape \(3, 32, 32\): expected \(32, 32, 3\) or"),
        (np.zeros((32, 31, 3), np.uint8), r"an image of shape \(3, 32, 31\): expected .*; resize it"),
        (torch.zeros(3, 32, 32, dtype=torch.int64), "an image of torch.int64: expected torch.uint8"),
        (np.full((32, 32, 3), 255.0), r"floating point in \[0, 1\]; .* `classifier\(batch\)`$"),
        (CifarClassification()(torch.zeros(3, 32, 32)), r"floating point in \[0, 1\]"),
        (torch.full((1, 3, 32, 32), torch.nan), r"floating point in \[0, 1\]"),
        (3, "a int is not an image"),
    ]:
        with pytest.raises(ValueError, match=message):
            CifarClassification()(image)
    with pytest.raises(ValueError, match=r"^unknown dataset 'cifar1000' \(did you mean 'cifar100'\?\)"):
        CifarClassification("cifar1000")
