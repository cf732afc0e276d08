"""Numbers for Prometheus: what they cover, and which queries they show."""

from __future__ import annotations

from typing import Any

from penstock.sinks.base import QueryStatus
from penstock.streaming.consumer_groups import ConsumerGroups
from penstock.streaming.metrics import MOST_ENDED_UNNAMED, RECENT, Metrics, NodeReport
from penstock.streaming.progress import QueryProgress


def _progress(batch: int, duration_ms: int) -> QueryProgress:
    return QueryProgress("processing_time(0)", batch, 2, 1, duration_ms, "2026-01-01T00:00:00.000Z")


def _started(metrics: Metrics, name: str, *, named: bool = True) -> QueryStatus:
    status = QueryStatus()
    metrics.started(name, named=named, status=status, groups=ConsumerGroups([], note=lambda text: None))
    return status


def _samples(metrics: Metrics) -> dict[tuple[str, str], Any]:
    return {
        (sample.name, sample.labels["query"]): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if "quantile" not in sample.labels
    }


def test_count_and_sum_of_the_durations_cover_the_same_batches() -> None:
    metrics = Metrics()
    _started(metrics, "q")
    batches = RECENT + 500
    for batch in range(batches):
        metrics.progress("q", _progress(batch, 2_000))
    samples = _samples(metrics)
    assert samples["penstock_query_batch_seconds_count", "q"] == batches
    assert samples["penstock_query_batch_seconds_sum", "q"] == 2.0 * batches


def test_counters_go_on_when_a_named_query_is_started_again() -> None:
    metrics = Metrics()
    for _ in range(2):
        status = _started(metrics, "q")
        status.waiting("waiting for a server")
        metrics.progress("q", _progress(0, 10))
        metrics.ended("q")
    samples = _samples(metrics)
    assert samples["penstock_query_batches_total", "q"] == 2
    assert samples["penstock_query_sink_retries_total", "q"] == 2
    assert samples["penstock_query_running", "q"] == 0


def test_queries_without_a_name_are_forgotten_after_their_end() -> None:
    metrics = Metrics()
    _started(metrics, "named")
    metrics.ended("named")
    _started(metrics, "running", named=False)
    for number in range(MOST_ENDED_UNNAMED + 50):
        _started(metrics, f"query-{number}", named=False)
        metrics.ended(f"query-{number}")
    shown = {query for name, query in _samples(metrics) if name == "penstock_query_running"}
    assert len(shown) == MOST_ENDED_UNNAMED + 2
    assert {"named", "running", f"query-{MOST_ENDED_UNNAMED + 49}"} <= shown
    metrics.progress("query-0", _progress(0, 10))  # a report that comes after the end
    assert "query-0" not in {query for _, query in _samples(metrics)}


def test_nodes_of_a_pipeline_have_their_labels_and_go_on_counting() -> None:
    metrics = Metrics()
    labels = {"team": "shop", "cost-center": "7", "node": "not this one"}
    for rows, lag in ((3, 5.0), (4, None)):
        _started(metrics, "p")
        metrics.nodes("p", {"out": NodeReport("print", labels, rows, 1, {"late": 2}, lag)})
        metrics.ended("p")
    metrics.nodes("unknown", {"out": NodeReport("print")})
    nodes = {
        sample.name: (sample.value, dict(sample.labels))
        for family in metrics.collect()
        for sample in family.samples
        if "node" in sample.labels
    }
    own = {"query": "p", "node": "out", "team": "shop", "cost_center": "7"}
    assert nodes == {
        "penstock_node_info": (1, {**own, "type": "print"}),
        "penstock_node_rows_total": (7, own),
        "penstock_node_failed_rows_total": (2, own),
        "penstock_node_counted_rows_total": (4, {**own, "what": "late"}),
        "penstock_node_event_time_lag_seconds": (5.0, own),
    }
