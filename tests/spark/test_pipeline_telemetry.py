"""What nodes of a pipeline show of themselves: labels, counts and how far their rows are behind the clock."""

from __future__ import annotations

import io
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import penstock as ps
from penstock.cli.live import LiveTable
from penstock.errors import ConfigError
from penstock.pipeline.group import NodeEpoch
from penstock.pipeline.run import PipelineRun, plan_pipeline
from pipeline_text import check_text

PIPELINE = """
name: telemetry
sources:
  orders:
    type: file
    path: "{folder}/in"
    format: json
    schema: {{id: bigint, at: timestamp, name: string}}
    telemetry: {{event_time: {{column: at}}, labels: {{team: shop, cost-center: 7}}}}
transforms:
  counted: {{type: sql, sql: "SELECT id, unix_millis(at) AS ms FROM orders", telemetry: {{event_time: {{column: ms, unit: ms}}}}}}
  checked: {{type: expect, from: orders, expectations: {{positive: {{condition: id > 1, action: warn}}}}}}
sinks:
  out: {{type: memory, from: counted, telemetry: {{event_time: {{column: {column}, unit: {unit}}}, labels: {{team: web}}}}}}
  again: {{type: memory, from: counted}}
  rest: {{type: memory, from: checked}}
"""


def _text(folder: Path, *, column: str = "ms", unit: str = "ms") -> str:
    return PIPELINE.format(folder=folder, column=column, unit=unit)


def test_labels_and_lags_of_nodes(session: ps.Session, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    newest = datetime(2026, 1, 2, tzinfo=UTC)
    times = [datetime(2026, 1, 1, tzinfo=UTC), newest]
    rows = [{"id": number, "at": at.isoformat()} for number, at in enumerate(times, 1)]
    (tmp_path / "in" / "1.json").write_text("\n".join(json.dumps(row) for row in rows))
    spec = check_text(_text(tmp_path), "p.yaml").spec
    epochs: list[NodeEpoch] = []
    table = LiveTable(spec, io.StringIO())

    def report(group: str, epoch: NodeEpoch) -> None:
        epochs.append(epoch)
        table.report(group, epoch)

    run = PipelineRun(session, plan_pipeline(session, spec, runs=True), report=report)
    run.start()
    assert run.wait() is None
    [query] = {query.name for query in run.queries.values()}
    expected = time.time() - newest.timestamp()
    [epoch] = epochs
    assert epoch.lags.keys() == {"orders", "counted", "out"}
    assert all(abs(lag - expected) < 60 for lag in epoch.lags.values())
    table._draw(run)
    assert "s" in table._row("out", table._nodes["out"], 1.0)[4]
    samples = {
        (sample.name.removeprefix("penstock_node_"), sample.labels["node"]): sample
        for family in session.queries.metrics.collect()
        for sample in family.samples
        if sample.labels["query"] == query and "node" in sample.labels
    }
    assert samples["info", "orders"].labels == {
        "query": query,
        "node": "orders",
        "type": "file",
        "team": "shop",
        "cost_center": "7",
    }
    assert samples["rows_total", "out"].labels == {"query": query, "node": "out", "team": "web"}
    assert samples["rows_total", "out"].value == 2
    assert samples["counted_rows_total", "checked"].value == 1
    assert abs(samples["event_time_lag_seconds", "orders"].value - expected) < 60


@pytest.mark.parametrize(
    ("column", "unit", "why"),
    [
        ("mss", "ms", "'out' has no column 'mss' for its event time"),
        (
            "ms",
            "timestamp",
            "the column 'ms' of 'out' is bigint, which is no event time with the unit timestamp",
        ),
    ],
)
def test_event_times_that_cannot_be(
    session: ps.Session, tmp_path: Path, column: str, unit: str, why: str
) -> None:
    (tmp_path / "in").mkdir()
    spec = check_text(_text(tmp_path, column=column, unit=unit), "p.yaml").spec
    with pytest.raises(ConfigError, match=why) as refused:
        plan_pipeline(session, spec)
    assert refused.value.code == "PIPELINE_EVENT_TIME"
    assert (refused.value.where or "").startswith("p.yaml:14:")
    assert refused.value.hint
