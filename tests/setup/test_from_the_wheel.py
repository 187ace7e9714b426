"""What people come for, from the installed wheel: its commands in a folder away from the repository, one by one."""

from __future__ import annotations

import itertools
import re
import shlex
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.setup.conftest import fresh_environment, run_well

pytestmark = pytest.mark.install

MODEL = "transformer_tiny_2rskip_ln.multi30k.en-de"
WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
PROGRAMS = ("fairseq-preprocess", "fairseq-train", "fairseq-generate", "fairseq-interactive")
TRAIN = (
    "fairseq-train", "data", "--user-dir", "rskip", "--arch", "transformer_rskip_ln", "--encoder-layers", "2",
    "--decoder-layers", "2", "--share-all-embeddings", "--optimizer", "adam", "--lr", "1e-3", "--max-tokens", "200",
    "--cpu", "--criterion", "rskip_label_smoothed_cross_entropy", "--label-smoothing", "0.1",
)  # fmt: skip


@pytest.fixture(scope="module")
def project(wheel: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, images, and `fresh`, an environment with the wheel and the programs beside it."""
    pytest.importorskip("fairseq")
    folder = tmp_path_factory.mktemp("project")
    python = fresh_environment(folder, "--without-pip")
    run_well(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", wheel, folder=folder)
    for name in PROGRAMS:  # of this environment, which start the fresh one's Python
        text = Path(sysconfig.get_path("scripts"), name).read_text("utf-8")
        (python.parent / name).write_text(re.sub("^#!.*", f"#!{python}", text), "utf-8")
        (python.parent / name).chmod(0o755)
    run_well(python.parent / "rskip", "setup-fairseq", folder=folder)
    lines = [" ".join(words) for words in itertools.product(WORDS, repeat=3)]
    for language, step in (("en", 1), ("de", -1)):
        (folder / f"train.{language}").write_text("".join(" ".join(line.split()[::step]) + "\n" for line in lines))
    image = pytest.importorskip("PIL.Image")
    for number in range(24):
        path = folder / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (32, 32), (9 * number, 255 * (number % 2), 60)).save(path)
    return folder


@pytest.fixture(scope="module")
def trained(project: Path) -> Path:
    """Prepared text in `data`, and 50 updates of fairseq-train in `checkpoints`."""
    prepare = ("prepare", "--source", "train.en", "--target", "train.de", "--valid", "20", "--test", "20")
    here(project, "rskip", *prepare, "--bpe-size", "300", "--output", "data")
    saved = ("--save-dir", "checkpoints", "--max-update", "50", "--save-interval-updates", "25")
    here(project, *TRAIN, *saved)
    return project


def here(folder: Path, program: str, *arguments: str, **variables: str) -> str:
    """Runs a program of the fresh environment. Its output, with what it says on stderr."""
    words = shlex.join([str(folder / "fresh/bin" / program), *arguments])
    return run_well("sh", "-c", f"exec {words} 2>&1", folder=folder, OMP_NUM_THREADS="1", **variables)


def test_training_goes_on_and_its_average_translates(trained: Path) -> None:
    told = here(trained, *TRAIN, "--save-dir", "checkpoints", "--max-update", "60")
    assert "Loaded checkpoint checkpoints/checkpoint_last.pt" in told and "num_updates 60" in told
    here(trained, "rskip", "average", "checkpoints", "--last", "2", "--by", "update", "--output", "averaged.pt")
    path = ("data", "--user-dir", "rskip", "--path", "averaged.pt", "--beam", "2", "--cpu")
    assert "BLEU4 = " in here(trained, "fairseq-generate", *path)
    (trained / "input").write_text("one two three\n")
    assert re.search(r"^H-0\t\S+\t\S", here(trained, "fairseq-interactive", *path, "--input", "input"), re.MULTILINE)


def test_published_models_translate(project: Path, root: Path) -> None:
    (project / "input.en").write_text("A dog runs.\n")
    here(project, "rskip", "translate", "--model", MODEL, "input.en", "--output", "o.de", RSKIP_HUB_MIRROR=str(root))
    assert (project / "o.de").read_text("utf-8") == "Ein Hund rennt.\n"
    code = f"import torch; print(torch.hub.load({str(root)!r}, {MODEL!r}, source='local')('A dog runs.'))"
    assert here(project, "python", "-c", code).endswith("Ein Hund rennt.\n")


def test_a_preact_resnet_trains(project: Path) -> None:
    model = ("--model", "preact_resnet", "--depth", "8", "--connection", "2rskip+ln", "--size", "32")
    here(project, "rskip", "vision", "train", "--data", "photos", *model, "--epochs", "1", "--output", "runs/photos")
    assert "error" in here(project, "rskip", "vision", "evaluate", "runs/photos", "--data", "photos")
