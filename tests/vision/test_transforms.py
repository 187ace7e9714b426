"""From an image to a model's input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rskip.vision import CifarClassification
from rskip.vision.transforms import MEAN, STD


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
    image_module = pytest.importorskip("PIL.Image", reason="compares with torchvision on a PIL image")
    pixels = np.random.default_rng(1).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    image = image_module.fromarray(pixels)
    expected = transforms.Normalize(MEAN[dataset], STD[dataset])(transforms.ToTensor()(image))
    preset = CifarClassification(dataset)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    assert torch.equal(preset(image), expected)
    assert torch.equal(preset(pixels), expected)
    assert torch.equal(preset(tensor), expected)
    assert torch.equal(preset(tensor.float() / 255), expected)
    assert torch.equal(preset(torch.stack([tensor, tensor.flip(2)])), torch.stack([expected, expected.flip(2)]))


def test_a_grey_pil_image_becomes_rgb():
    image_module = pytest.importorskip("PIL.Image", reason="reads a PIL image")
    grey = np.full((32, 32), 102, dtype=np.uint8)
    y = CifarClassification()(image_module.fromarray(grey))
    torch.testing.assert_close(y[:, 0, 0], (0.4 - torch.tensor(MEAN["cifar10"])) / torch.tensor(STD["cifar10"]))


def test_a_float_image_is_left_as_it_is():
    image = torch.rand(3, 32, 32)
    before = image.clone()
    CifarClassification()(image)
    assert torch.equal(image, before)


def test_other_input_is_an_error_that_says_what_is_expected():
    for image, message in [
        (torch.zeros(3, 28, 28), r"\(3, 28, 28\): expected \(3, 32, 32\) or \(N, 3, 32, 32\); resize it to 32 x 32 "),
        (torch.zeros(32, 32, 3), r"an image of shape \(32, 32, 3\): expected .*; bring the channels to the front$"),
        (torch.zeros(32, 32), r"an image of shape \(32, 32\): expected"),
        (np.zeros((3, 32, 32), np.uint8), r"an array of shape \(3, 32, 32\): expected \(32, 32, 3\) or"),
        (np.zeros((32, 31, 3), np.uint8), r"an image of shape \(3, 32, 31\): expected .*; resize it"),
        (torch.zeros(3, 32, 32, dtype=torch.int64), "an image of torch.int64: expected torch.uint8"),
        ("cat.png", "a str is no image: expected a PIL image, a tensor or an array"),
    ]:
        with pytest.raises(ValueError, match=message):
            CifarClassification()(image)
    with pytest.raises(ValueError, match=r"^unknown dataset 'cifar1000' \(did you mean 'cifar100'\?\)"):
        CifarClassification("cifar1000")


def test_describe_names_the_datasets_figures():
    description = CifarClassification("cifar100").describe()
    assert "mean=(0.5071, 0.4865, 0.4409) and std=(0.2673, 0.2564, 0.2762)" in description
