"""From an image to a model's input."""

from __future__ import annotations

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


def test_other_input_is_an_error_that_says_what_is_expected():
    for image, message in [
        (torch.zeros(3, 28, 28), r"\(3, 28, 28\): expected \(3, 32, 32\).*; resize it to 32 x 32"),
        (torch.zeros(32, 32, 3), r"an image of shape \(32, 32, 3\): expected .* move its channels$"),
        (torch.zeros(32, 32), r"an image of shape \(32, 32\): expected"),
        (np.zeros((3, 32, 32), np.uint8), r"an image of shape \(3, 32, 32\): expected .* array \(32, 32, 3\)"),
        (np.zeros((32, 31, 3), np.uint8), r"an image of shape \(32, 31, 3\): expected .*; resize it"),
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
