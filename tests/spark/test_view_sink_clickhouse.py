"""Views as tables of ClickHouse: FINAL reads the view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.sinks.clickhouse import view as clickhouse_view
from servers.clickhouse import ClickHouse
from twin.durable import add_view, declare, opened, tick


def _fill(flow: ps.IncrementalFlow) -> None:
    declare(flow)
    add_view(flow, "totals")
    tick(flow, [(1, 2, 0, False), (2, 3, 0, False)])


def _rows(clickhouse: ClickHouse, url: str) -> list[Any]:
    rows = clickhouse.execute("SELECT k, v FROM totals FINAL ORDER BY k", url)
    return [(int(row["k"]), int(row["v"])) for row in rows]


def _tick(clickhouse: ClickHouse, url: str) -> int:
    [row] = clickhouse.execute("SELECT max(_version) AS newest FROM totals", url)
    return int(row["newest"]) % clickhouse_view.LIFE - 1


def test_a_table_is_the_view_and_a_restart_goes_on(clickhouse: ClickHouse, tmp_path: Path) -> None:
    url = clickhouse.new_database()
    with opened(tmp_path / "flow") as flow:
        _fill(flow)
        flow.sink("totals", "clickhouse", url=url, table="totals", key=["k"])
        assert _rows(clickhouse, url) == [(1, 2), (2, 3)]
        tick(flow, [(1, 5, 0, False), (2, 3, 0, True), (3, 4, 0, False)])
        assert flow.flush_sinks(60)
        assert (_rows(clickhouse, url), _tick(clickhouse, url)) == ([(1, 7), (3, 4)], 2)
    with opened(tmp_path / "flow") as flow:
        tick(flow, [(2, 6, 0, False), (3, 4, 0, True)])
        flow.sink("totals", "clickhouse", url=url, table="totals", key=["k"])
    assert (_rows(clickhouse, url), _tick(clickhouse, url)) == ([(1, 7), (2, 6)], 3)


def test_a_table_of_another_life_is_refused_until_it_is_overwritten(clickhouse: ClickHouse) -> None:
    url = clickhouse.new_database()
    with opened() as flow:
        _fill(flow)
        tick(flow, [(8, 8, 0, False)])
        flow.sink("totals", "clickhouse", url=url, table="totals", key=["k"])
    with opened() as flow:
        _fill(flow)
        with pytest.raises(ps.ConfigError, match="is written by another sink") as refused:
            flow.sink("totals", "clickhouse", url=url, table="totals", key=["k"])
        assert refused.value.code == "FLOW_SINK_NOT_EMPTY"
        flow.sink("totals", "clickhouse", url=url, table="totals", key=["k"], overwrite=True)
        # Ticks begin anew and are still newer than those of the life before.
        assert (_rows(clickhouse, url), _tick(clickhouse, url)) == ([(1, 2), (2, 3)], 1)
        tick(flow, [(1, 2, 0, True), (2, 3, 0, True)])
        tick(flow, [(8, 1, 0, False)])
        assert flow.flush_sinks(60)
        assert (_rows(clickhouse, url), _tick(clickhouse, url)) == ([(8, 1)], 3)


@pytest.mark.parametrize("fails", ["before", "after"])
def test_an_insert_that_comes_again_does_no_harm(
    clickhouse: ClickHouse, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clickhouse_view, "BLOCK", 2)
    url = clickhouse.new_database()
    with opened() as flow:
        _fill(flow)
        flow.sink("totals", "clickhouse", url=url, table="totals", key=["k"])
        clickhouse.fault(fails, 242)
        tick(flow, [(k, 5, 0, False) for k in range(5)])
        assert flow.flush_sinks(60)
        assert _rows(clickhouse, url) == [(0, 5), (1, 7), (2, 8), (3, 5), (4, 5)]


def test_an_empty_view_and_a_key_that_is_none(clickhouse: ClickHouse) -> None:
    url = clickhouse.new_database()
    with opened() as flow:
        declare(flow)
        add_view(flow, "large")
        flow.sink("large", "clickhouse", url=url, table="totals", key=["k"])
        assert _rows(clickhouse, url) == []
        tick(flow, [(1, 2, 0, False)])
        assert flow.flush_sinks(60)
        assert (_rows(clickhouse, url), _tick(clickhouse, url)) == ([(1, 2)], 1)
        tick(flow, [(1, 3, 0, False)])
        with pytest.raises(ps.DataError, match="several rows with the key k=1"):
            flow.flush_sinks(60)
        flow.drop_sink("large_clickhouse")
