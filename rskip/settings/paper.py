"""`Paper`: the source of a connection or a pretrained model.

It checks its fields without msgspec, since `rskip.connections` needs only PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from rskip.settings.errors import SettingError


@dataclass(frozen=True)
class Paper:
    """A paper and a part of it. Unknown fields are None.

    :param part: the part, such as Eq. 4.
    :raises SettingError: a field is neither text nor None, or the title is None.
    """

    title: str
    authors: str | None
    url: str | None
    part: str | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value, required = getattr(self, field.name), field.name == "title"
            if not (isinstance(value, str) and value.strip()) and (required or value is not None):
                raise SettingError.of_value(field.name, value, "text" if required else "text, or null")
