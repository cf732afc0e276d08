"""Iceberg tables as sources: after every refresh a view is what Spark computes over the table, whatever was done to the table."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from lake_history import History, bag, create_table, mount
from penstock.engine.directory import local_directory
from penstock.spark import data_file
from penstock.spark.iceberg import IcebergTable
from seed import SEED

VIEW = "SELECT g, count(*) AS n, sum(v) AS total, max(s) AS last FROM t GROUP BY g"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> str:
    """A catalog of its own, with a namespace."""
    return mount(spark, tmp_path / "lake")


@pytest.fixture
def sql(session: ps.Session) -> Iterator[ps.Session]:
    """The session with a flow that is empty again afterwards."""
    yield session
    for view in reversed(session.flow.views()):
        session.flow.drop_view(view.name)
    for source in session.flow.sources():
        session.flow.drop_source(source.name)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 20))])
def test_a_view_is_what_spark_computes_after_every_refresh(
    mode: str, number: int, session: ps.Session, spark: SparkSession, lake: str, tmp_path: Path
) -> None:
    rng = random.Random(SEED + number)
    table = f"{lake}.db.t"
    partitions = rng.choice(["", "PARTITIONED BY (g, bucket(2, k))"])
    history = History(spark, table, rng, is_partitioned=bool(partitions))
    create_table(spark, table, mode, version=rng.choice([2, 2, 3]), partitions=partitions)
    flow = ps.IncrementalFlow(session)
    flow._open(local_directory(tmp_path / "flow", checkpoint_every=rng.choice([1, 10**9])))
    flow.register_source("t", table=table)
    flow.register_view("v", VIEW)
    for _ in range(4 if number == 0 else 15):
        for _ in range(rng.randint(1, 3)):
            history.change()
        if rng.random() < 0.3:
            flow.close()
            flow = ps.IncrementalFlow(session)
            flow._open(local_directory(tmp_path / "flow"))
        flow.refresh()
        expected = spark.sql(VIEW.replace("FROM t", f"FROM {table}"))
        assert bag(row.values() for row in flow.snapshot("v").to_pylist()) == bag(expected.collect())
        assert flow.refresh("v") is None
    assert bag(row.values() for row in flow.snapshot("t").to_pylist()) == bag(spark.table(table).collect())
    flow.close()


def _files(table: IcebergTable, since: int, until: int) -> int:
    """How many rows a refresh would read."""
    return table.changes(since, until, ["k"]).num_rows


@pytest.mark.smoke
def test_sql_reads_what_changed_and_nothing_else(sql: ps.Session, spark: SparkSession, lake: str) -> None:
    orders, prices = f"{lake}.db.orders", f"{lake}.db.prices"
    create_table(spark, orders, "merge-on-read", "k BIGINT, item STRING, n INT")
    create_table(spark, prices, "copy-on-write", "item STRING, price DECIMAL(6,2)")
    spark.sql(f"INSERT INTO {orders} VALUES (1, 'a', 2), (2, 'b', 1), (3, 'a', 1)")
    spark.sql(f"INSERT INTO {prices} VALUES ('a', 2.50), ('b', 10)")
    sql.sql(f"CREATE SOURCE orders FROM TABLE {orders}")
    sql.sql(f"CREATE SOURCE prices FROM TABLE {prices}")
    sql.sql(
        "CREATE INCREMENTAL VIEW sales AS SELECT o.item, sum(n * price) AS sales "
        "FROM orders o JOIN prices p ON o.item = p.item GROUP BY o.item"
    )

    def rows() -> list[tuple[str, str]]:
        return sorted((row.item, str(row.sales)) for row in sql.sql("SELECT * FROM sales").collect())

    assert rows() == [("a", "7.50"), ("b", "10.00")]
    ticks = sql.flow._graph.state.ticks
    spark.sql(f"DELETE FROM {orders} WHERE k = 1")
    spark.sql(f"UPDATE {prices} SET price = 3 WHERE item = 'a'")
    assert rows() == [("a", "7.50"), ("b", "10.00")]
    sql.sql("REFRESH INCREMENTAL VIEW sales")
    assert rows() == [("a", "3.00"), ("b", "10.00")]
    assert sql.flow._graph.state.ticks == ticks + 1
    assert sql.last_step.rows_in == 3
    spark.sql(
        f"CALL {lake}.system.rewrite_data_files(table => 'db.orders', options => map('rewrite-all', 'true'))"
    )
    table = IcebergTable(spark, orders)
    before = table.snapshot
    spark.sql(f"INSERT INTO {orders} VALUES (4, 'b', 3)")
    sql.sql("REFRESH SOURCE orders, prices")
    assert (rows(), sql.last_step.rows_in) == ([("a", "3.00"), ("b", "40.00")], 1)
    table.refresh()
    assert before is not None
    assert table.snapshot is not None
    assert _files(table, before, table.snapshot) == 1
    shown = {row.name: row for row in sql.sql("SHOW SOURCES").collect()}
    assert shown["orders"].options == f"table = {orders}, version = {table.snapshot}"
    for statement, code in (
        ("INSERT INTO orders VALUES (9, 'z', 1)", "FLOW_TABLE_SOURCE"),
        (f"CREATE SOURCE o FROM TABLE {lake}.db.nothing", "SQL_UNKNOWN_TABLE"),
        ("CREATE SOURCE o FROM orders", "SQL_SYNTAX"),
        (f"CREATE SOURCE o FROM TABLE {orders} WITH (dedup = true)", "SQL_SYNTAX"),
    ):
        with pytest.raises(ps.PenstockError) as refused:
            sql.sql(statement)
        assert (statement, refused.value.code) == (statement, code)
    spark.sql("CREATE OR REPLACE TEMP VIEW t_plain AS SELECT 1 AS one")
    with pytest.raises(ps.ConfigError, match="no table of Iceberg or Delta"):
        sql.sql("CREATE SOURCE o FROM TABLE t_plain")
    sql.sql("CREATE SOURCE plain (a INT)")
    with pytest.raises(ps.SqlError, match="has no table to read"):
        sql.sql("REFRESH SOURCE plain")


def test_a_history_that_is_gone_a_rollback_and_columns_that_change(
    session: ps.Session, spark: SparkSession, lake: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = f"{lake}.db.t"
    create_table(spark, table, "copy-on-write", "k BIGINT, v INT")
    with ps.IncrementalFlow(session) as flow:
        flow.register_source("t", table=table)
        assert flow.snapshot("t").num_rows == 0
        spark.sql(f"INSERT INTO {table} VALUES (1, 1), (2, 2), (2, 2)")
        flow.refresh()
        first = IcebergTable(spark, table).snapshot
        spark.sql(f"DELETE FROM {table} WHERE k = 1")
        spark.sql(f"INSERT INTO {table} VALUES (3, 3)")
        spark.sql(
            f"CALL {lake}.system.expire_snapshots(table => 'db.t', older_than => now(), retain_last => 1)"
        )
        with caplog.at_level(logging.WARNING, "penstock.flow"):
            summary = flow.refresh("t")
        assert summary is not None
        assert summary.rows_in == 2
        assert f"does not reach back to version {first}" in caplog.text
        assert bag(row.values() for row in flow.snapshot("t").to_pylist()) == bag([(2, 2), (2, 2), (3, 3)])
        second = IcebergTable(spark, table).snapshot
        spark.sql(f"UPDATE {table} SET v = 9")
        flow.refresh()
        spark.sql(f"CALL {lake}.system.rollback_to_snapshot('db.t', {second})")
        flow.refresh()
        assert bag(row.values() for row in flow.snapshot("t").to_pylist()) == bag([(2, 2), (2, 2), (3, 3)])
        spark.sql(f"ALTER TABLE {table} ADD COLUMN note STRING")
        spark.sql(f"INSERT INTO {table} VALUES (4, 4, 'new')")
        flow.refresh()
        assert flow.snapshot("t").num_rows == 4
        spark.sql(f"ALTER TABLE {table} DROP COLUMN v")
        spark.sql(f"ALTER TABLE {table} ADD COLUMN v INT")
        with pytest.raises(ps.StateError, match="column 'v' is another one of this name") as refused:
            flow.refresh()
        assert refused.value.code == "FLOW_TABLE_SCHEMA"
        spark.sql(f"ALTER TABLE {table} ALTER COLUMN v TYPE BIGINT")
        with pytest.raises(ps.StateError, match="column 'v' was int and is bigint"):
            flow.refresh()
        with pytest.raises(ps.ConfigError, match="takes no schema or primary_key"):
            flow.register_source("u", "k BIGINT", table=table, primary_key="k")
        flow.register_source("used", table=table, retain="used")
        flow.register_view("n", "SELECT count(*) AS n FROM used")
        flow.refresh("n")
        assert flow.snapshot("n").to_pylist() == [{"n": 4}]
        spark.sql(f"INSERT INTO {table} (k) VALUES (8)")
        spark.sql(
            f"CALL {lake}.system.expire_snapshots(table => 'db.t', older_than => now(), retain_last => 1)"
        )
        with pytest.raises(ps.StateError) as lost:
            flow.refresh("n")
        assert lost.value.code == "FLOW_NOT_RETAINED"


KINDS = {
    "id": ("BIGINT", "id"),
    "flag": ("BOOLEAN", "id % 2 = 0"),
    "small": ("INT", "CAST(id AS INT)"),
    "real": ("FLOAT", "CAST(IF(id = 2, 'NaN', id / 3) AS FLOAT)"),
    "wide": ("DOUBLE", "CAST(id / 7 AS DOUBLE)"),
    "short_money": ("DECIMAL(7,2)", "CAST(id / 4 AS DECIMAL(7,2))"),
    "money": ("DECIMAL(15,3)", "CAST(-id / 8 AS DECIMAL(15,3))"),
    "long_money": ("DECIMAL(38,10)", "CAST(id * 1e20 AS DECIMAL(38,10))"),
    "note with spaces": ("STRING", "IF(id % 3 = 0, NULL, concat('ü', id))"),
    "bytes": ("BINARY", "CAST(concat('b', id) AS BINARY)"),
    "day": ("DATE", "date_add(DATE '1960-02-28', CAST(id AS INT) * 9000)"),
    "at": ("TIMESTAMP", "timestamp_micros(id * 123456789012345 - 99999999999999)"),
    "wall": ("TIMESTAMP_NTZ", "CAST(timestamp_micros(id * 1234567890123) AS TIMESTAMP_NTZ)"),
    "many": ("ARRAY<INT>", "array(CAST(id AS INT), NULL)"),
    "pair": ("STRUCT<a: INT, b: STRING>", "named_struct('a', CAST(id AS INT), 'b', 'x')"),
}


def _by_arrow(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows Arrow has read of each file from now on; -1 of a file that it left to Spark."""
    read: list[int] = []
    read_columns = data_file.read_columns

    def counted(*arguments: Any) -> Any:
        rows = read_columns(*arguments)
        read.append(-1 if rows is None else rows.num_rows)
        return rows

    monkeypatch.setattr(data_file, "read_columns", counted)
    return read


@pytest.mark.parametrize("columns", ["plain", "nested"])
def test_files_that_arrow_reads_have_the_rows_that_spark_reads(
    columns: str, session: ps.Session, spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"{lake}.db.t"
    nested = ("many", "pair")
    chosen = {name: kind for name, kind in KINDS.items() if columns == "nested" or name not in nested}
    ddl = ", ".join(f"`{name}` {kind}" for name, (kind, _) in chosen.items())
    values = ", ".join(f"{value} AS `{name}`" for name, (_, value) in chosen.items())
    create_table(spark, table, "copy-on-write", ddl, partitions="PARTITIONED BY (flag, bucket(2, id))")
    read = _by_arrow(monkeypatch)

    def compare(flow: ps.IncrementalFlow) -> None:
        mine = flow.snapshot("t").sort_by("id").to_pylist()
        theirs = spark.table(table).orderBy("id").toArrow().select(list(mine[0])).to_pylist()
        assert list(map(repr, mine)) == list(map(repr, theirs))

    with ps.IncrementalFlow(session) as flow:
        spark.sql(f"INSERT INTO {table} SELECT {values} FROM range(1, 6)")
        flow.register_source("t", table=table)
        compare(flow)
        spark.sql(f"DELETE FROM {table} WHERE id = 4")
        spark.sql(f"INSERT INTO {table} SELECT {values} FROM range(7, 9)")
        flow.refresh()
        compare(flow)
        assert read
        assert all(rows < 0 for rows in read) if columns == "nested" else min(read) > 0


def test_files_that_need_more_than_their_columns_are_left_to_spark(
    session: ps.Session, spark: SparkSession, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"{lake}.db.t"
    create_table(spark, table, "merge-on-read", "k BIGINT, old STRING, n INT", version=3)
    spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a', 1), (2, 'b', 2)")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN old TO name")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN old INT")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN n TYPE BIGINT")
    spark.sql(f"INSERT INTO {table} (k, name, n, old) VALUES (3, 'c', 3, 33)")
    read = _by_arrow(monkeypatch)
    with ps.IncrementalFlow(session) as flow:
        flow.register_source("t", table=table)

        def compare() -> None:
            mine = bag(row.values() for row in flow.snapshot("t").to_pylist())
            assert mine == bag(spark.table(table).collect())

        compare()
        assert sorted(read) == [-1, 1]
        read.clear()
        spark.sql(f"DELETE FROM {table} WHERE k = 2")  # a file with deletes is not offered to Arrow
        flow.refresh()
        compare()
        assert read == [-1]  # that which went, in its old columns
        read.clear()
        # Files of others, whose columns have no ids, and a partition that is in the name of the folder only.
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.format.default' = 'orc')")
        spark.sql(f"INSERT INTO {table} (k, name, n, old) VALUES (4, 'd', 4, 44)")
        flow.refresh()
        compare()
        assert read == []
    other = f"{lake}.db.u"
    create_table(spark, other, "copy-on-write", "k BIGINT, g INT", partitions="PARTITIONED BY (g)")
    for folder in (1, 2):
        spark.range(folder, folder + 2).selectExpr("id AS k").write.parquet(f"{tmp_path}/files/g={folder}")
    spark.sql(
        f"CALL {lake}.system.add_files(table => 'db.u', source_table => '`parquet`.`{tmp_path}/files`')"
    )
    with ps.IncrementalFlow(session) as flow:
        flow.register_source("u", table=other)
        rows = bag(row.values() for row in flow.snapshot("u").to_pylist())
        assert rows == bag([(1, 1), (2, 1), (2, 2), (3, 2)])
        assert max(read) == -1


@pytest.mark.parametrize("retain", ["all", "used"])
def test_a_table_that_was_made_again_has_its_own_rows(
    retain: str, session: ps.Session, spark: SparkSession, lake: str, tmp_path: Path
) -> None:
    table = f"{lake}.db.t"
    columns = "(k BIGINT, v INT) USING iceberg"
    flow = ps.IncrementalFlow(session, path=tmp_path / "flow")
    spark.sql(f"CREATE TABLE {table} {columns}")
    flow.register_source("t", table=table, retain=retain)
    flow.register_view("v", "SELECT k, v FROM t")
    changes = [
        f"INSERT INTO {table} VALUES (1, 1), (2, 2)",
        f"CREATE OR REPLACE TABLE {table} {columns}",
        f"INSERT INTO {table} VALUES (3, 3)",
        f"CREATE OR REPLACE TABLE {table} USING iceberg AS SELECT 4L AS k, 4 AS v",
    ]
    if retain == "all":  # the rows of a table that is gone are known to the source alone
        changes += [
            f"DROP TABLE {table}; CREATE TABLE {table} {columns}",
            f"INSERT INTO {table} VALUES (5, 5)",
            f"DROP TABLE {table}; CREATE TABLE {table} {columns}; INSERT INTO {table} VALUES (5, 5), (6, 6)",
        ]
    for change in changes:
        for statement in change.split("; "):
            spark.sql(statement)
        flow.refresh()
        mine = bag(row.values() for row in flow.snapshot("v").to_pylist())
        assert (change, mine) == (change, bag(spark.table(table).collect()))
        assert flow.refresh() is None
        flow.close()
        flow = ps.IncrementalFlow(session, path=tmp_path / "flow")
    flow.close()


def test_branches_versions_and_descriptions_of_a_table_are_no_tables(
    sql: ps.Session, spark: SparkSession, lake: str
) -> None:
    table = f"{lake}.db.t"
    create_table(spark, table, "copy-on-write", "k BIGINT")
    spark.sql(f"INSERT INTO {table} VALUES (1)")
    first = IcebergTable(spark, table).snapshot
    spark.sql(f"ALTER TABLE {table} CREATE BRANCH old")
    spark.sql(f"ALTER TABLE {table} CREATE TAG first")
    spark.sql(f"INSERT INTO {table} VALUES (2)")
    for part in ("branch_old", "tag_first", f"snapshot_id_{first}", "snapshots", "files", "`all_entries`"):
        with pytest.raises(ps.ConfigError) as refused:
            sql.sql(f"CREATE SOURCE s FROM TABLE {table}.{part}")
        assert (part, refused.value.code) == (part, "FLOW_TABLE_FORMAT")
    # In the query of a view they are tables of Spark.
    view = f"{lake}.db.v"
    sql.sql(
        f"CREATE INCREMENTAL VIEW {view} AS SELECT t.k FROM {table} AS t LEFT ANTI JOIN {table}.branch_old AS o ON t.k = o.k"
    )
    assert [tuple(row) for row in spark.table(view).collect()] == [(2,)]
    assert [source.name for source in sql.flow.sources()] == [table]
    named = f"{lake}.db.branch_office"
    create_table(spark, named, "copy-on-write", "k BIGINT")
    sql.sql(f"CREATE SOURCE office FROM TABLE {named}")
