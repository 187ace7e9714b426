"""What tests of image models share: random images, and every connection that images take."""

from __future__ import annotations

import pytest
import torch

from rskip.connections import list_connections, works_on
from rskip.vision.data import ImageSet

OPTIONS = [
    "0.5xskip", "1xskip+ln:branch_scale=2", "3rskip+ln", "wskip+ln:init=2", "sas:gamma=free", "sas:norm_term=false",
    "sas:gate=single", "sas:alpha_bias=3,beta_bias=-3", "highway:gate=shortcut", "highway:gate=single",
    "highway:gate=full",
]  # fmt: skip


def noise(count: int) -> ImageSet:
    """Random images of random classes."""
    generator = torch.Generator().manual_seed(count)
    images = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return ImageSet(images, torch.randint(10, (count,), generator=generator), tuple("abcdefghij"))


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
