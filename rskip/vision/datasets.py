"""Names the datasets of images that `dataset` and `--dataset` may be. Importing it loads no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rskip.files.cache import file_or_packed


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Training and test images of 32 by 32 pixels with three channels, which `rskip.vision.data.load_dataset` loads.

    :param name: its name in settings.
    :param folder: name of the folder of its files.
    :param first_file: name of a file in it, by which rskip recognises the folder if it has another name.
    :param classes: names of the classes, in the order of their numbers.
    :param mean: mean of each channel over all training images, with values in [0, 1].
    :param std: standard deviation of each channel, likewise.
    :param terms: licence and origin, for the cards of published models.
    """

    name: str
    folder: str
    first_file: str
    classes: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    terms: str

    def find(self, root: Path) -> Path | None:
        """The folder of its files: `root` or the dataset's folder in it, or one of both in `root`/NAME."""
        for parent in (root, root / self.name):
            if parent.name == self.folder or file_or_packed(parent, self.first_file):
                return parent
            if (parent / self.folder).is_dir():
                return parent / self.folder
        return None


_CIFAR_TERMS = (
    "no licence stated; source: Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images, "
    "https://www.cs.toronto.edu/~kriz/cifar.html"
)
_CIFAR100_CLASSES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl",
    "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair",
    "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin",
    "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp",
    "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck",
    "pine_tree", "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket",
    "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel",
    "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor",
    "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
)  # fmt: skip

# A test computes mean and std of CIFAR-10. Those of CIFAR-100 are from two public computations (gist
# nzw0301/b94b509b5b0f and Rapid-INR's mean_std.py); fb.resnet.torch rounds them to 129.3 124.1 112.4 and 68.2 65.4 70.4
# of 255.
DATASETS = {
    "cifar10": Dataset(
        name="cifar10",
        folder="cifar-10-batches-py",
        first_file="data_batch_1",
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        terms=_CIFAR_TERMS,
    ),
    "cifar100": Dataset(
        name="cifar100",
        folder="cifar-100-python",
        first_file="train",
        classes=_CIFAR100_CLASSES,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        terms=_CIFAR_TERMS,
    ),
}
