"""What is measured of which models: connections at initialisation, trained ones, a task's own."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rskip
from rskip.analysis import analyses
from rskip.analysis.analyses import _label, find_subjects, gates, gradients, ratios, signals
from rskip.analysis.blocks import residual_blocks
from rskip.analysis.registry import ANALYSES
from rskip.checkpoint import Checkpoint, read_checkpoint, write_checkpoint, write_model
from rskip.connections import build_connection
from rskip.settings.errors import SettingError
from rskip.tasks import Task, Work, register_task, tasks
from rskip.tasks.subject import Batch, Conditions, Subject
from rskip.vision import preact_resnet

SAS, RESNET = "transformer_tiny_sas.multi30k.en-de", "preact_resnet20_2rskip_ln.cifar10"


def test_every_analysis_has_a_function():
    missing = [name for name in ANALYSES if not callable(getattr(analyses, name, None))]
    assert not missing, f"rskip/analysis/registry.py lists {missing}: write a function of this name in analyses.py"


def test_a_runs_label_begins_with_its_variant(tmp_path):
    run = tmp_path / "runs/mine/plain/1"
    run.mkdir(parents=True)
    labels = {run: "plain/1", run / "averaged.pt": "plain/1/averaged.pt", tmp_path / "saved/last.pt": "saved/last.pt"}
    assert {path: _label(path) for path in labels} == labels


def test_connections_at_initialisation_by_depth(few_images):
    options = {"depths": [8, 14], "examples": 4, "batch_size": 3}
    found = signals(["1XSKIP", "sas"], **options)
    assert [(row["model"], row["depth"]) for row in found.rows] == [
        *[("1xskip", 8)] * 3, *[("1xskip", 14)] * 6, *[("sas", 8)] * 3, *[("sas", 14)] * 6
    ]  # fmt: skip
    assert list(found.rows[4]) == ["model", "depth", "block", "stage", "name", "sublayer", "x_rms", "f_rms", "y_rms"]
    assert (found.rows[5]["stage"], found.rows[5]["name"]) == ("layer2", "layer2.0")
    conditions = {"examples": 4, "data": "cifar10 train", "seed": 1, "batch_size": 3, "batch_norm": "batch"}
    assert found.conditions.items() >= conditions.items()
    assert signals(["1xskip", "sas"], **options).rows == found.rows
    one, eight = signals("1xskip", **{**options, "depths": 8}), signals(["1xskip"], **{**options, "depths": [8]})
    assert one.rows == eight.rows
    assert signals(["1xskip", "sas"], **options, seed=2).rows != found.rows
    assert signals(["1xskip", "sas"], **options, batch_norm="evaluation").rows != found.rows
    activated = signals(["1xskip", "sas"], **options, shortcut_input="activated")
    assert activated.conditions["shortcut_input"] == "activated"
    changed = [row["block"] for row, other in zip(activated.rows[:3], found.rows, strict=False) if row != other]
    assert changed == [2, 3]  # where a stage begins


def test_the_gradient_is_of_each_examples_own_loss(few_images):
    options = {"depths": [8], "examples": 4, "batch_norm": "evaluation"}
    (subject,) = find_subjects(["2rskip+ln"], Conditions(examples=4), depths=[8])
    expected = torch.zeros(3)
    for batch in subject.batches(Conditions(examples=4, batch_size=1)):
        outputs = []
        handles = [
            block.connection.register_forward_hook(lambda _, __, y, kept=outputs: kept.append(y))
            for block in residual_blocks(subject.model)
        ]
        loss = batch.losses()
        for handle in handles:
            handle.remove()
        assert loss.shape == (1,)
        expected += torch.stack([gradient.norm() for gradient in torch.autograd.grad(loss.sum(), outputs)]) / 4
    for size in (1, 3):
        rows = gradients(["2rskip+ln"], **options, batch_size=size).rows
        assert [row["gradient"] for row in rows] == pytest.approx(expected.tolist(), rel=1e-4)


def test_a_models_state_is_as_before(few_images):
    model = preact_resnet(8, "2xskip+bn").train()
    nn.init.normal_(model.bn.running_mean)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for analysis in (signals, gradients, ratios):
        (found,) = find_subjects(["2xskip+bn"], Conditions(), depths=[8])
        subject = Subject(label="own", depth=8, model=model, trained=False, data="noise",
                          batches=lambda conditions, model=model: iter([Batch(lambda: F.cross_entropy(
                              model(torch.randn(4, 3, 32, 32)), torch.arange(4), reduction="none"))]))  # fmt: skip
        assert analysis([subject, found], examples=4).conditions["batch_norm"] == "batch"
    assert model.training and model.layer1[0].bn1.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_trained_image_models_by_name_and_path(few_images, root, tmp_path):
    folder = root / "checkpoints/cifar10_resnet20/preact20_2rskip_ln"
    found = ratios([RESNET, folder, folder / "model.safetensors"], examples=3)
    assert found.conditions["batch_norm"] == "evaluation"
    by_model = [found.rows[start : start + 36] for start in (0, 36, 72)]
    assert [{row["model"] for row in rows} for rows in by_model] == [
        {RESNET}, {folder.name}, {f"{folder.name}/model.safetensors"}
    ]  # fmt: skip
    plain = [[{**row, "model": ""} for row in rows] for rows in by_model]
    assert plain[0] == plain[1] == plain[2]
    assert {row["depth"] for row in found.rows} == {20}
    both = signals(["1xskip", RESNET], examples=3)
    assert both.conditions["batch_norm"] == "batch and evaluation"

    (subject,) = find_subjects([RESNET], Conditions())
    about = {"task": "vision", "model": subject.model.config, "dataset": "cifar10", "classes": list("abcdefghij")}
    write_model(tmp_path / "run", Checkpoint(model=subject.model.state_dict(), config=about))
    (tmp_path / "run" / "checkpoint.pt").write_bytes(b"not looked at")
    assert [{**row, "model": ""} for row in ratios([tmp_path / "run"], examples=3).rows] == plain[0]


def test_trained_translation_models(few_pairs, root, tmp_path):
    found = gates([SAS], examples=4, data=str(few_pairs), split="valid")
    assert [(row["name"], row["gate"]) for row in found.rows[:4]] == [
        ("encoder.layers.0.self_attn", "alpha"), ("encoder.layers.0.self_attn", "beta"),
        ("encoder.layers.0.self_attn", "gamma"), ("encoder.layers.0.ffn", "alpha"),
    ]  # fmt: skip
    assert len(found.rows) == 60 and found.conditions["data"] == "multi30k-en-de valid"
    for row in found.rows:
        shares = [row[f"h{number:02}"] for number in range(20)]
        assert sum(shares) == pytest.approx(1, abs=1e-4)
        middles = sum(share * (number + 0.5) / 20 for number, share in enumerate(shares))
        assert row["mean"] == pytest.approx(middles, abs=0.026)
    checkpoint = read_checkpoint(root / "checkpoints/multi30k_en_de/sas/model.safetensors")
    write_checkpoint(tmp_path / "fairseq.pt", checkpoint)
    again = gates([tmp_path / "fairseq.pt"], examples=4, data=str(few_pairs), split="valid")
    assert again.rows == [{**row, "model": f"{tmp_path.name}/fairseq.pt"} for row in found.rows]


def test_sentences_are_padded_and_their_losses_are_means(few_pairs):
    def rows(analysis, size):
        return analysis(["sas"], task="translation", depths=[2], examples=4, data=str(few_pairs), batch_size=size).rows

    for analysis in (signals, gradients, gates, ratios):
        one, four = rows(analysis, 1), rows(analysis, 4)
        assert len(one) == len(four)
        for a, b in zip(one, four, strict=True):
            same = {key: pytest.approx(value, rel=1e-3, abs=1e-6) for key, value in a.items() if type(value) is float}
            assert a | same == b
    assert {row["name"] for row in rows(signals, 4)} >= {"encoder.layers.1.ffn", "decoder.layers.1.encoder_attn"}

    conditions = Conditions(examples=1, data=str(few_pairs), seed=3)
    (subject,) = find_subjects([SAS], conditions)
    (batch,) = subject.batches(conditions)
    translator = rskip.load(SAS).in_torch()
    (row,) = conditions.choose(4, "them")
    source = torch.tensor([[4, 5, 6, 2], [7, 2], [8, 9, 10, 11, 12, 2], [13, 14, 2]][row])
    target = torch.tensor([[15, 2], [16, 17, 18, 19, 2], [20, 21, 22, 2], [23, 24, 2]][row])
    model = getattr(translator.model, "model", translator.model)  # of a CpuTransformer
    logits = model(source[None], torch.tensor([[2, *target[:-1]]]))
    torch.testing.assert_close(batch.losses().detach(), F.cross_entropy(logits[0], target)[None], rtol=1e-4, atol=1e-4)


class Own(nn.Module):
    """y = 2x + F(x) twice, on 3 features."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        self.connections = nn.ModuleList(build_connection("2xskip", 3) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for branch, connection in zip(self.maps, self.connections, strict=True):
            x = connection(x, branch(x))
        return x


def own_subject(model: nn.Module) -> Subject:
    def batches(conditions: Conditions):
        chosen = torch.tensor(conditions.choose(6, "the points"))
        for rows in chosen.split(conditions.batch_size):
            yield Batch(partial(lambda x: model(x).square().sum(dim=(1, 2)), torch.eye(6)[rows].view(-1, 2, 3)))

    return Subject(label="own", depth=2, model=model, trained=False, data="points", batches=batches)


def test_a_mean_loss_is_refused_because_its_gradients_are_smaller():
    batches = iter([Batch(lambda: torch.ones(6).mean())])
    subject = replace(own_subject(Own()), batches=lambda conditions: batches)
    with pytest.raises(ValueError, match=r"losses returned a tensor of shape \(\): expected one per example, \(B\)"):
        gradients([subject])


def test_a_task_of_ones_own_offers_its_models(monkeypatch, tmp_path):
    def subject(model, *, depth, conditions):
        if isinstance(model, Path) and model.suffix != ".points":
            raise ValueError("no points")
        return own_subject(Own())

    monkeypatch.setattr("rskip.tasks.task._tasks", tasks())
    work = Work(settings=None, train=None, score=None, subject=subject)
    register_task(Task(name="points", columns=(), load=None, work=lambda: work))
    (tmp_path / "a.points").touch()
    assert {row["model"] for row in ratios(["2xskip"], task="points", examples=5).rows} == {"own"}
    found = ratios([tmp_path / "a.points"], examples=5, batch_size=2)
    assert {row["model"] for row in found.rows} == {f"{tmp_path.name}/a.points"}
    assert {row["median"] for row in found.rows if row["definition"] == "coefficient"} == {2.0}
    assert found.conditions["batch_norm"] is None


def test_models_without_gradients_are_refused():
    class Cut(Own):
        def forward(self, x):
            with torch.no_grad():
                x = self.maps[0](x)
            return self.connections[1](x, self.maps[1](x))

    frozen = Own()
    frozen.maps[1].weight.requires_grad_(False)
    for model, part in ((frozen, "no gradient for maps.1.weight"), (Cut(), "no gradient for maps.0.weight")):
        with pytest.raises(ValueError, match=part):
            gradients([own_subject(model)], examples=2)
    with pytest.raises(ValueError, match="own has no gates"):
        gates([own_subject(Own())], examples=2)


def test_what_is_not_finite_is_absent():
    model = Own()
    nn.init.zeros_(model.maps[0].weight)
    nn.init.zeros_(model.maps[0].bias)
    first, second = (row for row in ratios([own_subject(model)], examples=2).rows if row["definition"] == "norm")
    assert first["median"] is None and second["median"] > 0


def test_models_are_looked_up_as_connections_paths_and_names(few_images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for model, expected in (
        ("2rskp+ln", "did you mean 2rskip+ln"),
        ("preact_resnet20_2rskip.cifar10", f"did you mean {RESNET}"),
        ("runs/none", "a connection, a path"),
        ("sas:gate=fulll", "gate to be"),
        ("2rskip", "expected a normalisation, ln"),
    ):
        with pytest.raises(SettingError) as error:
            signals([model])
        assert expected in str(error.value).replace("'", "") and len(str(error.value)) <= 160, str(error.value)
    of_text = {"settings": {}, "optimiser": {}, "iteration": 3, "config": {"task": "language_modeling"}}
    torch.save(of_text, "checkpoint.pt")
    with pytest.raises(ValueError, match="^checkpoint.pt was written by `rskip lm train`: give the folder"):
        signals(["checkpoint.pt"])
    with pytest.raises(SettingError, match="for feature maps"):
        signals(["hyper"], depths=[14])
    with pytest.raises(SettingError, match="contain the model 1xskip, depth 8, twice"):
        signals(["1xskip", "1xSkip"], depths=[8])
    with pytest.raises(SettingError, match="unknown key example; did you mean examples"):
        signals(["1xskip"], example=3)
