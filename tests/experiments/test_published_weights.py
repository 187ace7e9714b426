"""The weights in checkpoints/: what their records say of them, and that they still do as well."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rskip.experiments.commands import flags_to_arguments
from rskip.experiments.record import Record, read_record
from rskip.zoo.entry_of_record import MAX_LOSS
from rskip.zoo.publish import MAX_BYTES

from rskip.checkpoint import read_checkpoint, write_checkpoint
from rskip.corpora.corpus import PublishedCorpus
from rskip.corpora.fetch import fetch
from rskip.corpora.formats import read_sentences
from rskip.corpora.registry import find_corpus
from rskip.files.checksum import sha256_file
from rskip.text import TextPipeline
from rskip.translation.scoring import read_generated, score
from rskip.vision.model_file import load_model

PUBLISHED = sorted(path.parent for path in (Path(__file__).parents[2] / "checkpoints").glob("*/record.json"))
FOLDERS = [folder for folder in PUBLISHED if read_record(folder / "record.json").kind == "translation"]
VISION_FOLDERS = [folder for folder in PUBLISHED if read_record(folder / "record.json").kind == "vision"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_weights_and_record_belong_together(folder: Path, root: Path) -> None:
    record = read_record(folder / "record.json")
    assert record == read_record(root / record.path)
    assert record.run == folder.name and record.published
    weights = folder / record.published["file"]
    assert sha256_file(weights) == record.published["sha256"]
    assert weights.stat().st_size == record.published["bytes"] <= MAX_BYTES
    assert abs(record.published["sacrebleu"] - record.metrics["sacrebleu"]) <= MAX_LOSS
    model = read_checkpoint(weights).model
    assert {tensor.dtype for tensor in model.values() if tensor.is_floating_point()} == {torch.float16}
    assert (
        TextPipeline.load(folder / "text").target_language == read_checkpoint(weights).config["target_lang"]
    )


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_published_weights_still_reach_their_score_on_a_slice(
    folder: Path, shared: Path, tmp_path: Path
) -> None:
    record = read_record(folder / "record.json")
    assert record.published
    sources, references = _slice(record, mirror=shared / "data" / "multi30k")
    pipeline = TextPipeline.load(folder / "text")
    write_checkpoint(
        tmp_path / "model.pt", read_checkpoint(folder / record.published["file"]), dtype=torch.float32
    )
    languages = ["-s", pipeline.source_language, "-t", pipeline.target_language]
    limits = {key: value for key, value in record.config["generate"].items() if key != "max-tokens"}
    command = [str(Path(sys.executable).parent / "fairseq-interactive"), str(folder), *languages]
    command += [
        "--user-dir",
        "rskip",
        "--cpu",
        "--path",
        str(tmp_path / "model.pt"),
        *flags_to_arguments(limits),
    ]
    command += ["--buffer-size", "100", "--batch-size", "100"]
    tokens = "".join(f"{pipeline.encode(source)}\n" for source in sources)
    output = subprocess.run(command, input=tokens, capture_output=True, text=True, check=True).stdout
    (tmp_path / "output.txt").write_text(output)
    hypotheses = [pipeline.decode(tokens) for tokens in read_generated(tmp_path / "output.txt").hypotheses]
    found = score(hypotheses, references)["sacrebleu"].value
    assert found == pytest.approx(record.published["slice_sacrebleu"], abs=0.3)  # other CPUs round otherwise


def _slice(record: Record, *, mirror: Path) -> tuple[list[str], list[str]]:
    """Raw sentences and references from the start of the test split."""
    assert record.published
    count = record.published["slice_sentences"]
    corpus = find_corpus(record.config["corpus"])
    if isinstance(corpus, PublishedCorpus):
        files = fetch(corpus.upstream_files(), folder=corpus.folder, mirror=str(mirror))
        sides = corpus.splits["test"][0].sides
        texts = [
            list(read_sentences(files[sides[language].file].path)) for language in (corpus.source, corpus.target)
        ]
        return texts[0][:count], texts[1][:count]
    options = record.config["prepare"]
    pairs = corpus.generate(pairs=options["pairs"], seed=options["seed"])["test"][:count]
    return [source for source, _ in pairs], [target for _, target in pairs]


@pytest.mark.parametrize("folder", VISION_FOLDERS, ids=lambda folder: folder.name)
def test_weights_for_images_and_their_record_belong_together(folder: Path, root: Path) -> None:
    record = read_record(folder / "record.json")
    assert record == read_record(root / record.path)
    assert record.run == folder.name and record.published
    weights = folder / record.published["file"]
    assert sha256_file(weights) == record.published["sha256"]
    assert weights.stat().st_size == record.published["bytes"] <= MAX_BYTES
    assert record.published["error"] == record.metrics["error"]
    model, description = load_model(folder)
    assert sum(parameter.numel() for parameter in model.parameters()) == record.parameters
    train = record.config["train"]
    assert description.dataset == train["dataset"]
    assert all(train[key] == value for key, value in description.config.items() if key != "num_classes")
    classes = json.loads((folder / "config.json").read_text())["classes"]
    assert len(classes) == description.config["num_classes"]
