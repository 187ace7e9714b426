"""What tests of image models share: every connection that images take."""

from __future__ import annotations

import pytest

from rskip.connections import check_connection, list_connections
from rskip.settings.errors import SettingError

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
    return ["1xskip", "1xskip+ln", *filter(_takes_images, plain), *OPTIONS]


def _takes_images(spec: str) -> bool:
    try:
        check_connection(spec, 1)
    except SettingError:
        return False
    return True


@pytest.fixture(params=image_specs())
def connection(request: pytest.FixtureRequest) -> str:
    """Each connection that images take, as a spec."""
    return request.param
