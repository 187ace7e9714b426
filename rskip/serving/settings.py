"""Defines the settings of the server. The module imports no web framework, since they define command-line flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from rskip.settings.check import Checked
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count

Seconds = Annotated[float, Meta(gt=0, le=86_400, extra={"expected": "a number of seconds, above 0"})]


@dataclass(frozen=True, kw_only=True)
class ServerSettings(Checked):
    """Settings of the server's batches, queue, limits and time-outs.

    :raises SettingError: a value is not possible.
    """

    batch_tokens: Annotated[Count, Meta(description="maximum source tokens per batch")] = 4096
    batch_wait: Annotated[
        float,
        Meta(ge=0, le=10_000, description="milliseconds that a request waits for others, to share a batch with them"),
    ] = 0.0
    max_queue: Annotated[
        Count, Meta(description="maximum sentences that wait; the server refuses further requests with status 429")
    ] = 2000
    max_queue_tokens: Annotated[Count, Meta(description="maximum source tokens that wait; see --max-queue")] = 1_000_000
    max_sentences: Annotated[Count, Meta(description="maximum sentences per request")] = 1000
    max_characters: Annotated[Count, Meta(description="maximum characters per request")] = 100_000
    max_beam: Annotated[
        Annotated[int, Meta(ge=1, le=1000)], Meta(description="maximum beam that a request may ask for")
    ] = 16
    max_body: Annotated[Count, Meta(description="maximum bytes of a request's body")] = 10_000_000
    max_bodies: Annotated[Count, Meta(description="maximum bytes of all requests' bodies at a time")] = 200_000_000
    max_connections: Annotated[
        Count, Meta(description="maximum number of open connections; requests of further ones fail with status 503")
    ] = 1000
    timeout: Annotated[
        Seconds, Meta(description="seconds until an unanswered request fails with status 504 and its search ends")
    ] = 60.0
    read_timeout: Annotated[
        Seconds, Meta(description="seconds within which a client must send a request's header, and then its body")
    ] = 20.0
    write_timeout: Annotated[
        Seconds,
        Meta(description="seconds within which a client must receive a complete answer"),
    ] = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_sentences > self.max_queue:
            expected = f"at least max_sentences, {self.max_sentences:,}"
            raise SettingError.of_value("max_queue", self.max_queue, expected, advice="set both")
