"""Reads forms of the type multipart/form-data, in memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from rskip.machine.extras import extra

with extra("serve", what="a server"):
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser, parse_options_header

logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # the client gets the error

MULTIPART = "multipart/form-data"
MOST_FIELDS = 100


@dataclass
class Part:
    """One field of a form. is_file: it has a file name, which is not kept."""

    name: str
    is_file: bool
    content: bytearray = field(default_factory=bytearray)

    @property
    def text(self) -> str:
        """:raises ValueError: it is a file, or not in UTF-8."""
        if self.is_file:
            raise ValueError(f"{self.name} is a file: expected text")
        return self.content.decode("utf-8")


def parse_multipart(content_type: str, body: bytes) -> list[Part]:
    """The fields of a form.

    :param content_type: the whole header, with its boundary.
    :raises ValueError: the form is damaged or has too many fields.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise ValueError("the content type names no boundary")
    reader = _Reader()
    parser = MultipartParser(boundary, reader.callbacks())  # type: ignore[arg-type]
    try:
        parser.write(body)
    except FormParserError as error:
        raise ValueError(str(error)) from None
    if not reader.ended:
        raise ValueError("the last boundary is missing")
    return reader.parts


class _Reader:
    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.ended = False
        self._name, self._value, self._disposition = b"", b"", b""

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin, "on_part_data": self._add_data, "on_end": self._end,
            "on_header_field": self._add_name, "on_header_value": self._add_value, "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
        }  # fmt: skip

    def _begin(self) -> None:
        if len(self.parts) == MOST_FIELDS:
            raise FormParserError(f"expected at most {MOST_FIELDS} fields")
        self._disposition = b""

    def _add_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name, self._value = b"", b""

    def _end_headers(self) -> None:
        options = parse_options_header(self._disposition)[1]
        if b"name" not in options:
            raise FormParserError("a field has no name")
        self.parts.append(Part(options[b"name"].decode("utf-8", "replace"), b"filename" in options))

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self.parts[-1].content += data[start:end]

    def _end(self) -> None:
        self.ended = True
