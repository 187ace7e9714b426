"""Your own connection with the real programs: trained, killed, resumed, recorded, published and loaded.

The first attempt has each program in a process of its own; the second one's and the preparation's are forked, which is
faster.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from rskip.checkpoint import read_checkpoint
from rskip.cli.main import main
from rskip.corpora import find_corpus, prepare
from rskip.experiments.recipe import load_recipe
from rskip.formulas import registry
from rskip.records import read_record
from rskip.tasks.run import precision_here
from rskip.translation.data import data_folder
from rskip.zoo.loading import load_entry
from rskip.zoo.registry import read_registry

RECIPE = """
kind: translation
corpus: numbers-en-de
prepare: {pairs: 400, size: 100}
train:
  user-dir: user_dir
  arch: transformer_rskip_ln_tiny
  connection: rezero:init=0.5
  encoder-layers: 1
  decoder-layers: 1
  share-all-embeddings: true
  optimizer: adam
  lr: 1e-3
  lr-scheduler: fixed
  criterion: label_smoothed_cross_entropy
  label-smoothing: 0.1
  max-tokens: 1000
  max-epoch: 3
  num-workers: 0
  bf16: true
average: {last: 2}
generate: {beam: 1, max-len-a: 0, max-len-b: 10, max-tokens: 8000, num-workers: 0}
"""


@pytest.fixture
def project(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with the recipe and user_dir/; what that registers is forgotten afterwards."""
    pytest.importorskip("fairseq")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(registry, "_families", dict(registry._families))
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = dict(sys.modules)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text(RECIPE)
    shutil.copytree(root / "user_dir", tmp_path / "user_dir")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "user_dir" and name not in modules]:
        del sys.modules[name]


@pytest.mark.slow
def test_killed_in_mid_training_and_repeated_it_ends_in_a_model_that_is_loaded(
    project: Path, forked_logged: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_recipe("recipes/mine.yaml").settings
    prepare(find_corpus("numbers-en-de"), data_folder(settings), options=settings.prepare, workers=1)
    known = dict(registry._families)
    command = [str(Path(sys.executable).parent / "rskip"), "run", "recipes/mine.yaml", "--gpus", "0"]
    with (project / "output.txt").open("wb") as output:
        first = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    checkpoints = project / "runs/mine/1/checkpoints"
    try:
        while not (checkpoints / "checkpoint1.pt").exists():
            assert first.poll() is None, (project / "output.txt").read_text()
            time.sleep(0.05)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not (project / "results").exists()
    for module in ("rskip.tasks.run", "rskip.translation.scoring"):
        monkeypatch.setattr(f"{module}.run_logged", forked_logged)
    monkeypatch.setattr("rskip.translation.training.check_fairseq_flags", lambda given: None)  # the first attempt asked
    assert main(command[1:]) == 0

    record = read_record(project / "results/mine/1.json")
    assert record.training["pieces"] == 2
    assert record.training["precision"] == precision_here("bfloat16", gpus=0)
    epochs = [(epoch["epoch"], epoch["update"]) for epoch in record.curve]
    assert [number for number, _ in epochs] == [1, 2, 3]
    assert [update for _, update in epochs] == [epochs[0][1] * number for number in (1, 2, 3)]
    losses = [epoch["valid_loss"] for epoch in record.curve]
    assert losses == sorted(losses, reverse=True)

    assert {path.name for path in checkpoints.glob("checkpoint?.pt")} == {"checkpoint2.pt", "checkpoint3.pt"}
    averaged = read_checkpoint(project / "runs/mine/1/averaged.pt").model
    last = [read_checkpoint(checkpoints / f"checkpoint{number}.pt").model for number in (2, 3)]
    for name in ("decoder.embed_tokens.weight", "encoder.layers.0.ffn_connection.alpha"):
        torch.testing.assert_close(averaged[name], (last[0][name] + last[1][name]) / 2)
    assert averaged["encoder.layers.0.ffn_connection.alpha"] not in (0.0, 0.5), "α is learned"

    assert main(["zoo", "publish", "mine", "--variant", "small"]) == 0
    (entry,) = read_registry(project / "checkpoints.json").values()
    assert entry.name == "transformer_tiny_rezero-init_0p5.numbers.en-de.small"
    assert entry.connection == "rezero:init=0.5"
    assert entry.paper.title == "Bachlechner et al. 2020, ReZero is all you need"
    translator = load_entry(entry, root=project)
    model = translator.in_torch().model.model
    assert sum(each.numel() for each in model.parameters()) == record.parameters == entry.parameters
    (translation,) = translator.translate(["two hundred and six"], beam=1)
    assert isinstance(translation.text, str)

    del known["rezero"]  # rskip's own, whose formula and members are the same
    monkeypatch.setattr(registry, "_families", known)  # as in a process that doesn't import user_dir
    with pytest.raises(ValueError, match="'rezero:init=0.5': .*import the module that registers it") as error:
        load_entry(entry, root=project)
    assert "\n" not in str(error.value)
