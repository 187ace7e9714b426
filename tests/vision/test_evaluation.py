"""The metrics of `evaluate`, compared with values that were counted by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from rskip.connections.norms import take_batch_counts
from rskip.vision.cifar_resnet import preact_resnet
from rskip.vision.data import ImageSet, TrainingBatches, evaluation_batches
from rskip.vision.evaluation import OutputsNotFinite, evaluate, ranked, recalibrate

CLASSES = ("cat", "dog", "ship", "frog", "deer", "car")
# logits of eight images, and their classes; the model is right on images 0, 1, 4 and 6
LOGITS = [
    [9.0, 1, 2, 3, 4, 5],  # cat as cat
    [1, 9.0, 2, 3, 4, 5],  # dog as dog
    [9.0, 6, 2, 3, 4, 5],  # dog as cat, second choice
    [1, 3, 0.0, 3, 4, 5],  # ship as car, last choice: not among the first five
    [1, 2, 3, 9.0, 4, 5],  # frog as frog
    [1, 9.0, 3, 4, 5, 6],  # cat as dog, last choice
    [0, 0, 0, 0, 0.0, 1],  # car as car
    [7.0, 1, 2, 3, 4, 5],  # dog as cat again, last choice
]
LABELS = [0, 1, 1, 2, 3, 0, 5, 1]
CONFUSION = (
    (1, 1, 0, 0, 0, 0),
    (2, 1, 0, 0, 0, 0),
    (0, 0, 0, 0, 0, 1),
    (0, 0, 0, 1, 0, 0),
    (0, 0, 0, 0, 0, 0),
    (0, 0, 0, 0, 0, 1),
)


class Table(nn.Module):
    """Gives each image the row of a table that the image's first pixel names."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(table)
        self.seen: list[tuple[bool, bool]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append((self.training, torch.is_autocast_enabled(images.device.type)))
        return self.table[(images[:, 0, 0, 0] * 255).round().long()]


@pytest.fixture
def images() -> ImageSet:
    pixels = torch.arange(len(LABELS), dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 32, 32).contiguous()
    return ImageSet(pixels, torch.tensor(LABELS), CLASSES, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


@pytest.mark.parametrize("batch_size", [1, 3, 500])
def test_figures_are_those_counted_by_hand(images, batch_size):
    found = evaluate(Table(torch.tensor(LOGITS)), images, dataset="cifar10", batch_size=batch_size)
    assert found.confusion == CONFUSION
    assert (found.count, found.error, found.accuracy, found.top5_error) == (8, 50.0, 50.0, 37.5)
    losses = [
        math.log(sum(math.exp(logit) for logit in row)) - row[label] for row, label in zip(LOGITS, LABELS, strict=True)
    ]
    assert found.loss == pytest.approx(sum(losses) / 8, rel=1e-6)
    assert found.classes == CLASSES
    cat, dog, ship, frog, deer, car = found.per_class
    assert (cat.count, cat.correct, cat.predicted, cat.error, cat.taken_for) == (2, 1, 3, 50, "dog")
    assert (cat.precision, cat.taken) == (pytest.approx(100 / 3), 1)
    assert (dog.error, dog.precision, dog.taken_for, dog.taken) == (pytest.approx(200 / 3), 50, "cat", 2)
    assert (ship.error, ship.precision, ship.taken_for) == (100, None, "car")
    assert (frog.error, frog.precision, frog.taken_for, frog.taken) == (0, 100, None, 0)
    assert (deer.count, deer.error, deer.precision, deer.taken_for) == (0, None, None, None)
    assert (car.error, car.precision) == (0, 50)
    names = ["name", "count", "correct", "predicted", "error", "precision", "taken_for", "taken"]
    assert [*found.to_dict()["per_class"][1]] == names  # in evaluation.json


def test_of_equal_logits_the_lower_number_goes_first():
    logits = torch.tensor([[1.0, 1, 1, 1, 1, 1, 1]] * 3 + [[0, 2.0, 1, 2, 0, 0, 0]] * 2)
    predicted, place = ranked(logits, torch.tensor([0, 4, 5, 3, 0]))
    assert predicted.tolist() == [0, 0, 0, 1, 1]
    assert place.tolist() == [0, 4, 5, 1, 3]


def test_the_rate_is_the_median_batchs_and_counts_its_computation_alone(images, monkeypatch):
    times = iter([0.0, 1.0, 10.0, 12.0, 20.0, 21.0, 30.0])  # batches of 3, 3 and 2 images in 1, 2 and 1 seconds
    monkeypatch.setattr("rskip.vision.evaluation._clock", lambda device: next(times))
    found = evaluate(Table(torch.tensor(LOGITS)), images, dataset="cifar10", batch_size=3)
    assert found.images_per_second == 2.0


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_in_eval_mode_and_then_as_before(images, training):
    model = nn.Sequential(Table(torch.tensor(LOGITS)), nn.BatchNorm1d(len(CLASSES))).train(training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    evaluate(model, images, dataset="cifar10", batch_size=3, precision="bfloat16")
    assert model.training is training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert set(model[0].seen) == {(False, True)}


def test_mistakes_are_one_line(images):
    none = ImageSet(images.images[:0], images.labels[:0], CLASSES)
    for given, size, message in ((none, None, "cifar10 has no images to"), (images, 0, "batch size is 0: expected 1")):
        with pytest.raises(ValueError, match=message):
            evaluate(Table(torch.tensor(LOGITS)), given, dataset="cifar10", batch_size=size)
    for bad in (math.inf, math.nan):
        table = torch.tensor(LOGITS)
        table[5, 2] = bad
        with pytest.raises(OutputsNotFinite, match="training diverged"):
            evaluate(Table(table), images, dataset="cifar10")


@pytest.mark.parametrize("counts_taken", [False, True])
def test_recalibrated_statistics_are_averages_over_the_images(counts_taken):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (12, 3, 32, 32), generator=generator, dtype=torch.uint8)
    images = ImageSet(pixels, torch.zeros(12, dtype=torch.int64), CLASSES)
    torch.manual_seed(1)
    model = preact_resnet(8, "2rskip+bn", len(CLASSES)).eval()
    if counts_taken:  # as after a training in the same process
        take_batch_counts(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    seen: dict[nn.Module, list[Tensor]] = {each: [] for each in model.modules() if isinstance(each, nn.BatchNorm2d)}
    for norm in seen:
        norm.register_forward_hook(lambda module, inputs, y: seen[module].append(inputs[0].clone()))
    recalibrate(model, images, batch_size=4, seed=3)
    augmented = TrainingBatches(images, batch_size=4, seed=3, device="cpu")
    assert not model.training and len(seen) == 13
    for norm, batches in seen.items():
        assert norm.momentum == 0.1 and norm.num_batches_tracked == len(batches) == 3
        mean = torch.stack([z.mean((0, 2, 3)) for z in batches]).mean(0)
        variance = torch.stack([z.var((0, 2, 3)) for z in batches]).mean(0)  # unbiased, as running variances are
        torch.testing.assert_close(norm.running_mean, mean)
        torch.testing.assert_close(norm.running_var, variance)
    first = model.layer1[0].bn1
    z = torch.cat([model.conv1(augmented.batch(number)[0]) for number in range(3)])
    torch.testing.assert_close(first.running_mean, z.mean((0, 2, 3)))
    recalibrate(model, images, batch_size=4, seed=3, flip=False)
    unflipped = TrainingBatches(images, batch_size=4, seed=3, device="cpu", flip=False)
    z = torch.cat([model.conv1(unflipped.batch(number)[0]) for number in range(3)])
    torch.testing.assert_close(first.running_mean, z.mean((0, 2, 3)))
    recalibrate(model, images, batch_size=12, augment=False)  # the only batch is the whole population
    (whole,) = [model.conv1(x) for x, _ in evaluation_batches(images, batch_size=12, device="cpu")]
    torch.testing.assert_close(first.running_mean, whole.mean((0, 2, 3)))
    torch.testing.assert_close(first.running_var, whole.var((0, 2, 3)))
    recalibrate(model, images, batch_size=11, augment=False)  # in two batches of equal size
    torch.testing.assert_close(first.running_mean, whole.mean((0, 2, 3)))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.named_parameters())
