"""Numbers of a session's queries, for Prometheus."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from penstock.streaming.progress import QueryProgress

RECENT = 1_000
"""The batches over which percentiles are taken."""
QUANTILES = (0.5, 0.95, 0.99)
MOST_ENDED = 1_000
MOST_ENDED_UNNAMED = 100
"""How many queries that have ended are still shown: the newest, of those with and of those without a name."""


class Retries(Protocol):
    """Counts attempts after the first."""

    @property
    def retries(self) -> int:
        """How many there were."""


class Failures(Protocol):
    """Counts failures that do not end a query."""

    @property
    def failures(self) -> int:
        """How many there were."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What an epoch did at a node of a pipeline."""

    type: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """Those that the user gave the node."""
    rows: int = 0
    """Rows that it took, if it is a sink."""
    failed: int = 0
    """Rows that it could not take."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What it counted itself, by names."""
    lag_seconds: float | None = None
    """How far the newest row was behind the clock; None when nobody knows."""

    def behind(self, before: NodeReport) -> NodeReport:
        """What this epoch and those before it did together."""
        counts = {
            name: before.counts.get(name, 0) + self.counts.get(name, 0)
            for name in {**before.counts, **self.counts}
        }
        lag = before.lag_seconds if self.lag_seconds is None else self.lag_seconds
        return replace(
            self,
            rows=before.rows + self.rows,
            failed=before.failed + self.failed,
            counts=counts,
            lag_seconds=lag,
        )


@dataclass(frozen=True, slots=True)
class _Zero:
    retries: int = 0
    failures: int = 0


_ZERO = _Zero()


@dataclass(slots=True)
class _Numbers:
    """What is counted of one query; counters go on when a query of the same name is started again."""

    named: bool
    running: bool = True
    batches: int = 0
    input_rows: int = 0
    output_rows: int = 0
    late_rows: int = 0
    dropped_records: int = 0
    quarantined_records: int = 0
    duration_ms: int = 0
    retries: int = 0
    group_failures: int = 0
    last: QueryProgress | None = None
    recent_ms: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))
    status: Retries = _ZERO
    groups: Failures = _ZERO
    nodes: Mapping[str, NodeReport] = field(default_factory=dict)
    """Of a pipeline: what all epochs together did at its nodes."""

    def add(self, progress: QueryProgress) -> None:
        self.batches += 1
        self.input_rows += progress.input_rows
        self.output_rows += progress.output_rows or 0
        self.late_rows += progress.late_rows
        self.dropped_records += progress.dropped_records
        self.quarantined_records += progress.quarantined_records
        self.duration_ms += progress.duration_ms
        self.recent_ms.append(progress.duration_ms)
        self.last = progress

    def now(self) -> _Numbers:
        """Return a copy that does not change, with what the running query counts itself."""
        return replace(
            self,
            retries=self.retries + self.status.retries,
            group_failures=self.group_failures + self.groups.failures,
            recent_ms=self.recent_ms.copy(),
            status=_ZERO,
            groups=_ZERO,
        )


Family = tuple[str, str, Callable[[_Numbers], float | None]]
Snapshot = dict[str, _Numbers]

COUNTERS: tuple[Family, ...] = (
    ("batches", "Batches that are done", lambda numbers: numbers.batches),
    ("input_rows", "Rows read", lambda numbers: numbers.input_rows),
    ("output_rows", "Rows that the sink took", lambda numbers: numbers.output_rows),
    ("late_rows", "Rows that came after the watermark had passed", lambda numbers: numbers.late_rows),
    ("dropped_records", "Bad records that were left out", lambda numbers: numbers.dropped_records),
    (
        "quarantined_records",
        "Bad records that went to the quarantine",
        lambda numbers: numbers.quarantined_records,
    ),
    (
        "sink_retries",
        "Attempts after the first, of the sink and of sources that were away",
        lambda numbers: numbers.retries,
    ),
    (
        "group_failures",
        "Failures to commit offsets to the consumer group",
        lambda numbers: numbers.group_failures,
    ),
)
GAUGES: tuple[Family, ...] = (
    ("running", "1 while the query runs", lambda numbers: float(numbers.running)),
    (
        "state_rows",
        "Rows that the query keeps",
        lambda numbers: numbers.last.state_rows if numbers.last else None,
    ),
    (
        "state_bytes",
        "Bytes that the query keeps",
        lambda numbers: numbers.last.state_bytes if numbers.last else None,
    ),
    (
        "watermark_delay_seconds",
        "How far the watermark is behind the clock",
        lambda numbers: _delay(numbers.last),
    ),
    (
        "lag_records",
        "Records that are there and not read yet",
        lambda numbers: numbers.last.lag if numbers.last else None,
    ),
)


class Metrics:
    """Counts what queries report; Prometheus collects it through `collect`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, _Numbers] = {}
        self._server: Any = None

    def started(self, name: str, *, named: bool, status: Retries, groups: Failures) -> None:
        """A query runs; counts of an earlier one of the same name go on."""
        with self._lock:
            numbers = self._queries.setdefault(name, _Numbers(named))
            numbers.running, numbers.status, numbers.groups = True, status, groups

    def progress(self, name: str, progress: QueryProgress) -> None:
        """A query has done a batch."""
        with self._lock:
            if name in self._queries:
                self._queries[name].add(progress)

    def nodes(self, name: str, epoch: Mapping[str, NodeReport]) -> None:
        """A query of a pipeline has written an epoch."""
        with self._lock:
            if name in self._queries:
                numbers = self._queries[name]
                before = numbers.nodes
                numbers.nodes = {
                    node: report.behind(before[node]) if node in before else report
                    for node, report in epoch.items()
                }

    def ended(self, name: str) -> None:
        """A query has ended; of those that have, only the newest stay."""
        with self._lock:
            self._queries[name] = replace(self._queries.pop(name).now(), running=False)
            self._forget(named=True, most=MOST_ENDED)
            self._forget(named=False, most=MOST_ENDED_UNNAMED)

    def collect(self) -> Iterator[Metric]:
        """Return all numbers, as Prometheus wants them."""
        with self._lock:
            queries = {name: numbers.now() for name, numbers in self._queries.items()}
        families = [_partition_lags(queries), _durations(queries), *_nodes(queries)]
        return iter([*_counters(queries), *_gauges(queries), *families])

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

    def _forget(self, *, named: bool, most: int) -> None:
        """Forget the queries that ended first, with their labels."""
        ended = [
            name for name, numbers in self._queries.items() if not numbers.running and numbers.named is named
        ]
        for name in ended[: max(0, len(ended) - most)]:
            del self._queries[name]


def _counters(queries: Snapshot) -> Iterator[Metric]:
    from prometheus_client.metrics_core import CounterMetricFamily

    for name, text, value in COUNTERS:
        family = CounterMetricFamily(f"penstock_query_{name}", text, labels=["query"])
        for query, numbers in queries.items():
            family.add_metric([query], value(numbers) or 0)
        yield family


def _gauges(queries: Snapshot) -> Iterator[Metric]:
    from prometheus_client.metrics_core import GaugeMetricFamily

    for name, text, value in GAUGES:
        family = GaugeMetricFamily(f"penstock_query_{name}", text, labels=["query"])
        for query, numbers in queries.items():
            number = value(numbers)
            if number is not None:
                family.add_metric([query], number)
        yield family


def _partition_lags(queries: Snapshot) -> Metric:
    from prometheus_client.metrics_core import GaugeMetricFamily

    family = GaugeMetricFamily(
        "penstock_query_partition_lag_records",
        "Records of a partition that are there and not read yet",
        labels=["query", "topic", "partition"],
    )
    for query, numbers in queries.items():
        for source in numbers.last.sources if numbers.last else ():
            for key, lag in source.lag_by_partition.items():
                topic, _, partition = key.rpartition("-")
                family.add_metric([query, topic, partition], lag)
    return family


def _durations(queries: Snapshot) -> Metric:
    """Count and sum cover all batches of a query, the percentiles its last ones."""
    from prometheus_client.metrics_core import SummaryMetricFamily

    name = "penstock_query_batch_seconds"
    family = SummaryMetricFamily(name, "How long batches took", labels=["query"])
    for query, numbers in queries.items():
        family.add_metric([query], numbers.batches, numbers.duration_ms / 1000)
        for quantile, milliseconds in _percentiles(sorted(numbers.recent_ms)):
            family.add_sample(name, {"query": query, "quantile": str(quantile)}, milliseconds / 1000)
    return family


def _nodes(queries: Snapshot) -> Iterator[Metric]:
    """The nodes of pipelines, with the labels that the user gave them."""
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    info = GaugeMetricFamily("penstock_node_info", "1, with what a node is")
    rows = CounterMetricFamily("penstock_node_rows", "Rows that a sink took")
    failed = CounterMetricFamily("penstock_node_failed_rows", "Rows that a node could not take")
    counted = CounterMetricFamily(
        "penstock_node_counted_rows", "Rows that a node counted, such as those that fail an expectation"
    )
    lag = GaugeMetricFamily(
        "penstock_node_event_time_lag_seconds",
        "How far the newest row was behind the clock when it was written",
    )
    for query, numbers in queries.items():
        for node, report in numbers.nodes.items():
            own = {_label(name): value for name, value in report.labels.items()}
            labels = {**own, "query": query, "node": node}
            info.add_sample(info.name, {**labels, "type": report.type}, 1)
            rows.add_sample(f"{rows.name}_total", labels, report.rows)
            failed.add_sample(f"{failed.name}_total", labels, report.failed)
            for name, count in report.counts.items():
                counted.add_sample(f"{counted.name}_total", {**labels, "what": name}, count)
            if report.lag_seconds is not None:
                lag.add_sample(lag.name, labels, report.lag_seconds)
    return iter([info, rows, failed, counted, lag])


def _label(name: str) -> str:
    """A name as that of a label of Prometheus, which has letters, digits and `_`.

    >>> _label("cost-center"), _label("2nd")
    ('cost_center', '_2nd')
    """
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{plain}" if not plain or plain[0].isdigit() else plain


def _percentiles(durations: list[int]) -> Iterable[tuple[float, int]]:
    """Return the percentiles of sorted durations; none when there are none."""
    last = len(durations) - 1
    return [(part, durations[min(last, int(part * len(durations)))]) for part in QUANTILES if durations]


def _delay(last: QueryProgress | None) -> float | None:
    if last is None or last.watermark is None:
        return None
    watermark = datetime.fromisoformat(last.watermark.replace("Z", "+00:00"))
    return (datetime.now(UTC) - watermark).total_seconds() if watermark.year > 1970 else None
