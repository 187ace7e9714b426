"""The weights in checkpoints/: what checkpoints.json says of them, and fairseq reaches the same score with them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rskip.checkpoint import read_checkpoint, write_checkpoint
from rskip.records import read_record, read_records
from rskip.tasks.fairseq.flags import flags_to_arguments
from rskip.text import TextPipeline
from rskip.translation.generated import read_generated
from rskip.translation.metrics import score
from rskip.zoo.publishing import MAX_LOSS, run_of
from rskip.zoo.registry import OF_WEIGHTS, WEIGHTS, ModelEntry, read_registry

MODELS = read_registry()
SLICE, SLICE_SCORE = 100, 36.7  # sentences from the split's start, and sacreBLEU of 2rskip+ln's weights on them


@pytest.mark.parametrize("entry", MODELS.values(), ids=lambda entry: entry.name)
def test_weights_and_the_record_of_their_run_belong_together(root: Path, entry: ModelEntry) -> None:
    """By hand, whatever publishing writes."""
    folder = root / str(entry.folder)
    (record,) = (
        record
        for record in read_records(root / "study/results/runs")
        if (record.run, record.seed) == (run_of(entry), entry.seed)
    )
    assert record.checkpoint_sha256 == entry.checkpoint_sha256
    figure = entry.figures[0]
    assert (figure.of, figure.seeds) == (OF_WEIGHTS, (entry.seed,))
    assert abs(figure.value - record.metrics[figure.metric]) <= (0 if record.kind == "vision" else MAX_LOSS)
    assert figure.signature == record.signatures.get(figure.metric)
    assert (record.address, record.overrides, record.parameters) == (entry.recipe, entry.overrides, entry.parameters)
    checkpoint = read_checkpoint(folder / WEIGHTS)
    dtypes = {str(t.dtype) for t in checkpoint.model.values() if t.is_floating_point()}
    assert dtypes == {f"torch.{entry.dtype}"}


@pytest.mark.slow
def test_fairseq_reaches_the_score_of_published_weights_on_a_slice(
    root: Path, shared: Path, tmp_path: Path, fairseq_program: Callable
) -> None:
    """The others, and whole test sets, by `rskip.load`: tests/zoo/test_figures.py."""
    pytest.importorskip("fairseq")
    folder = root / "checkpoints/multi30k_en_de/2rskip_ln"
    record = read_record(root / "study/results/runs/multi30k_en_de/2rskip_ln/1.json")
    paths = [shared / "data/multi30k" / f"test_2016_flickr.{language}.gz" for language in ("en", "de")]
    sources, references = (gzip.decompress(path.read_bytes()).decode().splitlines()[:SLICE] for path in paths)
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
    hypotheses = read_generated(tmp_path / "output.txt").decoded(pipeline)
    found = score(hypotheses, references)["sacrebleu"].value
    assert found == pytest.approx(SLICE_SCORE, abs=0.3)  # other CPUs round otherwise
