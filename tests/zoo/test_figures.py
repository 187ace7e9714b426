"""What users load and call reaches the figures that the registry has of it."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

import rskip
from rskip.translation.scoring import score
from rskip.vision.data import load_cifar
from rskip.vision.evaluation import evaluate
from rskip.zoo.entry import OF_WEIGHTS, ModelEntry
from rskip.zoo.registry import read_registry

ENTRIES = list(read_registry().values())
TRANSLATORS = [entry for entry in ENTRIES if entry.task == "translation"]
CLASSIFIERS = [entry for entry in ENTRIES if entry.task == "image-classification"]


def of_weights(entry: ModelEntry) -> float:
    (figure,) = (figure for figure in entry.figures if figure.of == OF_WEIGHTS)
    return figure.value


@pytest.mark.slow
@pytest.mark.parametrize("entry", TRANSLATORS, ids=lambda entry: entry.name)
def test_raw_text_is_translated_as_well(entry: ModelEntry, shared: Path) -> None:
    dataset, source, target = entry.figures[0].dataset.rsplit("-", 2)
    paths = [shared / "data" / dataset / f"{entry.figures[0].split}.{language}.gz" for language in (source, target)]
    sources, references = (gzip.decompress(path.read_bytes()).decode().splitlines() for path in paths)
    translations = rskip.load(entry.name).translate(sources, beam=4, length_penalty=1.0)
    found = score([each.text for each in translations], references)["sacrebleu"].value
    assert found == pytest.approx(of_weights(entry), abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("entry", CLASSIFIERS, ids=lambda entry: entry.name)
def test_real_images_are_classified_as_well(entry: ModelEntry, shared: Path, tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    dataset = entry.figures[0].dataset
    if not (packed := list((shared / "data" / dataset).glob("*.xz"))):
        pytest.skip(f"needs {dataset} in {shared}/data")
    for path in packed:
        (tmp_path / path.stem).write_bytes(lzma.decompress(path.read_bytes()))
    found = evaluate(rskip.load(entry.name).model, load_cifar(dataset, tmp_path, train=False), dataset=dataset)
    assert found.error == pytest.approx(of_weights(entry), abs=0.05)
