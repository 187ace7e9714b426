"""The four definitions of the ratio of x to F(x), against closed forms and against autograd."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from rskip.analysis.blocks import residual_blocks
from rskip.analysis.measurement import Measurement
from rskip.analysis.ratios import DEFINITIONS, NotLinear, RatioRecorder, coefficients
from rskip.analysis.tables import text_form
from rskip.connections import Connection, build_connection
from rskip.vision import preact_resnet


def random_connection(spec: str, *, feature_dim: int = -1) -> tuple[Connection, torch.Tensor, torch.Tensor]:
    """A connection of 6 features with random parameters, in float64, and x and f of 2 · 3 positions (· 4 on images)."""
    torch.manual_seed(1)
    connection = build_connection(spec, 6, feature_dim=feature_dim).double()
    for parameter in connection.parameters():
        nn.init.normal_(parameter, mean=0.8, std=0.5)
    shape = (2, 3, 6) if feature_dim == -1 else (2, 6, 3, 4)
    return connection, torch.randn(shape).double(), 2 * torch.randn(shape).double()


def deviation(z: torch.Tensor) -> torch.Tensor:
    return (z.var(dim=-1, correction=0, keepdim=True) + 1e-5).sqrt()


def test_the_coefficient_is_the_papers_ratio():
    connection, x, f = random_connection("2rskip+ln")
    c_x, c_f = coefficients(connection, x, f)
    expected = deviation(x + f) / connection.norms[0].weight + 1  # rSkip Eq. 6
    torch.testing.assert_close(c_x / c_f, expected.expand_as(x), rtol=1e-9, atol=1e-9)

    connection, x, f = random_connection("3xskip+ln:branch_scale=2")
    c_x, c_f = coefficients(connection, x, f)
    torch.testing.assert_close(c_x / c_f, torch.full_like(x, 1.5))
    torch.testing.assert_close(c_x, 3 * connection.norm.weight / deviation(3 * x + 2 * f))

    connection, x, f = random_connection("wskip+rms")
    c_x, c_f = coefficients(connection, x, f)
    torch.testing.assert_close(c_x / c_f, connection.skip_weight.detach().expand_as(x))

    connection, x, f = random_connection("sas")
    c_x, c_f = coefficients(connection, x, f)
    alpha, beta = (gate(torch.cat([x, f], -1)) for gate in (connection.alpha_gate, connection.beta_gate))
    gamma = (1 - alpha) * (1 - beta)
    term = gamma * connection.norm.weight / deviation(x + f)
    torch.testing.assert_close(c_x / c_f, (alpha + term) / (beta + term), check_dtype=False)

    connection, x, f = random_connection("highway", feature_dim=1)
    c_x, c_f = coefficients(connection, x, f)
    t = connection.gate(x.movedim(1, -1)).movedim(-1, 1)
    torch.testing.assert_close(c_x / c_f, (1 - t) / t)


def test_the_statistics_of_a_batch_normalisation_are_held_fixed():
    for training in (True, False):
        connection, x, f = random_connection("3xskip+bn", feature_dim=1)
        norm = connection.train(training).norm
        norm.running_var.fill_(4.0)
        z = (3 * x + f).movedim(1, 0).flatten(1)
        scale = deviation(z).flatten() if training else torch.tensor(4.0 + 1e-5).sqrt()
        c_x, c_f = coefficients(connection, x, f)
        torch.testing.assert_close(c_f, (norm.weight / scale).view(-1, 1, 1).expand_as(x), check_dtype=False)
        torch.testing.assert_close(c_x, 3 * c_f)


def test_gpas_scales_what_its_gradient_passes_on():
    connection, x, f = random_connection("gpas")
    nn.init.ones_(connection.damping)
    kept = torch.full_like(x, 1 - 1 / (1 + math.exp(-1)))
    torch.testing.assert_close(coefficients(connection, x, f), (kept, kept))


@pytest.mark.parametrize("spec", ["orthogonal", "ddl", "ngpt", "laurel"])
def test_connections_that_mix_features_have_only_the_norm(spec):
    linear, _, _ = random_connection("2rskip+ln")
    mixing, x, f = random_connection(spec)
    with pytest.raises(NotLinear, match=f"^{spec} is not linear feature by feature: it has no coefficients"):
        coefficients(mixing, x, f)
    blocks = residual_blocks(nn.ModuleDict({"linear": linear, "mixing": mixing}))
    recorder = RatioRecorder(blocks, examples=2, seed=1)
    with recorder.recording():
        linear(x, f)
        mixing(x, f)
    rows = [{"model": spec, "depth": 1, **row} for row in recorder.rows()]
    conditions = {"examples": 2, "data": "noise", "seed": 1, "batch_norm": None}
    measurement = Measurement(analysis="ratios", conditions=conditions, rows=rows)
    found = {(row["name"], row["definition"]) for row in measurement.rows if row["median"] is not None}
    assert found == {*(("linear", name) for name in DEFINITIONS), ("mixing", "norm")}
    *_, note = text_form(measurement).splitlines()
    assert note.startswith(f"{spec}: coefficient, contribution and scale are empty for blocks whose y is not linear")


def test_a_gate_of_another_type_has_no_coefficients():
    class Own(Connection):
        def combine(self, x, f):
            return x + torch.sigmoid(f) * f

    with pytest.raises(NotLinear):
        coefficients(Own(6), torch.randn(2, 6), torch.randn(2, 6))


def test_a_connection_of_ones_own_and_its_normalisation():
    class Own(Connection):
        def __init__(self, norm: nn.Module) -> None:
            super().__init__(6, feature_dim=1)
            self.norm = norm

        def combine(self, x, f):
            return self.norm(0.5 * x + f)

    x, f = torch.randn(2, 6, 3, 4), torch.randn(2, 6, 3, 4)
    c_x, c_f = coefficients(Own(nn.GroupNorm(1, 6)), x, f)  # one group: over C, H and W, with an affine a channel
    torch.testing.assert_close(c_x / c_f, torch.full_like(x, 0.5))
    scale = ((0.5 * x + f).var((1, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(c_f, (1 / scale).expand_as(x))
    with pytest.raises(ValueError, match="can't be held fixed: use a normalisation"):
        coefficients(Own(nn.GroupNorm(2, 6)), x, f)


def test_rows_are_quartiles_over_positions_features_and_examples():
    torch.manual_seed(1)
    model = preact_resnet(20, "2rskip+ln").eval()
    blocks = residual_blocks(model)[4:5]
    images = torch.randn(3, 3, 32, 32)
    kept = []
    blocks[0].connection.register_forward_hook(lambda _, inputs, y: kept.append(inputs))
    recorder = RatioRecorder(blocks, examples=3, seed=1)
    with torch.no_grad():
        for batch in (images[:2], images[2:]):
            with recorder.recording():
                model(batch)
    x, f = (torch.cat(each) for each in zip(*kept, strict=True))
    c_x, c_f = coefficients(blocks[0].connection, x, f)
    rows = {row["definition"]: row for row in recorder.rows()}
    assert tuple(rows) == DEFINITIONS
    expected = {
        "coefficient": c_x / c_f,
        "norm": x.norm(dim=1) / f.norm(dim=1),
        "contribution": (c_x * x).norm(dim=1) / (c_f * f).norm(dim=1),
        "scale": c_x,
    }
    for name, values in expected.items():
        for level, share in (("lower", 0.25), ("median", 0.5), ("upper", 0.75)):
            assert rows[name][level] == pytest.approx(values.quantile(share).item(), rel=1e-3), (name, level)


def test_more_values_than_are_kept_are_drawn(monkeypatch):
    monkeypatch.setattr("rskip.analysis.ratios.SAMPLE", 1000)
    model = preact_resnet(20, "2rskip+ln").eval()
    blocks = residual_blocks(model)
    medians = []
    for seed in (1, 1, 2):
        recorder = RatioRecorder(blocks, examples=2, seed=seed)
        with torch.no_grad(), recorder.recording():
            torch.manual_seed(3)
            model(torch.randn(2, 3, 32, 32))
        assert {sum(map(len, kept)) for kept in recorder._kept.values()} == {1000, 2 * 64, 2 * 256}
        medians.append([row["median"] for row in recorder.rows()])
    assert medians[0] == medians[1] != medians[2]
    assert medians[0] == pytest.approx(medians[2], rel=0.3)
