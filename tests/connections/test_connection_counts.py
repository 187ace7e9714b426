"""How many parameters each connection has, by formula; tests of the models have the papers' numbers."""

from __future__ import annotations

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


def test_formula():
    for spec, formula in COUNTS.items():
        for features in (1, 7, 64, 512):
            assert count(spec, features) == formula(features), (spec, features)
