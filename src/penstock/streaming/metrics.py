"""Numbers of a session's queries, for Prometheus."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from penstock.streaming.progress import Progress

RECENT = 1_000
"""The batches over which percentiles are taken."""
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(slots=True)
class _Numbers:
    """What is counted of one query."""

    batches: int = 0
    input_rows: int = 0
    output_rows: int = 0
    late_rows: int = 0
    dropped_records: int = 0
    quarantined_records: int = 0
    retries: Callable[[], int] = lambda: 0
    group_failures: Callable[[], int] = lambda: 0
    running: bool = True
    last: Progress | None = None
    durations: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))


class Metrics:
    """Counts what queries report; Prometheus collects it through `collect`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, _Numbers] = {}
        self._server: Any = None

    def started(
        self, name: str, retries: Callable[[], int], group_failures: Callable[[], int] = lambda: 0
    ) -> None:
        """A query runs; counts of an earlier one of the same name go on."""
        with self._lock:
            numbers = self._queries.setdefault(name, _Numbers())
            numbers.running, numbers.retries, numbers.group_failures = True, retries, group_failures

    def progress(self, name: str, progress: Progress) -> None:
        """A query has done a batch."""
        with self._lock:
            numbers = self._queries[name]
            numbers.batches += 1
            numbers.input_rows += progress.input_rows
            numbers.output_rows += progress.output_rows or 0
            numbers.late_rows += progress.late_rows
            numbers.dropped_records += progress.dropped_records
            numbers.quarantined_records += progress.quarantined_records
            numbers.durations.append(progress.duration_ms)
            numbers.last = progress

    def ended(self, name: str) -> None:
        """A query has ended."""
        with self._lock:
            self._queries[name].running = False

    def collect(self) -> Iterator[Metric]:
        """All numbers, as Prometheus wants them."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

        with self._lock:
            seen = {name: (numbers, sorted(numbers.durations)) for name, numbers in self._queries.items()}
        counters: tuple[tuple[str, str, Callable[[_Numbers], int]], ...] = (
            ("batches", "Batches that are done", lambda one: one.batches),
            ("input_rows", "Rows read", lambda one: one.input_rows),
            ("output_rows", "Rows that the sink took", lambda one: one.output_rows),
            ("late_rows", "Rows that came after the watermark had passed", lambda one: one.late_rows),
            ("dropped_records", "Bad records that were left out", lambda one: one.dropped_records),
            ("quarantined_records", "Bad records that were put aside", lambda one: one.quarantined_records),
            (
                "sink_retries",
                "Attempts after the first, of the sink and of sources that were away",
                lambda one: one.retries(),
            ),
            (
                "group_failures",
                "Failures to tell the consumer group how far the query is",
                lambda one: one.group_failures(),
            ),
        )
        for name, text, read in counters:
            family = CounterMetricFamily(f"penstock_query_{name}", text, labels=["query"])
            for query, (numbers, _) in seen.items():
                family.add_metric([query], read(numbers))
            yield family
        gauges: tuple[tuple[str, str, Callable[[_Numbers], float | None]], ...] = (
            ("running", "1 while the query runs", lambda one: float(one.running)),
            (
                "state_rows",
                "Rows that the query keeps",
                lambda one: float(one.last.state_rows) if one.last else None,
            ),
            (
                "state_bytes",
                "Bytes that the query keeps",
                lambda one: float(one.last.state_bytes) if one.last else None,
            ),
            ("watermark_delay_seconds", "How far the watermark is behind the clock", _delay),
            (
                "lag_records",
                "Records that are there and not read yet",
                lambda one: float(one.last.lag) if one.last and one.last.lag is not None else None,
            ),
        )
        for name, text, look in gauges:
            gauge = GaugeMetricFamily(f"penstock_query_{name}", text, labels=["query"])
            for query, (numbers, _) in seen.items():
                value = look(numbers)
                if value is not None:
                    gauge.add_metric([query], value)
            yield gauge
        lags = GaugeMetricFamily(
            "penstock_query_partition_lag_records",
            "Records of a partition that are there and not read yet",
            labels=["query", "topic", "partition"],
        )
        for query, (numbers, _) in seen.items():
            for source in numbers.last.sources if numbers.last else ():
                for key, lag in source.lag_by_partition.items():
                    topic, _, partition = key.rpartition("-")
                    lags.add_metric([query, topic, partition], lag)
        yield lags
        latency = SummaryMetricFamily(
            "penstock_query_batch_seconds", "How long batches took", labels=["query"]
        )
        for query, (numbers, durations) in seen.items():
            latency.add_metric([query], numbers.batches, sum(durations) / 1000)
            for quantile in QUANTILES if durations else ():
                place = min(len(durations) - 1, int(quantile * len(durations)))
                latency.add_sample(
                    "penstock_query_batch_seconds",
                    {"query": query, "quantile": str(quantile)},
                    durations[place] / 1000,
                )
        yield latency

    def serve(self, port: int, host: str) -> int:
        """Answer on a port until the session ends; 0 takes a free one. Returns the port."""
        from prometheus_client import CollectorRegistry, start_http_server

        if self._server is not None:
            raise ConfigError("metrics are served already", code="METRICS_SERVED")
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            server, thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise ConfigError(
                f"port {port} of {host} cannot be used: {error.strerror}",
                code="METRICS_PORT",
                hint="choose another port; 0 takes a free one",
            ) from error
        self._server = (server, thread)
        return int(server.server_port)

    def close(self) -> None:
        """End the answers."""
        if self._server is not None:
            server, thread = self._server
            self._server = None
            server.shutdown()
            server.server_close()
            thread.join(5)


def _delay(numbers: _Numbers) -> float | None:
    if numbers.last is None or numbers.last.watermark is None:
        return None
    watermark = datetime.fromisoformat(numbers.last.watermark.replace("Z", "+00:00"))
    return (datetime.now(UTC) - watermark).total_seconds() if watermark.year > 1970 else None
