"""A paper: what connections and pretrained models say that they are from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from rskip.settings.check import Checked

Text = Annotated[str, msgspec.Meta(pattern=r"\S", extra={"expected": "text"})]


@dataclass(frozen=True)
class Paper(Checked):
    """A paper, and where in it; None for what is not known.

    :param part: such as Eq. 4.
    :raises SettingError: a field is neither text nor None, or the title is None.
    """

    title: Text
    authors: Text | None
    url: Text | None
    part: Text | None = None
