"""The weights in checkpoints/: their records tell of them, and fairseq reaches the same score with them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rskip.captioning.model_file import load_captioning_model
from rskip.checkpoint import read_checkpoint, write_checkpoint
from rskip.files.checksum import sha256_file
from rskip.records import read_record
from rskip.tasks.fairseq.flags import flags_to_arguments
from rskip.text import TextPipeline
from rskip.translation.metrics import read_generated, score
from rskip.vision.model_file import load_model
from rskip.zoo.publishing import MAX_BYTES, MAX_LOSS


def test_weights_and_record_belong_together(root: Path) -> None:
    folders = sorted(path.parent for path in (root / "checkpoints").glob("*/record.json"))
    assert len(folders) >= 6
    for folder in folders:
        record = read_record(folder / "record.json")
        assert record == read_record(root / record.path) and record.published
        weights = folder / record.published["file"]
        assert (record.run, record.published["sha256"]) == (folder.name, sha256_file(weights))
        assert weights.stat().st_size == record.published["bytes"] <= MAX_BYTES
        if record.kind == "translation":
            assert abs(record.published["sacrebleu"] - record.metrics["sacrebleu"]) <= MAX_LOSS
            checkpoint = read_checkpoint(weights)
            assert {t.dtype for t in checkpoint.model.values() if t.is_floating_point()} == {torch.float16}
            assert TextPipeline.load(folder / "text").target_language == checkpoint.config["target_lang"]
        elif record.kind == "captioning":
            assert abs(record.published["cider"] - record.metrics["cider"]) <= MAX_LOSS
            captioner, words = load_captioning_model(folder)
            assert sum(parameter.numel() for parameter in captioner.parameters()) == record.parameters
            assert len(words) == captioner.config.vocabulary
        else:
            assert record.published["error"] == record.metrics["error"]
            model, description = load_model(folder)
            assert sum(parameter.numel() for parameter in model.parameters()) == record.parameters
            train = record.config["train"]
            assert description.dataset == train["dataset"]
            assert all(train[key] == value for key, value in description.config.items() if key != "num_classes")
            classes = json.loads((folder / "config.json").read_text())["classes"]
            assert len(classes) == description.config["num_classes"]


def test_fairseq_reaches_the_score_of_published_weights_on_a_slice(
    root: Path, shared: Path, tmp_path: Path, fairseq_program: Callable
) -> None:
    """The others, and whole test sets, by `rskip.load`: tests/zoo/test_figures.py."""
    pytest.importorskip("fairseq")
    folder = root / "checkpoints" / "multi30k_en_de/2rskip_ln"
    record = read_record(folder / "record.json")
    assert record.published
    paths = [shared / "data/multi30k" / f"test_2016_flickr.{language}.gz" for language in ("en", "de")]
    count = record.published["slice_sentences"]
    sources, references = (gzip.decompress(path.read_bytes()).decode().splitlines()[:count] for path in paths)
    pipeline = TextPipeline.load(folder / "text")
    write_checkpoint(tmp_path / "model.pt", read_checkpoint(folder / "model.safetensors"), dtype=torch.float32)
    limits = {key: value for key, value in record.config["generate"].items() if key != "max-tokens"}
    process = fairseq_program(
        "fairseq-interactive", str(folder), "-s", "en", "-t", "de", "--user-dir", str(root / "rskip"), "--cpu",
        "--path", str(tmp_path / "model.pt"), *flags_to_arguments(limits), "--buffer-size", "100",
        "--batch-size", "100", folder=tmp_path, text="".join(f"{pipeline.encode(source)}\n" for source in sources),
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    (tmp_path / "output.txt").write_text(process.stdout)
    hypotheses = [pipeline.decode(tokens) for tokens in read_generated(tmp_path / "output.txt").hypotheses]
    found = score(hypotheses, references)["sacrebleu"].value
    assert found == pytest.approx(record.published["slice_sacrebleu"], abs=0.3)  # other CPUs round otherwise
