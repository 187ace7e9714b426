"""Counts requests, batches and tokens for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from rskip.extras import extra

with extra("serve", what="a server"):
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The server's metrics, in a registry of their own. They contain no text and no address of a client."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "rskip_requests", "Answered requests.", ("route", "method", "status"), registry=registry
        )
        self.latency = Histogram(
            "rskip_request_seconds", "Seconds from a request to its answer.", ("route",),
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.refused = Counter("rskip_refused", "Refused requests.", ("reason",), registry=registry)
        self.abandoned = Counter(
            "rskip_abandoned_batches", "Batches that ended early since nobody waited for them.", registry=registry
        )
        self._batch_items = Histogram(
            "rskip_batch_items", "Sentences per batch.", ("model",), buckets=_SIZES, registry=registry
        )
        self._batch_seconds = Histogram(
            "rskip_batch_seconds", "Seconds per batch.", ("model",), buckets=_SECONDS, registry=registry
        )
        self._source = Counter("rskip_source_tokens", "Source tokens read.", ("model",), registry=registry)
        self._target = Counter("rskip_target_tokens", "Target tokens produced.", ("model",), registry=registry)
        self._waiting = Gauge("rskip_queue_items", "Sentences that wait.", registry=registry)
        self._waiting_tokens = Gauge("rskip_queue_tokens", "Source tokens that wait.", registry=registry)

    def watch(self, waiting: Callable[[], tuple[int, int]]) -> None:
        """Reads the numbers of waiting sentences and tokens whenever the metrics are asked for."""
        self._waiting.set_function(lambda: waiting()[0])
        self._waiting_tokens.set_function(lambda: waiting()[1])

    def computed(self, model: str, *, items: int, tokens: int, produced: int, seconds: float) -> None:
        """Counts a batch."""
        self._batch_items.labels(model).observe(items)
        self._batch_seconds.labels(model).observe(seconds)
        self._source.labels(model).inc(tokens)
        self._target.labels(model).inc(produced)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Counts a request."""
        self.requests.labels(route, method, str(status)).inc()
        self.latency.labels(route).observe(seconds)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self.registry)
