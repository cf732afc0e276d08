"""Views as Iceberg tables: the rows of a snapshot are those of the view after the tick that its summary says."""

from __future__ import annotations

import contextlib
import random
import shutil
import uuid
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.directory import local_directory
from penstock.sinks import iceberg_view
from penstock.sinks.iceberg_view import IcebergViewSink
from penstock.spark import catalogs, data_file
from seed import SEED
from twin.durable import add_view, declare, random_change, tick
from view_sink_faults import faulty_commits


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
        flow._open(local_directory(path, checkpoint_every=2_000))
    return flow


def _fill(flow: ps.IncrementalFlow) -> None:
    declare(flow)
    add_view(flow, "totals")
    tick(flow, [(1, 2, 0, False), (2, 3, 0, False)])


def _rows(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.sql(f"SELECT * FROM {table}").collect())


def _ticks(spark: SparkSession, table: str) -> list[str | None]:
    query = f"SELECT summary['penstock.tick'] AS tick FROM {table}.snapshots ORDER BY committed_at"
    return [row.tick for row in spark.sql(query).collect()]


@pytest.mark.smoke
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
        [line] = flow.explain("totals").sinks
        assert line == f"sink totals_iceberg: iceberg table {table}, exactly once, has tick 2, 0 behind"
    spark.sql(
        f"CALL {table.split('.')[0]}.system.rewrite_data_files(table => 'shop.totals', options => map('rewrite-all', 'true'))"
    )
    with _opened(session, tmp_path / "flow") as flow:
        tick(flow, [(2, 6, 0, False)])
    assert _rows(spark, table) == [(1, 7), (2, 6), (3, 4)]
    assert _ticks(spark, table) == ["1", "2", None, "3"]


def test_rows_without_a_key_come_and_go_one_by_one(
    session: ps.Session, spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_view, "FEW", 0)
    with _opened(session) as flow:
        flow.register_source("r", "a STRING, x DOUBLE, at TIMESTAMP, l ARRAY<INT>")
        flow.register_view("v", "SELECT * FROM r")
        flow.sink("v", "iceberg", table=table)
        assert _rows(spark, table) == []
        row: dict[str, Any] = {"a": None, "x": float("nan"), "at": None, "l": [1, None]}
        other: dict[str, Any] = {"a": "b", "x": 0.5, "at": None, "l": None}
        for change in ([(row, 3), (other, 1)], [(row, -2)], [(row, 1), (other, -1)], [(row, -2), (other, 2)]):
            flow.tick("r", ps.DeltaBatch.weighted([{**one, "_weight": weight} for one, weight in change]))
            assert flow.flush_sinks(120)
            stored = Counter(map(str, spark.table(table).collect()))
            wanted = Counter(str(tuple(one.values())) for one in flow.snapshot("v").to_pylist())
            assert sorted(stored.values()) == sorted(wanted.values())
        assert [tuple(r) for r in spark.table(table).collect()] == [("b", 0.5, None, None)] * 2
        spark.sql(f"DELETE FROM {table} WHERE a = 'b'")
        flow.tick("r", [other])
        with pytest.raises(ps.DataError) as changed:
            flow.flush_sinks(120)
        assert changed.value.code == "SINK_TABLE_CHANGED"
        flow.drop_sink("v_iceberg")
        flow.sink("v", "iceberg", table=table, overwrite=True)
        assert spark.table(table).count() == 3


def test_rows_of_others_are_refused_until_they_are_overwritten_and_a_second_flow_fences_the_first(
    session: ps.Session, spark: SparkSession, table: str
) -> None:
    spark.sql(f"CREATE TABLE {table} (k INT, v BIGINT) USING iceberg")
    with _opened(session) as flow, _opened(session) as other:
        _fill(flow)
        _fill(other)
        with pytest.raises(ps.DataError, match="'k' is int there and bigint in the view"):
            flow.sink("totals", "iceberg", table=table, key=["k"])
        spark.sql(f"ALTER TABLE {table} ALTER COLUMN k TYPE BIGINT")
        spark.sql(f"INSERT INTO {table} VALUES (9, 9)")
        with pytest.raises(ps.ConfigError) as refused:
            flow.sink("totals", "iceberg", table=table, key=["k"])
        assert refused.value.code == "FLOW_SINK_NOT_EMPTY"
        flow.sink("totals", "iceberg", table=table, key=["k"], overwrite=True)
        assert _rows(spark, table) == [(1, 2), (2, 3)]
        with pytest.raises(ps.ConfigError, match="written by another sink"):
            other.sink("totals", "iceberg", table=table, key=["k"])
        other.sink("totals", "iceberg", table=table, key=["k"], overwrite=True)
        tick(flow, [(5, 5, 0, False)])
        with pytest.raises(ps.ConnectorError) as fenced:
            flow.flush_sinks(120)
        assert fenced.value.code == "SINK_FENCED"
        flow.drop_sink("totals_iceberg")
        with pytest.raises(ps.PenstockError, match="nowhere"):
            flow.sink("totals", "iceberg", table="nowhere.shop.t", key=["k"], name="other")
        flow.register_source("days", "d INTERVAL DAY")
        flow.register_view("spans", "SELECT * FROM days")
        with pytest.raises(ps.DataError) as unknown:
            flow.sink("spans", "iceberg", table=f"{table}2")
        assert unknown.value.code == "SINK_TYPE"
        flow.register_source("maps", "id INT, m MAP<STRING, INT>")
        flow.register_view("mapped", "SELECT * FROM maps")
        with pytest.raises(ps.DataError, match="maps cannot be compared"):
            flow.sink("mapped", "iceberg", table=f"{table}2")


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 30))])
def test_a_table_has_the_rows_of_its_mark_after_kills_and_faults_around_the_commit(
    number: int,
    session: ps.Session,
    spark: SparkSession,
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(SEED + number)
    faults = faulty_commits(monkeypatch, rng)
    history: dict[str, list[tuple[Any, ...]]] = {}
    path = tmp_path / "flow"
    flow = _opened(session, path)

    def note() -> None:
        rows = flow.snapshot("totals").to_pylist()
        history[str(flow._graph.state.ticks)] = sorted(tuple(row.values()) for row in rows)

    _fill(flow)
    note()
    flow.sink("totals", "iceberg", table=table, key=["k"])
    faults["odds"] = 0.3
    for step in range(8):
        monkeypatch.setattr(iceberg_view, "FEW", rng.choice([0, 100]))
        tick(flow, random_change(rng))
        note()
        if rng.random() < 0.4:
            assert flow.flush_sinks(120)
        elif rng.random() < 0.5:
            copy = tmp_path / f"flow {step}"
            assert flow._runner.directory is not None
            flow._runner.directory.wait()
            # What the process leaves behind; its thread is let go only so that it does not write any more.
            shutil.copytree(path, copy)
            for follower in flow._followers._running.values():
                follower.cancel()
            with contextlib.suppress(ps.PenstockError):
                flow.close()
            flow, path = _opened(session, copy), copy
    flow.close()
    assert _rows(spark, table) == history[max(history, key=int)]
    snapshots = spark.sql(
        f"SELECT snapshot_id, summary['penstock.tick'] AS tick FROM {table}.snapshots ORDER BY committed_at"
    ).collect()
    ticks = [int(snapshot.tick) for snapshot in snapshots]
    assert ticks == sorted(set(ticks))
    for snapshot in snapshots:
        assert _rows(spark, f"{table} VERSION AS OF {snapshot.snapshot_id}") == history[snapshot.tick]


KINDS = {
    "k BIGINT": [1, 2, 3],
    "flag BOOLEAN": [True, None, False],
    "x DOUBLE": [0.5, float("nan"), -0.0],
    "small DECIMAL(7,2)": [Decimal("1.25"), None, Decimal("-3.00")],
    "money DECIMAL(15,3)": [Decimal("12345.678"), Decimal("0.001"), None],
    "large DECIMAL(38,10)": [Decimal("1e20"), Decimal("-1e20"), None],
    "note STRING": ["ü" * 40, "", None],
    "bytes BINARY": [b"\x00\xff", b"", None],
    "day DATE": [date(1960, 2, 29), None, date(2038, 1, 19)],
    "at TIMESTAMP": [datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), None, None],
    "wall TIMESTAMP_NTZ": [datetime(2026, 1, 2, 3, 4, 5, 6), None, None],
}


@pytest.mark.parametrize("settings", ["", "'write.parquet.compression-codec' = 'gzip'"])
def test_rows_that_arrow_writes_are_those_that_spark_writes(
    settings: str, session: ps.Session, spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [column.partition(" ")[0] for column in KINDS]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*KINDS.values(), strict=True)]
    spark.sql(f"CREATE NAMESPACE {table.rpartition('.')[0]}")
    spark.sql(
        f"CREATE TABLE {table} ({', '.join(KINDS)}) USING iceberg TBLPROPERTIES ({settings or 'a = 1'})"
    )
    frames: list[int] = []
    monkeypatch.setattr(IcebergViewSink, "_frame", lambda _, rows: frames.append(rows.num_rows))
    with _opened(session) as flow:
        flow.register_source("r", ", ".join(KINDS))
        flow.register_view("v", "SELECT * FROM r")
        flow.tick("r", rows)
        flow.sink("v", "iceberg", table=table)
        assert not frames
        stored = spark.table(table).orderBy("k").toArrow().to_pylist()
        wanted = flow.snapshot("v").sort_by("k").to_pylist()
        assert list(map(repr, stored)) == list(map(repr, wanted))
        # The least and greatest values that the file says leave no row out.
        for condition, keys in (
            ("k >= 3", [3]),
            ("note > 'ü'", [1]),
            ("small < 0", [3]),
            ("large <= -1e20", [2]),
            ("day < DATE '1970-01-01'", [1]),
            ("at < TIMESTAMP '1970-01-01 00:00:00 UTC'", [1]),
            ("isnan(x)", [2]),
            ("flag IS NULL", [2]),
        ):
            found = spark.sql(f"SELECT k FROM {table} WHERE {condition} ORDER BY k").collect()
            assert (condition, [row.k for row in found]) == (condition, keys)
        [file] = spark.sql(f"SELECT record_count, lower_bounds FROM {table}.files").collect()
        assert file.record_count == 3
        assert len(file.lower_bounds) > 5
        flow.tick("r", ps.DeltaBatch.deletes(rows))
        assert flow.flush_sinks(120)
        assert spark.table(table).isEmpty()


@pytest.mark.parametrize(
    ("columns", "rest"),
    [
        ("k BIGINT NOT NULL, s STRING", ""),
        ("k BIGINT, s STRING", "PARTITIONED BY (bucket(2, k))"),
        ("k DECIMAL(20,0), s STRING", ""),
        ("k BIGINT, s STRING", "TBLPROPERTIES ('write.format.default' = 'avro')"),
        ("k BIGINT, s STRING", "TBLPROPERTIES ('write.parquet.bloom-filter-enabled.column.k' = 'true')"),
    ],
)
def test_a_table_that_says_how_it_is_written_is_left_to_spark(
    columns: str,
    rest: str,
    session: ps.Session,
    spark: SparkSession,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark.sql(f"CREATE NAMESPACE {table.rpartition('.')[0]}")
    spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg {rest}")
    monkeypatch.setattr(data_file, "write_columns", lambda *_, **__: pytest.fail("Arrow has written it"))
    with _opened(session) as flow:
        flow.register_source("r", "k BIGINT, s STRING")
        flow.register_view("v", "SELECT * FROM r")
        flow.tick("r", [{"k": 1, "s": "a"}, {"k": 2, "s": None}])
        flow.sink("v", "iceberg", table=table)
    assert _rows(spark, table) == [(1, "a"), (2, None)]


def test_a_snapshot_of_another_between_the_look_and_the_commit_is_not_written_over(
    session: ps.Session, spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _opened(session) as flow:
        _fill(flow)
        flow.sink("totals", "iceberg", table=table, key=["k"])
        write, folder = data_file.write_columns, {Path(): 0}

        def overtaken(path: Path, *arguments: Any, **options: Any) -> None:
            folder[path] = 1
            spark.sql(f"INSERT INTO {table} VALUES (9, 9)")
            write(path, *arguments, **options)

        monkeypatch.setattr(data_file, "write_columns", overtaken)
        tick(flow, [(1, 5, 0, False)])
        with pytest.raises(ps.DataError) as changed:
            flow.flush_sinks(120)
        assert changed.value.code == "SINK_TABLE_CHANGED"
        assert _rows(spark, table) == [(1, 2), (2, 3), (9, 9)]
        assert not any(path.exists() for path in folder if path.name)
        flow.drop_sink("totals_iceberg")
