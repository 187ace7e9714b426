"""Batches for training and evaluation, and their crops, flips and normalisation against torchvision's."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from rskip.vision.data import ImageSet, TrainingBatches, crop_and_flip, evaluation_batches, normalise
from rskip.vision.datasets import DATASETS

COUNT, BATCH = 300, 64  # five batches an epoch, 44 images in the last
EVERY_CROP = list(itertools.product(range(9), range(9), (False, True)))  # top, left, flipped
MEAN_10, STD_10 = (torch.tensor(each) for each in (DATASETS["cifar10"].mean, DATASETS["cifar10"].std))


@pytest.fixture(scope="module")
def images() -> ImageSet:
    """Random images, each of a class of its own, so that a label tells which image it is."""
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(256, (COUNT, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return ImageSet(pixels, torch.arange(COUNT), tuple(str(number) for number in range(COUNT)))


def batches_of(images: ImageSet, *, batch_size: int = BATCH, seed: int = 1, **options) -> TrainingBatches:
    return TrainingBatches(images, batch_size=batch_size, seed=seed, device="cpu", **options)


def same(one: tuple, other: tuple) -> bool:
    return torch.equal(one[0], other[0]) and torch.equal(one[1], other[1]) and one[2] == other[2]


def random_images(count: int) -> Tensor:
    return torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def offsets_and_flips(crops: list[tuple[int, int, bool]]) -> tuple[Tensor, Tensor]:
    return torch.tensor([crop[:2] for crop in crops]), torch.tensor([crop[2] for crop in crops])


def test_every_crop_and_flip_is_torchvisions_to_the_bit():
    functional = pytest.importorskip("torchvision.transforms.functional")
    images = random_images(len(EVERY_CROP))
    expected = []
    for image, (top, left, flip) in zip(images, EVERY_CROP, strict=True):
        image = functional.crop(functional.pad(functional.to_pil_image(image), 4), top, left, 32, 32)
        image = functional.hflip(image) if flip else image
        expected.append(functional.normalize(functional.to_tensor(image), MEAN_10, STD_10))
    crops = crop_and_flip(images, *offsets_and_flips(EVERY_CROP))
    assert torch.equal(normalise(crops, MEAN_10, STD_10), torch.stack(expected))


def test_an_image_of_other_size_and_padding_by_hand():
    image = torch.arange(1, 7, dtype=torch.uint8).view(1, 1, 2, 3)
    corners, flips = offsets_and_flips([(0, 0, False), (2, 2, False), (1, 1, True), (0, 2, True)])
    crops = crop_and_flip(image.expand(4, 1, 2, 3), corners, flips, padding=1)
    assert crops[:, 0].tolist() == [
        [[0, 0, 0], [0, 1, 2]],
        [[5, 6, 0], [0, 0, 0]],
        [[3, 2, 1], [6, 5, 4]],
        [[0, 0, 0], [0, 3, 2]],
    ]


@pytest.mark.parametrize("augment", [True, False])
def test_every_epoch_shows_every_image_once_in_a_new_order(images, augment):
    batches = batches_of(images, augment=augment)
    orders = []
    for epoch in range(3):
        parts = [batches.batch(epoch * 5 + place) for place in range(5)]
        assert [len(labels) for _, labels, _ in parts] == [count for *_, count in parts] == [64, 64, 64, 64, 44]
        orders.append(torch.cat([labels for _, labels, _ in parts]).tolist())
        assert sorted(orders[-1]) == list(range(COUNT))
    assert orders[0] != orders[1] != orders[2] != orders[0]


@pytest.mark.parametrize(("seed", "iteration"), [(0, 0), (1, 4), (1, 13), (2**40, 5)])
def test_batches_are_what_the_documentation_says(images, seed, iteration):
    epoch, place = divmod(iteration, 5)
    generator = torch.Generator()
    generator.manual_seed(int(np.random.SeedSequence(seed, spawn_key=(epoch,)).generate_state(1)[0]))
    order = torch.randperm(COUNT, generator=generator)
    offsets = torch.randint(9, (COUNT, 2), generator=generator)
    flips = torch.randint(2, (COUNT,), generator=generator) == 1
    part = slice(place * BATCH, (place + 1) * BATCH)
    pixels, labels, count = batches_of(images, seed=seed).batch(iteration)
    assert torch.equal(labels, order[part])
    crops = crop_and_flip(images.images[order[part]], offsets[part], flips[part])
    assert torch.equal(pixels, normalise(crops, MEAN_10, STD_10))
    assert count == len(order[part])


def test_a_batch_depends_on_seed_and_iteration_alone(images):
    in_order = batches_of(images)
    expected = [in_order.batch(iteration) for iteration in range(15)]
    torch.manual_seed(99)
    mixed = batches_of(images)
    for iteration in (14, 0, 7, 7, 3, 12, 1, 10):
        assert same(mixed.batch(iteration), expected[iteration])
    resumed = batches_of(images)
    assert all(same(resumed.batch(iteration), expected[iteration]) for iteration in range(8, 15))


def test_seeds_and_epochs_do_not_repeat_each_other(images):
    """Neither seed + epoch nor a large seed leads to the batches of another seed."""
    seen = set()
    for seed in (0, 1, 2, 3, 2**32, 2**32 + 1, 2**64):
        batches = batches_of(images, seed=seed)
        seen |= {tuple(batches.batch(epoch * 5)[1].tolist()) for epoch in range(4)}
    assert len(seen) == 7 * 4


@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_ranks_parts_interleave_to_the_whole_batch(images, world_size):
    whole = batches_of(images)
    ranks = [batches_of(images, rank=rank, world_size=world_size) for rank in range(world_size)]
    for iteration in (0, 4, 6, 9):
        pixels, labels, count = whole.batch(iteration)
        joined, joined_labels = torch.full_like(pixels, torch.nan), torch.full_like(labels, -1)
        for rank, batches in enumerate(ranks):
            own_pixels, own_labels, own_count = batches.batch(iteration)
            assert own_count == count
            joined[rank::world_size], joined_labels[rank::world_size] = own_pixels, own_labels
        assert torch.equal(joined, pixels) and torch.equal(joined_labels, labels)


def test_evaluation_shows_every_image_in_order(images):
    parts = list(evaluation_batches(images, batch_size=128, device="cpu"))
    assert [len(labels) for _, labels in parts] == [128, 128, 44]
    assert torch.equal(torch.cat([labels for _, labels in parts]), images.labels)
    assert torch.equal(torch.cat([pixels for pixels, _ in parts]), normalise(images.images, MEAN_10, STD_10))
    low, _ = next(evaluation_batches(images, batch_size=8, device="cpu", channels_last=True))
    assert low.is_contiguous(memory_format=torch.channels_last) and torch.equal(low, parts[0][0][:8])


def test_the_sets_own_mean_and_std_are_used(images):
    other = dataclasses.replace(images, mean=DATASETS["cifar100"].mean, std=DATASETS["cifar100"].std)
    expected = normalise(images.images, torch.tensor(DATASETS["cifar100"].mean), torch.tensor(DATASETS["cifar100"].std))
    assert torch.equal(next(evaluation_batches(other, batch_size=COUNT, device="cpu"))[0], expected)
    pixels, labels, _ = batches_of(other, batch_size=COUNT, augment=False).batch(0)
    assert torch.equal(pixels, expected[labels])
