"""Views as Iceberg tables: a snapshot per transaction that says its tick."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.directory import FlowDirectory
from penstock.spark import catalogs
from twin.durable import add_view, declare, tick


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    """The name of a table that is not there yet, in a catalog of its own."""
    lake = f"lake_{uuid.uuid4().hex[:12]}"
    for key, value in catalogs.conf_of(lake, {"type": "hadoop", "warehouse": str(tmp_path / "lake")}).items():
        spark.conf.set(key, value)
    return f"{lake}.shop.totals"


def _opened(session: ps.Session, path: Path | None = None) -> ps.IncrementalFlow:
    flow = ps.IncrementalFlow(session, clock=lambda: 0)
    if path is not None:
        flow._open(FlowDirectory(path))
    return flow


def _fill(flow: ps.IncrementalFlow) -> None:
    declare(flow)
    add_view(flow, "totals")
    tick(flow, [(1, 2, 0, False), (2, 3, 0, False)])


def _rows(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(f"SELECT * FROM {table} ORDER BY 1").collect()]


def _ticks(spark: SparkSession, table: str) -> list[str | None]:
    query = f"SELECT summary['penstock.epoch'] AS tick FROM {table}.snapshots ORDER BY committed_at"
    return [row.tick for row in spark.sql(query).collect()]


def test_a_table_is_the_view_and_a_restart_goes_on(
    session: ps.Session, spark: SparkSession, table: str, tmp_path: Path
) -> None:
    with _opened(session, tmp_path / "flow") as flow:
        _fill(flow)
        flow.sink("totals", "iceberg", table=table, key=["k"])
        assert _rows(spark, table) == [(1, 2), (2, 3)]
        tick(flow, [(1, 5, 0, False), (2, 3, 0, True), (3, 4, 0, False)])
        assert flow.flush_sinks(120)
        assert _rows(spark, table) == [(1, 7), (3, 4)]
    with _opened(session, tmp_path / "flow") as flow:
        tick(flow, [(2, 6, 0, False)])
    assert _rows(spark, table) == [(1, 7), (2, 6), (3, 4)]
    assert _ticks(spark, table) == ["1", "2", "3"]


def test_rows_of_others_are_refused_until_they_are_overwritten(
    session: ps.Session, spark: SparkSession, table: str
) -> None:
    spark.sql(f"CREATE TABLE {table} (k BIGINT, v BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO {table} VALUES (9, 9)")
    with _opened(session) as flow:
        _fill(flow)
        with pytest.raises(ps.ConfigError) as refused:
            flow.sink("totals", "iceberg", table=table, key=["k"])
        assert refused.value.code == "FLOW_SINK_NOT_EMPTY"
        flow.sink("totals", "iceberg", table=table, key=["k"], overwrite=True)
        assert _rows(spark, table) == [(1, 2), (2, 3)]
        with pytest.raises(ps.PenstockError, match="nowhere"):
            flow.sink("totals", "iceberg", table="nowhere.shop.t", key=["k"], name="other")
