"""Your own images: class folders and .npz files, split, decoded, resized, described."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rskip.files.decoding import ImageError
from rskip.vision.data import TrainingBatches, evaluation_batches
from rskip.vision.labelled_files import ALL, find_labelled_files, kind_of_images
from rskip.vision.own_images import load_own_images, load_split
from rskip.vision.run import ensure_images
from rskip.vision.settings import TrainingSettings

RED, GREEN = (250, 10, 20), (10, 240, 30)


def draw(path: Path, colour: tuple[int, ...] = RED, *, size: tuple[int, int] = (32, 32), seed: int = 0) -> Path:
    """An image of one colour with one pixel that tells it from others."""
    image = Image.new("RGB", size, colour)
    image.putpixel((0, 0), (seed % 256, seed // 256, 7))
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path


def draw_class(folder: Path, count: int, colour: tuple[int, ...] = RED, **options: Any) -> None:
    for number in range(count):
        draw(folder / f"{number:02d}.png", colour, seed=number, **options)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """20 green images of class `b`, 10 red ones of class `a`, nobody's split."""
    draw_class(tmp_path / "photos" / "b", 20, GREEN)
    draw_class(tmp_path / "photos" / "a", 10, RED)
    return tmp_path / "photos"


def load(path: Path, **settings: Any) -> Any:
    return load_own_images(TrainingSettings(data=str(path), epochs=1, **settings))


def test_classes_are_the_folders_sorted_and_validation_is_a_tenth_of_each(photos: Path) -> None:
    own = load(photos)
    assert own.train.classes == own.held_out.classes == ("a", "b") and own.split == "valid"
    assert own.train.labels.tolist() == [0] * 9 + [1] * 18 and own.held_out.labels.tolist() == [0, 1, 1]
    assert own.train.images.shape == (27, 3, 32, 32)
    assert own.train.images[0, :, 5, 5].tolist() == list(RED) and own.train.images[-1, :, 5, 5].tolist() == list(GREEN)
    pixels = own.train.images.double() / 255
    assert own.train.mean == pytest.approx(pixels.mean(dim=(0, 2, 3)).tolist(), abs=5e-5)
    assert own.train.std == pytest.approx(pixels.std(dim=(0, 2, 3), correction=0).tolist(), abs=5e-5)
    assert (own.held_out.mean, own.held_out.std) == (own.train.mean, own.train.std)
    assert own.description.counts == {"train": 27, "valid": 3} and own.description.name == "photos"


def test_the_split_depends_on_the_images_alone_and_equal_images_stay_together(photos: Path, tmp_path: Path) -> None:
    before = load(photos).held_out
    for number, path in enumerate(sorted(photos.glob("*/*.png"), reverse=True)):
        path.rename(path.with_name(f"x{number}.png"))
    again = load(photos).held_out
    assert {image.numpy().tobytes() for image in before.images} == {image.numpy().tobytes() for image in again.images}
    for path in photos.glob("a/*.png"):  # every image of a class three times
        for copy in "12":
            (path.parent / f"copy{copy}{path.name}").write_bytes(path.read_bytes())
    own = load(photos)
    train, held_out = ({image.numpy().tobytes() for image in each.images} for each in (own.train, own.held_out))
    assert not train & held_out and own.held_out.labels.tolist().count(0) == 3


def test_given_splits_are_kept(tmp_path: Path) -> None:
    for part, count in (("train", 4), ("val", 3), ("test", 2)):
        for name in ("a", "b"):
            draw_class(tmp_path / part / name, count, RED if name == "a" else GREEN)
    own = load(tmp_path)
    assert (own.split, len(own.train), len(own.held_out)) == ("valid", 8, 6)
    assert own.description.counts == {"train": 8, "valid": 6, "test": 4}
    assert "6 of 6 valid images are also training images" in " ".join(own.notes)
    scored = ensure_images(TrainingSettings(data=str(tmp_path), epochs=1), mirror=None)
    assert (scored.split, len(scored.test)) == ("test", 4)  # though the curve is of the validation images
    files = find_labelled_files(tmp_path, classes=("a", "b"))
    for split, expected, count in ((None, "test", 4), ("valid", "valid", 6), ("train", "train", 8)):
        name, images = load_split(files, split, own.description)
        assert (name, len(images)) == (expected, count)
    with pytest.raises(ValueError, match="has no all images: expected --split train or valid or test"):
        load_split(files, ALL, own.description)
    for path in (tmp_path / "val").rglob("*.png"):
        path.unlink()
    assert load(tmp_path).split == "test"  # evaluated on where there are no validation images


def test_a_model_is_evaluated_on_its_validation_images_or_on_all_of_others(photos: Path, tmp_path: Path) -> None:
    own = load(photos)
    split, images = load_split(find_labelled_files(photos, classes=("a", "b")), None, own.description)
    assert split == "valid" and torch.equal(images.images, own.held_out.images)
    draw_class(tmp_path / "others" / "b", 5, GREEN)  # one class alone
    split, images = load_split(find_labelled_files(tmp_path / "others", classes=("a", "b")), None, own.description)
    assert split == ALL and images.labels.tolist() == [1] * 5


@pytest.mark.parametrize(
    ("size", "model", "expected"),
    [
        ((60, 90), "preact_resnet", 32), ((300, 200), "preact_resnet", 64), ((28, 28), "resnet18", 64),
        ((300, 200), "resnet18", 128),
    ],
)  # fmt: skip
def test_the_size_is_chosen_by_the_shorter_sides(
    size: tuple[int, int], model: str, expected: int, tmp_path: Path
) -> None:
    for name in "ab":
        draw_class(tmp_path / name, 3, size=size)
    own = load(tmp_path, model=model)
    assert own.description.size == expected
    batches = TrainingBatches(own.train, batch_size=4, seed=1, device="cpu")
    assert batches.batch(0)[0].shape == (4, 3, expected, expected)
    assert next(evaluation_batches(own.held_out, batch_size=9, device="cpu"))[0].shape == (2, 3, expected, expected)


def test_other_sizes_become_middle_squares_and_it_is_said(tmp_path: Path) -> None:
    for name in "ab":
        draw_class(tmp_path / name, 3, size=(64, 64))
    stripes = np.zeros((40, 120, 3), np.uint8)
    stripes[:, 40:80] = 255  # the middle square alone is white
    Image.fromarray(stripes).save(tmp_path / "a" / "wide.png")
    own = load(tmp_path, size=48)
    assert any("2 sizes from 64 x 64 to 120 x 40 pixels" in note and "48 x 48" in note for note in own.notes)
    both = torch.cat([own.train.images, own.held_out.images])
    assert sum(bool((image[:, 1:-1, 1:-1] == 255).all()) for image in both) == 1


def test_images_that_do_not_fit_in_memory_are_the_same_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, pixels in enumerate(np.random.default_rng(1).integers(0, 256, (18, 90, 110, 3), dtype=np.uint8)):
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "ab"[number % 2] / f"{number}.png")
    for size in (32, 80):
        whole = load(tmp_path, size=size)
        with monkeypatch.context() as patch:
            patch.setattr("rskip.vision.own_images.MEMORY", whole.train.images.numel())  # of one split
            patch.setenv("RSKIP_DATA", str(tmp_path / ".cache"))
            small = load(tmp_path, size=size)
        assert small.train.on_disk and not whole.train.on_disk and small.train.to("meta") is small.train
        assert whole.description == small.description
        ours, theirs = (TrainingBatches(each.train, batch_size=7, seed=3, device="cpu") for each in (whole, small))
        pairs = [(ours.batch(number)[:2], theirs.batch(number)[:2]) for number in (0, 1, 2, 3, 9, 1)]
        evaluated = (evaluation_batches(each.held_out, batch_size=2, device="cpu") for each in (whole, small))
        for mine, other in [*pairs, *zip(*evaluated, strict=True)]:
            assert torch.equal(mine[0], other[0]) and torch.equal(mine[1], other[1])


def test_links_are_followed_and_hidden_and_other_files_are_left_out(photos: Path, tmp_path: Path) -> None:
    (photos / "a" / "._00.png").write_text("x")
    (photos / ".git").mkdir()
    (photos / "__MACOSX").mkdir()
    (photos / "a" / "notes.txt").write_text("x")
    (photos / "a" / "link.png").symlink_to(draw(tmp_path / "elsewhere.png", seed=99))
    assert len(find_labelled_files(photos).parts[ALL]) == 31
    (photos / "a" / "gone.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises((ImageError, OSError), match=r"gone\.png: no such file"):
        load(photos)


def test_images_that_can_not_be_read_are_named_and_counted(photos: Path) -> None:
    whole = (photos / "a" / "00.png").read_bytes()
    (photos / "a" / "00.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ImageError, match=r"^\S*00\.png: truncated or damaged .*; repair or remove it$"):
        load(photos)
    (photos / "b" / "00.png").write_text("no image")
    with pytest.raises(ImageError, match=r"^\S*00\.png: .*; repair or remove it \(2 of 30 images can't be read\)$"):
        load(photos)


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (["a"], "the only class is a: expected two or more"),
        (["a", "empty/"], r"class empty has no training images: expected files of \.jpg"),
        (["."], r"holds 3 images and no class folders: expected FOLDER/CLASS/IMAGE\.jpg"),
        (["train/a", "train/b", "valid/c"], "valid/c: train has no class c: expected a, b"),
        (["train/a", "val/a", "valid/a"], "has val(id)? and val(id)?: remove one of them"),
        (["test/a"], "has test and no train: expected class folders in"),
        (["a", os.fsdecode(b"b\xff")], "the class's name is not UTF-8 or has control characters: rename it"),
        (["x/a", "x/b", "y/a", "y/b"], "x, y have the same folders, a, b, and no images: expected class folders"),
    ],
)
def test_folders_that_are_refused(folders: list[str], message: str, tmp_path: Path) -> None:
    for name in folders:
        (tmp_path / "folder" / name).mkdir(parents=True)
        draw_class(tmp_path / "folder" / name, 0 if name.endswith("/") else 3)
    with pytest.raises(ValueError, match=message) as caught:
        load(tmp_path / "folder")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        ("Train Validation", {"train", "valid"}), ("training testing", {"train", "test"}),
        ("TRAIN dev Test", {"train", "valid", "test"}), ("seg_train seg_test", {"train", "test"}),
        ("train eval", {"train", "valid"}),
    ],
)  # fmt: skip
def test_splits_have_the_names_that_people_give_them(names: str, parts: set[str], tmp_path: Path) -> None:
    for part in names.split():
        for name in "ab":
            draw_class(tmp_path / part / name, 2)
    found = find_labelled_files(tmp_path)
    assert (found.classes, {*found.parts}, found.notes) == (("a", "b"), parts, [])


def test_a_path_that_is_not_there_or_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder or file: expected FOLDER/CLASS"):
        find_labelled_files(tmp_path / "none")
    (tmp_path / "a.zip").touch()
    with pytest.raises(ValueError, match=r"a\.zip: expected a folder .* or an \.npz file"):
        find_labelled_files(tmp_path / "a.zip")
    assert kind_of_images(tmp_path / "none") is None is kind_of_images(tmp_path)
    (tmp_path / "cifar-10-batches-py").mkdir()
    assert kind_of_images(tmp_path) == kind_of_images(tmp_path / "cifar-10-batches-py") == "dataset"
    own = tmp_path / "own"
    own.mkdir()
    (own / "train").touch()  # the name of a file of CIFAR-100
    assert kind_of_images(own) == "dataset"
    (own / "dog").mkdir()
    assert kind_of_images(own) == "own"


# npz


def arrays(path: Path, **content: Any) -> Any:
    np.savez(path / "x.npz", **content)
    return find_labelled_files(path / "x.npz")


IMAGES = np.random.default_rng(3).integers(0, 256, (12, 28, 28), dtype=np.uint8)
LABELS = np.arange(12) % 3


@pytest.mark.parametrize(
    ("keys", "parts"),
    [
        (("images", "labels"), [ALL]),
        (("x_train", "y_train", "x_test", "y_test"), ["train", "test"]),  # keras
        (("train_images", "train_labels", "val_images", "val_labels", "test_images", "test_labels"), None),  # medmnist
    ],
)
def test_arrays_under_the_names_that_people_give_them(
    keys: tuple[str, ...], parts: list[str] | None, tmp_path: Path
) -> None:
    content = {key: LABELS[:, None] if key.startswith("y_") or "labels" in key else IMAGES for key in keys}
    files = arrays(tmp_path, **content)
    assert [*files.parts] == (parts or ["train", "valid", "test"]) and files.classes == ("0", "1", "2")
    assert [*next(iter(files.parts.values())).labels] == LABELS.tolist()
    own = load(tmp_path / "x.npz", size=28)
    (tmp_path / "moved").mkdir()
    moved = (tmp_path / "x.npz").rename(tmp_path / "moved" / "x.npz")
    split, _ = load_split(find_labelled_files(moved, classes=files.classes), None, own.description)
    assert split == ("valid" if parts == [ALL] else "test")
    if parts != [ALL]:
        assert torch.equal(own.train.images, torch.from_numpy(IMAGES)[:, None].expand(-1, 3, -1, -1))


def test_arrays_with_channels_and_names(tmp_path: Path) -> None:
    for images in (IMAGES[..., None], np.stack([IMAGES] * 3, axis=-1)):
        files = arrays(tmp_path, images=images, labels=LABELS, classes=np.array(["x", "y", "z"]))
        assert files.classes == ("x", "y", "z") and files.name == "x"
        assert np.array_equal(np.asarray(files.parts[ALL].image(5))[..., 1], IMAGES[5])
    clear = np.concatenate([np.stack([IMAGES] * 3, axis=-1), np.zeros((12, 28, 28, 1), np.uint8)], axis=-1)
    files = arrays(tmp_path, images=clear, labels=LABELS)
    assert (np.asarray(files.parts[ALL].image(0)) == 255).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": IMAGES}, "holds 'a': expected images and labels, train_images"),
        ({"images": IMAGES}, "holds images without labels: expected both"),
        ({"images": IMAGES / 255, "labels": LABELS}, "images is float64 of shape .*: expected uint8"),
        ({"images": IMAGES[0], "labels": LABELS}, r"of shape \(28, 28\), .*: expected uint8"),
        ({"images": IMAGES, "labels": LABELS[:5]}, r"labels is int64 of shape \(5,\): expected"),
        ({"images": IMAGES, "labels": LABELS / 2}, "labels is float64 of shape .* whole numbers"),
        ({"images": IMAGES, "labels": LABELS - 1}, "labels has the label -1: expected 0 to 2"),
        ({"images": IMAGES, "labels": LABELS + 1}, "labels has the label 3: expected 0 to 2"),
        ({"images": IMAGES, "labels": LABELS * 2}, "labels has the label 4: expected 0 to 2, the numbers of 3 classes"),
        ({"images": IMAGES, "labels": LABELS * 0}, "the only class is 0: expected two or more"),
        ({"images": IMAGES, "labels": LABELS, "classes": list("aab")}, "expected a 1-D array of different names"),
        ({"images": IMAGES, "labels": LABELS, "classes": [1, 2, 3]}, "expected a 1-D array of different names"),
        ({"images": IMAGES, "labels": np.array([None] * 12)}, r"no arrays can be read \(Object arrays"),
    ],
)  # fmt: skip
def test_arrays_that_are_refused(content: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        arrays(tmp_path, **content)
    assert len(str(caught.value).splitlines()) == 1
