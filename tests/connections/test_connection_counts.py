"""How many parameters each connection has, by formula and in the papers' models."""

from __future__ import annotations

import pytest
import torch

from rskip.connections import build_connection

COUNTS = {
    "1xskip": lambda h: 0,
    "2xskip": lambda h: 0,
    "1xskip+ln": lambda h: 2 * h,
    "2xskip+ln:branch_scale=3": lambda h: 2 * h,
    "2xskip+bn": lambda h: 2 * h,
    "2xskip+rms": lambda h: h,
    "1rskip+ln": lambda h: 2 * h,
    "2rskip+ln": lambda h: 4 * h,
    "5rskip+ln": lambda h: 10 * h,
    "3rskip+rms": lambda h: 3 * h,
    "3rskip+bn": lambda h: 6 * h,
    "wskip+ln": lambda h: 3 * h,
    "wskip+rms": lambda h: 2 * h,
    "sas": lambda h: 2 * (2 * h**2 + h + h + 1) + 2 * h,
    "sas+bn": lambda h: 2 * (2 * h**2 + h + h + 1) + 2 * h,
    "sas+rms": lambda h: 2 * (2 * h**2 + h + h + 1) + h,
    "sas:gamma=free": lambda h: 3 * (2 * h**2 + h + h + 1) + 2 * h,
    "sas:norm_term=false": lambda h: 2 * (2 * h**2 + h + h + 1),
    "sas:gate=single": lambda h: 2 * (2 * h + 1) + 2 * h,
    "sas:gamma=free,gate=single": lambda h: 3 * (2 * h + 1) + 2 * h,
    "highway": lambda h: h**2 + h,
    "highway:gate=shortcut": lambda h: h**2 + h,
    "highway:gate=single": lambda h: 2 * h + 1,
    "highway:gate=full": lambda h: 2 * h**2 + 2 * h + 1,
    "prenorm+ln": lambda h: 2 * h,
    "prenorm+rms": lambda h: h,
}


def count(spec: str, features: int) -> int:
    with torch.device("meta"):
        connection = build_connection(spec, features, feature_dim=-1 if "prenorm" in spec else 1)
    return sum(parameter.numel() for parameter in connection.parameters())


@pytest.mark.parametrize("features", [1, 7, 64, 512])
@pytest.mark.parametrize("spec", COUNTS)
def test_formula(spec, features):
    assert count(spec, features) == COUNTS[spec](features)


@pytest.mark.parametrize(("features", "added"), [(512, 30_720), (1024, 61_440)])
def test_2rskip_adds_to_the_transformers_30_connections(features, added):
    connections = 6 * 2 + 6 * 3
    assert connections * (count("2rskip+ln", features) - count("1xskip+ln", features)) == added
    assert connections * count("1xskip+ln", features) == added


def test_full_sas_adds_more_than_half_of_transformer_base():
    assert 30 * (count("sas", 512) - count("1xskip+ln", 512)) == 31_518_780


RESNETS = {  # depth: blocks, and what +ln, 2rskip+ln, wskip+ln and sas add to 1xskip
    20: (9, 672, 1_344, 1_008, 66_546),
    32: (15, 1_120, 2_240, 1_680, 110_910),
    44: (21, 1_568, 3_136, 2_352, 155_274),
    56: (27, 2_016, 4_032, 3_024, 199_638),
    110: (54, 4_032, 8_064, 6_048, 399_276),
}


@pytest.mark.parametrize("depth", RESNETS)
def test_what_each_connection_adds_to_a_resnet(depth):
    blocks, *added = RESNETS[depth]
    widths = [16, 32, 64] * (blocks // 3)
    assert len(widths) == blocks == (depth - 2) // 2
    specs = ("1xskip+ln", "2rskip+ln", "wskip+ln", "sas")
    assert [sum(count(spec, width) for width in widths) for spec in specs] == added
