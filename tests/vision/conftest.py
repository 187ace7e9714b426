"""What tests of image models share: every connection that images take."""

from __future__ import annotations

import pytest

from rskip.connections import list_connections
from rskip.connections.spec import works_on

OPTIONS = [
    "0.5xskip",
    "1xskip+ln:branch_scale=2",
    "3rskip+ln",
    "wskip+ln:init=2",
    "sas:gamma=free",
    "sas:norm_term=false",
    "sas:gate=single",
    "sas:alpha_bias=3,beta_bias=-3",
    "highway:gate=shortcut",
    "highway:gate=single",
    "highway:gate=full",
]


def image_specs() -> list[str]:
    """Each registered family that images take with each of its normalisations, and OPTIONS."""
    plain = [
        ("" if family.factor is None else "2") + family.name + ("" if norm is None else f"+{norm}")
        for family in list_connections()
        for norm in family.norms
    ]
    return ["1xskip", "1xskip+ln", *(spec for spec in plain if works_on(spec, 1)), *OPTIONS]


@pytest.fixture(params=image_specs())
def connection(request: pytest.FixtureRequest) -> str:
    """Each connection that images take, as a spec."""
    return request.param
