"""Ends a text before a stop string."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator


class StopStrings:
    """Yields a text up to the stop string that is completed first, without any part of that string.

    found: whether a stop string ended the text.
    """

    def __init__(self, stop: Collection[str]) -> None:
        self._stop = [each for each in stop if each]
        self.found = False

    def before(self, parts: Iterable[str]) -> Iterator[str]:
        """The text in parts. The end of a part waits for the next one if a stop string may begin in it."""
        held = ""
        for part in parts:
            held += part
            if ends := [(place + len(stop), place) for stop in self._stop if (place := held.find(stop)) >= 0]:
                self.found = True
                if text := held[: min(ends)[1]]:
                    yield text
                return
            sure = len(held) - max((_begun(held, stop) for stop in self._stop), default=0)
            if sure:
                yield held[:sure]
                held = held[sure:]
        if held:
            yield held


def _begun(text: str, stop: str) -> int:
    """Length of the longest suffix of the text that is a prefix of the stop string."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
