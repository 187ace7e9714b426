"""Crops, flips and normalisation of whole batches, against torchvision's one picture at a time."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from rskip.vision.data import ImageSet, TrainingBatches
from rskip.vision.data.loader import crop_and_flip, normalise
from rskip.vision.transforms import MEAN, STD, CifarClassification

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
EVERY_CROP = list(itertools.product(range(9), range(9), (False, True)))  # top, left, flipped
MEAN_10, STD_10 = torch.tensor(MEAN["cifar10"]), torch.tensor(STD["cifar10"])


def random_images(count: int) -> Tensor:
    return torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def offsets_and_flips(crops: list[tuple[int, int, bool]]) -> tuple[Tensor, Tensor]:
    return torch.tensor([crop[:2] for crop in crops]), torch.tensor([crop[2] for crop in crops])


def test_every_crop_and_flip_is_torchvisions_to_the_bit():
    functional = pytest.importorskip("torchvision.transforms.functional")
    images = random_images(len(EVERY_CROP))
    expected = []
    for image, (top, left, flip) in zip(images, EVERY_CROP, strict=True):
        picture = functional.crop(functional.pad(functional.to_pil_image(image), 4), top, left, 32, 32)
        picture = functional.hflip(picture) if flip else picture
        expected.append(functional.normalize(functional.to_tensor(picture), MEAN["cifar10"], STD["cifar10"]))
    crops = crop_and_flip(images, *offsets_and_flips(EVERY_CROP))
    assert torch.equal(normalise(crops, MEAN_10, STD_10), torch.stack(expected))


@pytest.mark.parametrize("device", DEVICES)
def test_crops_are_the_same_on_every_device(device):
    images = random_images(len(EVERY_CROP))
    offsets, flips = offsets_and_flips(EVERY_CROP)
    here = crop_and_flip(images.to(device), offsets.to(device), flips.to(device))
    assert here.dtype == torch.uint8
    assert torch.equal(here.cpu(), crop_and_flip(images, offsets, flips))


def test_channels_last_pictures_are_cropped_alike():
    images = random_images(len(EVERY_CROP))
    offsets, flips = offsets_and_flips(EVERY_CROP)
    crops = crop_and_flip(images.contiguous(memory_format=torch.channels_last), offsets, flips)
    assert torch.equal(crops, crop_and_flip(images, offsets, flips))


def test_a_picture_of_other_size_and_padding_by_hand():
    image = torch.arange(1, 7, dtype=torch.uint8).view(1, 1, 2, 3)
    corners, flips = offsets_and_flips([(0, 0, False), (2, 2, False), (1, 1, True), (0, 2, True)])
    crops = crop_and_flip(image.expand(4, 1, 2, 3), corners, flips, padding=1)
    assert crops[:, 0].tolist() == [
        [[0, 0, 0], [0, 1, 2]],
        [[5, 6, 0], [0, 0, 0]],
        [[3, 2, 1], [6, 5, 4]],
        [[0, 0, 0], [0, 3, 2]],
    ]


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_normalise_is_the_models_own_transform(dataset):
    images = random_images(5)
    pixels = normalise(images, torch.tensor(MEAN[dataset]), torch.tensor(STD[dataset]))
    assert torch.equal(pixels, CifarClassification(dataset)(images))


def test_layout_and_type_change_no_value():
    images = random_images(5)
    plain = normalise(images, MEAN_10, STD_10)
    last = normalise(images, MEAN_10, STD_10, channels_last=True)
    assert plain.is_contiguous() and last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(plain, last)
    low = normalise(images, MEAN_10, STD_10, dtype=torch.bfloat16, channels_last=True)
    assert low.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(low, plain.bfloat16())


def place_of(picture: Tensor) -> tuple[int, int, bool]:
    """Which crop it is of the picture whose red tells the row and whose green tells the column."""
    flipped = bool(picture[1, 16, 15] > picture[1, 16, 16])
    column = picture[1, 16, 15 if flipped else 16]
    return int(picture[0, 16, 16]) - 12, int(column) - 12, flipped


def frequencies(places: list[tuple[int, int, bool]]) -> Tensor:
    """How often each of the 162 crops was drawn."""
    counts = torch.zeros(9, 9, 2)
    for top, left, flipped in places:
        counts[top, left, int(flipped)] += 1
    return counts.flatten()


def test_crops_are_drawn_as_torchvision_draws_them():
    """Chi-square with 161 degrees of freedom: 99.8 % of all samples of a uniform distribution lie in 111 to 222."""
    transforms = pytest.importorskip("torchvision.transforms")
    drawn = 8100  # 50 of each crop are expected
    rows = torch.arange(32, dtype=torch.uint8)
    picture = torch.stack([rows[:, None].expand(32, 32), rows.expand(32, 32), torch.zeros(32, 32, dtype=torch.uint8)])
    images = ImageSet(
        picture.expand(drawn, 3, 32, 32),
        torch.zeros(drawn, dtype=torch.int64),
        ("picture",),
        mean=(0.0, 0.0, 0.0),
        std=(1 / 255, 1 / 255, 1 / 255),
    )
    batches = TrainingBatches(images, batch_size=1000, seed=3, device="cpu")
    ours = frequencies(
        [
            place_of(pixels)
            for number in range(batches.batches_per_epoch)
            for pixels in batches.batch(number)[0].round().int()
        ]
    )
    torch.manual_seed(3)
    transform = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()])
    theirs = frequencies([place_of(transform(picture).int()) for _ in range(drawn)])
    uniform = drawn / 162
    assert ours.sum() == theirs.sum() == drawn
    assert 111 < float(((ours - uniform) ** 2 / uniform).sum()) < 222
    assert 111 < float(((theirs - uniform) ** 2 / uniform).sum()) < 222
    assert 111 < float(((ours - theirs) ** 2 / (ours + theirs)).sum()) < 222
