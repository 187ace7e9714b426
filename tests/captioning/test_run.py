"""`rskip run` of a captioning recipe on a few drawn images: stages, records, publishing; without fairseq-train."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rskip.captioning.backbones import Backbone
from rskip.captioning.captions import DICTIONARY, read_split
from rskip.captioning.config import CaptioningConfig
from rskip.captioning.features import Features, FeatureStore, open_features
from rskip.captioning.metrics import Unavailable
from rskip.captioning.model import CaptioningTransformer
from rskip.captioning.model_file import OF_DATA, load_captioning_model
from rskip.cli.main import main
from rskip.corpora import CAPTION_CORPORA, find_caption_corpus
from rskip.corpora.corpus import UpstreamFile
from rskip.experiments.recipe import load_recipe
from rskip.files.checksum import sha256_file
from rskip.records import read_record
from rskip.tasks import find_task
from rskip.tasks.process import CommandFailed, TrainingDiverged
from rskip.text import Dictionary
from rskip.zoo.model_card import model_card
from rskip.zoo.registry import read_registry

RECIPE = """
kind: captioning
corpus: flickr8k
prepare: {min_count: 1}
features: {backbone: drawn}
train:
  arch: captioning_transformer_rskip_ln_tiny
  criterion: label_smoothed_cross_entropy
  label-smoothing: 0.1
  batch-size: 8
  max-epoch: 2
  bf16: true
generate: {beam: 2, max_length: 6}
show: 1
paper: [{cider: 126.3, table: SAS Table 5}]
variants:
  sees: {description: it sees}
  blind: {description: it does not, features: {backbone: constant}}
  rewarded: {description: in two stages, self_critical: {lr: 1e-5, label-smoothing: null, max-epoch: 1}}
"""
SPLITS = {"train": ["a", "b", "c"], "valid": ["d"], "test": ["e", "f", "g"]}
PICTURES = "abcdef"  # g has none


class Drawn:
    """A backbone whose features are an image's number. It fails if the file is not an image."""

    description = {"backbone": "drawn", "dim": 4, "dtype": "float32", "weights": "0" * 64}
    read_ahead = Backbone.read_ahead

    def prepare(self, image):
        return torch.from_numpy(np.array(image)).float().mean()

    def compute(self, inputs):
        return [Features(np.full((6, 4), float(each), dtype=np.float32), (2, 3)) for each in inputs]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder to run in, with the recipe and a mirror. `train` replaces fairseq-train."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RSKIP_DATA", str(tmp_path / "cache"))
    images = tmp_path / "mirror/images"
    images.mkdir(parents=True)
    for number, name in enumerate(PICTURES):
        Image.new("RGB", (40, 40), (40 * number, 200, 90)).save(images / f"{name}.jpg")
    lines = [f"{name}.jpg#{n}\tA dog {n} runs to {name}.\n" for name in "abcdefg" for n in (0, 1)]
    (tmp_path / "mirror/Flickr8k.token.txt").write_text("".join(lines))
    real = find_caption_corpus("flickr8k")
    for split, names in SPLITS.items():
        (tmp_path / "mirror" / real.texts[split].name).write_text("".join(f"{name}.jpg\n" for name in names))
    texts = {key: UpstreamFile(name=file.name, url="https://nowhere/t.zip") for key, file in real.texts.items()}
    counts = {split: len(names) for split, names in SPLITS.items()}
    monkeypatch.setitem(CAPTION_CORPORA, "flickr8k", dataclasses.replace(real, texts=texts, images=counts))
    monkeypatch.setattr("rskip.captioning.data.load_backbone", lambda *_, **__: Drawn())
    monkeypatch.setattr("rskip.machine.device.bfloat16_is_slow", lambda device: device.type == "cpu")
    monkeypatch.setattr("rskip.tasks.run.run_logged", train)
    monkeypatch.setattr("rskip.captioning.training.check_fairseq_flags", lambda given: None)
    monkeypatch.setattr("rskip.captioning.metrics._java", no_java)
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return tmp_path


def no_java(*_):
    raise Unavailable("needs Java")


def train(command, *, log, on_poll, **_):
    """Writes what fairseq-train would log, and a checkpoint as it writes them."""
    with open("commands", "a") as file:
        file.write(" ".join(command) + "\n")
    flags = dict(zip(command, [*command[1:], ""], strict=True))
    if flags["--max-epoch"] == "13":
        raise CommandFailed("it failed")
    store = open_features(flags["--features"])
    dictionary = Dictionary.load(Path(command[1]) / DICTIONARY)
    of_data = {
        "vocabulary": len(dictionary),
        "padding_index": 1,
        "feature_dim": store.dim,
        "grid_positions": isinstance(store, FeatureStore),
        "features": dict(store.description),
    }
    shape = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in SHAPE.items()}
    config = CaptioningConfig(**of_data, **shape, encoder_connection="2rskip+ln", decoder_connection="2rskip+ln")
    torch.manual_seed(1)
    parameters = CaptioningTransformer(config).state_dict()
    model = {**{k: v for k, v in config.to_dict().items() if k not in of_data}, "connection": "2rskip+ln"}
    cfg = {"model": {**model, "arch": flags["--arch"], OF_DATA: of_data}, "task": {"_name": "captioning"}}
    for name in ("best", "last"):
        torch.save({"args": None, "cfg": cfg, "model": parameters}, Path(flags["--save-dir"], f"checkpoint_{name}.pt"))
    lines = ["num. shared model params: 1,234 (num. trained: 1,234)"]
    diverges = flags["--max-epoch"] == "14"
    for epoch in range(1, 2 if diverges else int(flags["--max-epoch"]) + 1):
        best = {1: "0.5", 2: "0.25"}[epoch]
        valid = {"epoch": epoch, "valid_loss": "4", "valid_num_updates": str(epoch), "valid_cider": best}
        lines.append(f"x | INFO | valid | {json.dumps(valid)}")
        trained = {"epoch": epoch, "train_loss": "5", "train_num_updates": str(epoch), "train_wall": str(10 * epoch)}
        lines.append(f"x | INFO | train | {json.dumps(trained)}")
    with log.open("a") as file:
        file.write("\n".join(lines) + "\n")
    on_poll()
    if diverges:
        raise TrainingDiverged("it diverged")


SHAPE = {"embed_dim": 8, "ffn_embed_dim": 8, "attention_heads": 2, "layers": 1}


def run(*arguments):
    return main(["run", "mine.yaml", "--gpus", "0", "--mirror", "mirror", *arguments])


def commands():
    return Path("commands").read_text().splitlines()


def test_a_run_leaves_a_record_of_everything(project, capsys):
    assert run("--variants", "sees", "--seeds", "7") == 0
    record = read_record(project / "results/mine/sees/7.json")
    assert (record.kind, record.seed, record.parameters) == ("captioning", 7, 1234)
    assert record.config["features"] == {"backbone": "drawn"} and "self_critical" not in record.config
    assert load_recipe("mine.yaml", variant="sees").settings.to_plain() == {
        key: value for key, value in record.config.items() if key != "kind"
    }
    assert record.checkpoint_sha256 == sha256_file(project / "runs/mine/sees/7/checkpoints/checkpoint_best.pt")
    assert record.metrics["cider"] >= 0 and record.metrics["valid_cider"] == 50 and record.metrics["valid_loss"] == 4
    assert "2 pictures; tokeniser: " in record.signatures["cider"]
    assert [(point["epoch"], point["valid_cider"]) for point in record.curve] == [(1, 0.5), (2, 0.25)]
    told = {name: record.training[name] for name in ("seconds", "epochs", "updates", "precision")}
    assert told == {"seconds": 20, "epochs": 2, "updates": 2, "precision": "float32"}
    assert record.data["images"] == {"train": 3, "valid": 1, "test": 2} and record.data["upstream"]["test"] == 3
    assert record.data["features"]["backbone"] == "drawn"
    text = (project / "results/mine/sees/7.json").read_text()
    assert str(project) not in text

    written = (project / "runs/mine/sees/7/captions-test.jsonl").read_text().splitlines()
    captions = [json.loads(line) for line in written]
    assert [line["image"] for line in captions] == ["e.jpg", "f.jpg"]
    assert all(len(line["caption"].split()) <= 6 for line in captions)
    printed = capsys.readouterr().out
    assert "extracting features of 6 images by drawn" in printed and printed.count("  epoch   ") == 2
    assert "the paper          126.30   (CIDEr, SAS Table 5; from the paper, not from this run)" in printed
    assert "image      e.jpg\n  reference  A dog 0 runs to e.\n  model      " in printed
    (command,) = commands()
    data, store = "data-bin/flickr8k-" + command.split()[1].rpartition("-")[2], "data-bin/flickr8k-drawn"
    assert command == (
        f"fairseq-train {data} --user-dir rskip --task captioning --features {store} --seed 7 --save-dir "
        "runs/mine/sees/7/checkpoints --keep-last-epochs 1 --eval-cider --best-checkpoint-metric cider "
        "--maximize-best-checkpoint-metric --log-format json --log-interval 100 --cpu "
        "--arch captioning_transformer_rskip_ln_tiny --criterion label_smoothed_cross_entropy --label-smoothing 0.1 "
        "--batch-size 8 --max-epoch 2"
    )


def test_features_are_extracted_once_and_what_is_done_is_not_done_again(project, capsys):
    assert run("--variants", "sees", "--seeds", "1", "2") == 0
    assert capsys.readouterr().out.count("extracting features") == 1
    before = read_record(project / "results/mine/sees/1.json")
    (project / "results/mine/sees/1.json").unlink()
    assert main(["run", "mine.yaml", "--gpus", "0", "--variants", "sees"]) == 0  # the data is there
    assert len(commands()) == 2
    again = read_record(project / "results/mine/sees/1.json")
    assert (again.metrics, again.training) == (before.metrics, before.training)
    capsys.readouterr()
    assert main(["report"]) == 0
    table = capsys.readouterr().out
    assert "## flickr8k" in table and "| CIDEr |" in table
    index = project / "data-bin/flickr8k-drawn/features.json"
    index.write_text(index.read_text().replace('"complete":true', '"complete":false'))  # as a killed process leaves it
    assert run("--variants", "sees", "--seeds", "3") == 0
    assert "extracting features" in capsys.readouterr().out and '"complete":true' in index.read_text()


@pytest.mark.parametrize("stage", ["train", "self_critical"])
def test_a_training_that_diverges_has_a_record_of_the_stages_that_began(project, stage):
    assert run("--variants", "rewarded", "--set", f"{stage}.max-epoch=14") == 0
    (path,) = Path("results").glob("mine/rewarded-*/1.json")
    record = read_record(path)
    assert record.diverged and record.metrics == {} == record.signatures
    before, parts = {"train": ([], []), "self_critical": ([1, 2], ["train", "train", "self_critical"])}[stage]
    assert [point["epoch"] for point in record.curve] == [*before, 1]
    assert [point["stage"] for point in record.curve if "stage" in point] == parts
    assert (record.training["updates"], record.parameters) == (len(before) + 1, 1234)


def test_a_baseline_that_sees_nothing_needs_no_features(project, capsys):
    assert run("--variants", "blind") == 0
    assert "extracting" not in capsys.readouterr().out and " --features constant " in commands()[0]
    assert not (project / "data-bin/flickr8k-drawn").exists()


def test_self_critical_training_begins_with_the_first_ones_best_checkpoint(project):
    assert run("--variants", "rewarded", "--set", "checkpoint=last") == 0
    first, second = commands()
    (folder,) = (project / "runs/mine").iterdir()
    assert f"--finetune-from-model {folder.relative_to(project)}/1/checkpoints/checkpoint_last.pt" in second
    assert "--criterion self_critical" in second and "--label-smoothing" not in second and "--lr 1e-05" in second
    assert f"--save-dir {folder.relative_to(project)}/1/checkpoints-self_critical" in second
    assert "--eval-cider" not in first + second
    (record,) = (read_record(path) for path in project.glob("results/*/*/1.json"))
    assert [(point["stage"], point["epoch"]) for point in record.curve] == [
        ("train", 1),
        ("train", 2),
        ("self_critical", 1),
    ]
    assert (record.training["epochs"], record.training["seconds"]) == (3, 30)
    assert record.metrics["valid_cider"] == 50  # of the last stage's last epoch


def test_a_picture_that_cannot_be_read_is_left_out_and_told(project, capsys):
    (project / "mirror/images/e.jpg").write_bytes(b"no picture")
    assert run("--variants", "sees") == 0
    assert "left out: " in capsys.readouterr().out
    record = read_record(project / "results/mine/sees/1.json")
    assert "1 pictures; tokeniser" in record.signatures["cider"]
    assert run("--variants", "sees", "--seeds", "2") == 0
    assert "extracting features of 1 images" in capsys.readouterr().out  # it may have been repaired


def test_mistakes_are_one_line(project, capsys):
    for arguments, message in [
        (["--set", "corpus=multi30k-en-de"], "multi30k-en-de has two languages"),
        (["--set", "features.store=there"], "features needs a backbone or a store"),
        (["--set", "features.backbone=constant", "features.size=64"], "features.size is for a backbone that extracts"),
        (["--set", "features.backbone=bottom-up"], "give their store"),
        (["--set", "features.backbone=resnet18", "features.regions=9"], "features.regions is not for resnet18"),
        (["--set", "train.eval-cider=true"], "train.eval-cider can't be set in a recipe: set `checkpoint` instead"),
        (["--set", "self_critical={save-dir: x}"], "self_critical.save-dir can't be set"),
        (["--set", "generate.beam=0"], "generate.beam is 0"),
        (["--mirror", "nowhere"], "no mirror folder nowhere"),
    ]:
        assert run("--variants", "sees", *arguments) == 2, arguments
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1, (message, error)
        assert "features.features" not in error
    (project / "mirror/images").rename(project / "mirror/elsewhere")
    assert run("--variants", "sees") == 2
    error = capsys.readouterr().err
    assert "7 images of flickr8k are missing" in error and "get them from a copy of Flickr8k_Dataset.zip" in error


def test_several_gpus_divide_an_updates_pictures(project, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert main(["run", "mine.yaml", "--variants", "rewarded", "--gpus", "4", "--dry-run", "--mirror", "mirror"]) == 0
    prepare, extract, first, second = capsys.readouterr().out.splitlines()
    assert prepare.startswith("rskip prepare flickr8k --output data-bin/flickr8k-") and "--min-count 1" in prepare
    assert extract == "rskip caption extract mirror/images --backbone drawn --output data-bin/flickr8k-drawn"
    for command in (first, second):
        assert command.startswith("torchrun --standalone --nproc-per-node 4 ") and "--batch-size 2" in command
        assert "--bf16" in command and "--cpu" not in command
    assert main(["run", "mine.yaml", "--variants", "sees", "--gpus", "3"]) == 2
    assert "train.batch-size is 8: expected images per update, a multiple of 3 GPUs" in capsys.readouterr().err


def test_publish_writes_weights_that_caption_the_same(project):
    assert run("--variants", "sees", "--seeds", "1", "2", "--publish") == 0
    folder = project / "checkpoints/mine/sees"
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "dict.txt", "model.safetensors"]
    model, dictionary = load_captioning_model(folder)
    assert model.config.encoder_connection == "2rskip+ln" and "dog" in dictionary

    (project / "recipes").mkdir()
    (project / "mine.yaml").rename(project / "recipes/mine.yaml")  # where a run's recipe is looked for
    assert main(["zoo", "publish", "mine/sees"]) == 0
    entry = read_registry(project / "checkpoints.json")["captioning_transformer_tiny_2rskip_ln.flickr8k"]
    record = read_record(project / f"results/mine/sees/{entry.seed}.json")
    assert (entry.figures[0].value, entry.dtype) == (record.metrics["cider"], "float16")
    assert (entry.task, entry.connection) == ("captioning", "2rskip+ln")
    assert entry.figures[0].split == "test" and "(2 images)" in entry.figures[0].dataset
    card = model_card(entry)
    assert 'captioner = rskip.load("captioning_transformer_tiny_2rskip_ln.flickr8k")' in card
    assert "CIDEr" in card and "test" in card
    config = json.loads((folder / "config.json").read_text())
    of_two = {**config["model"], "decoder_connection": "1xskip+ln"}
    (folder / "config.json").write_text(json.dumps({**config, "model": of_two}))
    with pytest.raises(ValueError, match="but a model's name has only one"):
        find_task("captioning").work().describe(folder, record)
    assert [image.name for image in read_split(next(project.glob("data-bin/flickr8k-*[!n]")), "valid")] == ["d.jpg"]


@pytest.mark.slow
def test_the_real_programs_train_in_two_stages_and_their_model_captions(project, forked_logged, monkeypatch):
    pytest.importorskip("fairseq")
    monkeypatch.setattr("rskip.tasks.run.run_logged", forked_logged)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    sizes = [f"train.{side}-layers=1" for side in ("encoder", "decoder")]
    changes = [*sizes, "train.optimizer=adam", "train.lr=1e-3", "train.num-workers=0", "self_critical.samples=2"]
    assert run("--variants", "rewarded", "--set", *changes, "self_critical.criterion=self_critical", "--publish") == 0
    (record,) = (read_record(path) for path in project.glob("results/*/*/1.json"))
    assert [(point["stage"], point["epoch"]) for point in record.curve] == [
        ("train", 1),
        ("train", 2),
        ("self_critical", 1),
    ]
    assert all(point["valid_cider"] >= 0 for point in record.curve)
    (folder,) = (project / "checkpoints/mine").iterdir()
    captioner = find_task("captioning").load(folder, precision="float32", device=torch.device("cpu"))
    store = FeatureStore(project / "data-bin/flickr8k-drawn")
    assert set(captioner(store["e.jpg"]).split()) <= {"a", "dog", "0", "1", "runs", "to", "b", "c"}
