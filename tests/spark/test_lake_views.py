"""Incremental views whose rows are an Iceberg table: a snapshot is what Spark computes over the sources at the snapshots that it says."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from lake_history import History, bag, create_table, mount, standing, stands_for
from penstock.backend import JobState, open_backend
from penstock.engine.lake_view import LakeViews
from penstock.engine.session_flow import SessionFlow
from penstock.sinks import iceberg_view
from penstock.spark.iceberg import IcebergTable
from seed import SEED
from view_sink_faults import Away, faulty_commits
from waiting import wait_for

QUERIES = {
    "joined": "SELECT a.g, count(*) AS n, sum(a.v * b.v) AS total FROM {a} AS a JOIN {b} AS b ON a.k = b.k GROUP BY a.g",
    "rows": "SELECT a.g, a.s, b.v FROM {a} AS a LEFT JOIN {b} AS b ON a.k = b.k AND b.v > 0",
}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> str:
    """A catalog of its own, with a namespace."""
    return mount(spark, tmp_path / "lake")


@pytest.fixture
def reopen(session: ps.Session) -> Iterator[Callable[[Path | None], ps.Session]]:
    """The session with another flow, in a directory or in memory, as the next process would have it."""

    def opened(path: Path | None = None) -> ps.Session:
        if session._flow is not None:
            session._flow.close()
        session._flow = SessionFlow(session, path=path)
        return session

    yield opened
    session._flow.close()
    session._flow = None


@pytest.fixture
def sql(reopen: Callable[[Path | None], ps.Session]) -> ps.Session:
    """The session with a flow of its own in memory."""
    return reopen(None)


def _rows(session: ps.Session, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in session.sql(query).collect())


def _compare(spark: SparkSession, view: str, query: str, tables: dict[str, str]) -> None:
    """The table of a view has the rows of its query over the snapshots that it says."""
    snapshot, sources = standing(spark, view)
    at = {
        name: f"(SELECT * FROM {table} VERSION AS OF {sources[table]})"
        if table in sources
        else f"(SELECT * FROM {table} WHERE false)"
        for name, table in tables.items()
    }
    stored = spark.sql(f"SELECT * FROM {view} VERSION AS OF {snapshot}")
    assert bag(stored.collect()) == bag(spark.sql(query.format(**at)).collect())


@pytest.mark.parametrize("kind", list(QUERIES))
@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 15))])
def test_a_table_is_the_query_over_the_snapshots_that_it_says(
    kind: str,
    number: int,
    reopen: Callable[[Path | None], ps.Session],
    spark: SparkSession,
    lake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(SEED + number)
    tables = {name: f"{lake}.db.{name}" for name in ("a", "b")}
    for table in tables.values():
        create_table(spark, table, rng.choice(["copy-on-write", "merge-on-read"]))
        spark.sql(f"INSERT INTO {table} VALUES (1, 1, 1, 'x')")
    histories = [History(spark, table, rng) for table in tables.values()]
    odds = faulty_commits(monkeypatch, rng)
    durable = tmp_path / "flow"
    session = reopen(durable)
    view = f"{lake}.db.view"
    query = QUERIES[kind]
    session.sql(f"CREATE INCREMENTAL VIEW {view} AS {query.format(**tables)}")
    odds["odds"] = 0.3
    for _ in range(3 if number == 0 else 12):
        for history in histories:
            if rng.random() < 0.7:
                history.change()
        monkeypatch.setattr(iceberg_view, "FEW", rng.choice([0, 100]))
        choice = rng.random()
        if choice < 0.2:
            session = reopen(durable)
        elif choice < 0.4:
            durable = durable.with_name(f"{durable.name}-")
            session = reopen(durable)
        elif choice < 0.5:
            spark.sql(History(spark, view, rng)._rewrite("rewrite_data_files"))
        session.sql(f"REFRESH INCREMENTAL VIEW {view}")
        now = {table: str(IcebergTable(spark, table).snapshot) for table in tables.values()}
        assert stands_for(spark, view) == now
        _compare(spark, view, query, tables)


@pytest.mark.smoke
def test_the_life_of_a_lake_view(
    reopen: Callable[[Path | None], ps.Session], sql: ps.Session, spark: SparkSession, lake: str
) -> None:
    orders, view = f"{lake}.db.orders", f"{lake}.db.totals"
    create_table(spark, orders, "copy-on-write", "id BIGINT, customer STRING, amount DECIMAL(10,2)")
    sql.sql(f"INSERT INTO {orders} VALUES (1, 'ann', 10), (2, 'bob', 4.5)")
    query = f"SELECT customer, sum(amount) AS total FROM {orders} GROUP BY customer"
    sql.sql(f"CREATE INCREMENTAL VIEW {view} AS {query}")
    totals = f"SELECT customer, CAST(total AS STRING) FROM {view}"
    assert _rows(sql, totals) == [("ann", "10.00"), ("bob", "4.50")]
    sql.sql(f"DELETE FROM {orders} WHERE id = 2")
    sql.sql(f"INSERT INTO {orders} VALUES (3, 'cem', 1)")
    assert _rows(sql, totals) == [("ann", "10.00"), ("bob", "4.50")]
    sql.sql(f"REFRESH INCREMENTAL VIEW {view}")
    assert _rows(sql, totals) == [("ann", "10.00"), ("cem", "1.00")]
    snapshots = spark.table(f"{view}.snapshots").count()
    sql.sql(f"REFRESH INCREMENTAL VIEW {view}")
    assert spark.table(f"{view}.snapshots").count() == snapshots
    assert _rows(sql, "SHOW INCREMENTAL VIEWS")[0][0] == view
    for statement, code in (
        (f"INSERT INTO {view} VALUES ('x', 1)", "FLOW_UNKNOWN_SOURCE"),
        (f"DROP TABLE {view}", "SQL_WRONG_KIND"),
        (f"CREATE TABLE {view} (a INT)", "FLOW_NAME_TAKEN"),
        (f"CREATE INCREMENTAL VIEW {view} AS {query}", "FLOW_NAME_TAKEN"),
        (f"CREATE INCREMENTAL VIEW {orders} AS {query}", "FLOW_NAME_TAKEN"),
        (f"CREATE INCREMENTAL VIEW {view}2 AS SELECT nothing FROM {orders}", "SQL_UNKNOWN_COLUMN"),
        (f"CREATE INCREMENTAL VIEW {view}2 AS SELECT INTERVAL '1' DAY AS d FROM {orders}", "SINK_TYPE"),
        (f"REFRESH INCREMENTAL VIEW {view}2", "FLOW_UNKNOWN_VIEW"),
        (f"REFRESH INCREMENTAL VIEW {view} EVERY '0 seconds'", "CONFIG_DURATION"),
    ):
        with pytest.raises(ps.PenstockError) as refused:
            sql.sql(statement)
        assert (statement, refused.value.code) == (statement, code)
    assert [entry.name for entry in sql.flow.sources()] == [orders]
    # Another session knows the view from its table, and goes on at the snapshots that it stands for.
    other = reopen(None)
    assert other.flow.views() == []
    other.sql(f"CREATE INCREMENTAL VIEW IF NOT EXISTS {view} AS {query}")
    other.sql(f"UPDATE {orders} SET amount = 2 WHERE id = 3")
    other.sql(f"REFRESH INCREMENTAL VIEW {view}")
    assert _rows(other, totals) == [("ann", "10.00"), ("cem", "2.00")]
    operations = [row.operation for row in spark.table(f"{view}.snapshots").orderBy("committed_at").collect()]
    assert operations == ["overwrite", "overwrite", "append", "overwrite"]
    assert _rows(other, f"DESCRIBE INCREMENTAL VIEW {view}")
    # A view on a view is in the same tick.
    other.sql(f"CREATE INCREMENTAL VIEW {view}_high AS SELECT * FROM {view} WHERE total > 5")
    other.sql(f"INSERT INTO {orders} VALUES (4, 'cem', 7)")
    other.sql(f"REFRESH INCREMENTAL VIEW {view}_high")
    assert _rows(other, f"SELECT customer FROM {view}_high") == [("ann",), ("cem",)]
    with pytest.raises(ps.StateError) as used:
        other.sql(f"DROP INCREMENTAL VIEW {view}")
    assert used.value.code == "FLOW_IN_USE"
    other.sql(f"DROP INCREMENTAL VIEW {view}_high")
    other.sql(f"CREATE OR REPLACE INCREMENTAL VIEW {view} AS SELECT count(*) AS n FROM {orders}")
    assert _rows(other, f"SELECT * FROM {view}") == [(3,)]
    last = reopen(None)
    last.sql(f"DROP INCREMENTAL VIEW IF EXISTS {view}")
    assert not spark.catalog.tableExists(view)
    last.sql(f"DROP INCREMENTAL VIEW IF EXISTS {view}")
    assert last.flow.sources() == []


def test_a_source_whose_history_is_gone_gives_all_rows_anew(
    reopen: Callable[[Path | None], ps.Session],
    sql: ps.Session,
    spark: SparkSession,
    lake: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table, view = f"{lake}.db.t", f"{lake}.db.v"
    create_table(spark, table, "copy-on-write", "k BIGINT, v INT")
    sql.sql(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    sql.sql(f"CREATE INCREMENTAL VIEW {view} AS SELECT k, v FROM {table} WHERE v > 1")
    sql.sql(f"DELETE FROM {table} WHERE k = 2")
    sql.sql(f"INSERT INTO {table} VALUES (3, 3)")
    spark.sql(f"CALL {lake}.system.expire_snapshots(table => 'db.t', older_than => now(), retain_last => 1)")
    again = reopen(None)
    again.sql(f"REFRESH INCREMENTAL VIEW {view}")
    assert _rows(again, f"SELECT * FROM {view}") == [(3, 3)]
    assert "gets all rows anew" in caplog.text
    assert stands_for(spark, view) == {table: str(IcebergTable(spark, table).snapshot)}


def test_sessions_that_refresh_a_view_in_turn_make_it_again_from_its_table(
    sql: ps.Session, spark: SparkSession, lake: str, caplog: pytest.LogCaptureFixture
) -> None:
    table, view = f"{lake}.db.t", f"{lake}.db.v"
    create_table(spark, table, "copy-on-write", "k BIGINT, v INT")
    sql.sql(f"INSERT INTO {table} VALUES (1, 1)")
    sql.sql(f"CREATE INCREMENTAL VIEW {view} AS SELECT count(*) AS n, sum(v) AS total FROM {table}")
    other = SessionFlow(sql)
    try:
        for number, flow in enumerate([other, sql.flow, other], 1):
            sql.sql(f"INSERT INTO {table} VALUES ({number}, 1)")
            flow.refresh_view(view)
            assert _rows(sql, f"SELECT * FROM {view}") == [(number + 1, number + 1)]
            assert stands_for(spark, view) == {table: str(IcebergTable(spark, table).snapshot)}
        assert caplog.text.count("was refreshed by another session") == 2
        spark.sql(f"INSERT INTO {view} VALUES (7, 7)")
        sql.sql(f"DELETE FROM {table}")
        with pytest.raises(ps.DataError) as changed:
            other.refresh_view(view)
        assert changed.value.code == "SINK_TABLE_CHANGED"
        last = spark.sql(f"SELECT parent_id FROM {view}.snapshots ORDER BY committed_at DESC LIMIT 1").first()
        assert last is not None
        spark.sql(f"CALL {lake}.system.rollback_to_snapshot('db.v', {last.parent_id})")
        other.refresh_view(view)
        assert _rows(sql, f"SELECT * FROM {view}") == [(0, None)]
    finally:
        other.close()


def test_a_view_that_is_refreshed_again_and_again_is_a_job(
    sql: ps.Session, spark: SparkSession, lake: str
) -> None:
    table, view = f"{lake}.db.t", f"{lake}.db.v"
    create_table(spark, table, "merge-on-read", "k BIGINT")
    sql.sql(f"INSERT INTO {table} VALUES (1)")
    sql.sql(f"CREATE INCREMENTAL VIEW {view} AS SELECT max(k) AS last FROM {table}")
    sql.sql(f"REFRESH INCREMENTAL VIEW {view} EVERY '200 milliseconds'")
    with open_backend(sql.settings) as backend:
        job = backend.jobs.get(view)
        assert (job.kind, job.state) == ("flow", JobState.RUNNING)
        with pytest.raises(ps.StateError, match="already"):
            sql.sql(f"REFRESH INCREMENTAL VIEW {view} EVERY '1 minute'")
        sql.sql(f"INSERT INTO {table} VALUES (2)")
        wait_for(lambda: _rows(sql, f"SELECT * FROM {view}") == [(2,)])
        waiting = threading.Thread(target=sql.wait_for_jobs)
        waiting.start()
        backend.jobs.request(view, "stop")
        wait_for(lambda: backend.jobs.get(view).state is JobState.STOPPED)
        waiting.join(30)
        assert not waiting.is_alive()
        sql.sql(f"INSERT INTO {table} VALUES (3)")
        sql.sql(f"REFRESH INCREMENTAL VIEW {view} EVERY '1 minute'")
        wait_for(lambda: _rows(sql, f"SELECT * FROM {view}") == [(3,)])
        spark.sql(f"ALTER TABLE {table} DROP COLUMN k")
        backend.jobs.request(view, "restart")
        wait_for(lambda: backend.jobs.get(view).state is JobState.FAILED)
        assert "column 'k' is gone" in (backend.jobs.get(view).message or "")


def test_of_two_sessions_that_create_a_view_one_is_refused_and_leaves_that_of_the_other(
    sql: ps.Session, spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, view = f"{lake}.db.t", f"{lake}.db.v"
    create_table(spark, table, "copy-on-write", "k BIGINT")
    sql.sql(f"INSERT INTO {table} VALUES (1)")
    other = SessionFlow(sql)
    create = LakeViews._create_table

    def overtaken(self: LakeViews, name: str) -> None:
        monkeypatch.setattr(LakeViews, "_create_table", create)
        other.register_view(view, f"SELECT max(k) AS k FROM {table}")
        create(self, name)

    monkeypatch.setattr(LakeViews, "_create_table", overtaken)
    try:
        with pytest.raises(ps.ConfigError) as refused:
            sql.sql(f"CREATE INCREMENTAL VIEW {view} AS SELECT k, k AS other FROM {table}")
        assert refused.value.code == "FLOW_NAME_TAKEN"
        assert (sql.flow.views(), sql.flow.sources()) == ([], [])
        sql.sql(f"INSERT INTO {table} VALUES (2)")
        other.refresh_view(view)
        assert _rows(sql, f"SELECT * FROM {view}") == [(2,)]
        # A fill that fails, and a table that somebody else owns by then.
        for owner, is_left in (("", False), ("another", True)):

            def failing(self: LakeViews, name: str, owner: str = owner, **_: Any) -> None:
                IcebergTable(spark, name).set_properties({iceberg_view.SINK: owner})
                raise Away

            with monkeypatch.context() as patched:
                patched.setattr(LakeViews, "_follow", failing)
                with pytest.raises(ps.PenstockError):
                    sql.sql(f"CREATE INCREMENTAL VIEW {view}2 AS SELECT k FROM {table}")
            assert spark.catalog.tableExists(f"{view}2") == is_left
            assert sql.flow.views() == []
        sql.sql(f"REFRESH INCREMENTAL VIEW {view}2")
        assert _rows(sql, f"SELECT * FROM {view}2") == [(1,), (2,)]
    finally:
        other.close()


def test_a_view_that_another_session_has_dropped_does_not_come_back(
    sql: ps.Session, spark: SparkSession, lake: str
) -> None:
    table, view = f"{lake}.db.t", f"{lake}.db.v"
    create_table(spark, table, "copy-on-write", "k BIGINT")
    sql.sql(f"INSERT INTO {table} VALUES (1)")
    sql.sql(f"CREATE INCREMENTAL VIEW {view} AS SELECT k FROM {table}")
    other = SessionFlow(sql)
    try:
        other.drop_view(view)
        for _ in range(2):
            sql.sql(f"INSERT INTO {table} VALUES (2)")
            with pytest.raises(ps.DataError) as gone:
                sql.sql(f"REFRESH INCREMENTAL VIEW {view}")
            assert gone.value.code == "SINK_TABLE_CHANGED"
            assert not spark.catalog.tableExists(view)
        sql.sql(f"DROP INCREMENTAL VIEW {view}")
        assert (sql.flow.views(), sql.flow.sources()) == ([], [])
    finally:
        other.close()


def test_a_flow_directory_whose_table_was_dropped_does_not_make_it_again(
    reopen: Callable[[Path | None], ps.Session], spark: SparkSession, lake: str, tmp_path: Path
) -> None:
    table, view = f"{lake}.db.t", f"{lake}.db.v"
    session = reopen(tmp_path / "flow")
    create_table(spark, table, "copy-on-write", "k BIGINT")
    session.sql(f"INSERT INTO {table} VALUES (1)")
    session.sql(f"CREATE INCREMENTAL VIEW {view} AS SELECT k FROM {table}")
    session.flow.close()
    spark.sql(f"DROP TABLE {view}")
    session._flow = SessionFlow(session, path=tmp_path / "flow")
    with pytest.raises(ps.DataError) as gone:
        session.flow.flush_sinks(60)
    assert gone.value.code == "SINK_TABLE_CHANGED"
    with pytest.raises(ps.DataError) as gone:
        session.sql(f"REFRESH INCREMENTAL VIEW {view}")
    assert gone.value.code == "SINK_TABLE_CHANGED"
    assert not spark.catalog.tableExists(view)
    session.sql(f"DROP INCREMENTAL VIEW {view}")
    assert (session.flow.views(), session.flow.sources()) == ([], [])
    session.sql(f"CREATE INCREMENTAL VIEW {view} AS SELECT k FROM {table}")
    assert _rows(session, f"SELECT * FROM {view}") == [(1,)]


def test_the_table_of_a_suspended_view_stands_for_what_it_stood_for(
    reopen: Callable[[Path | None], ps.Session], sql: ps.Session, spark: SparkSession, lake: str
) -> None:
    table, view = f"{lake}.db.t", f"{lake}.db.v"
    create_table(spark, table, "copy-on-write", "k BIGINT, s STRING")
    sql.sql(f"INSERT INTO {table} VALUES (1, '1')")
    query = "SELECT k, CAST(s AS INT) AS n FROM {a}"
    sql.sql(f"CREATE INCREMENTAL VIEW {view} WITH (on_error = 'suspend') AS {query.format(a=table)}")
    sql.sql(f"CREATE INCREMENTAL VIEW {view}_all AS SELECT count(*) AS n FROM {table}")
    sql.sql(f"INSERT INTO {table} VALUES (2, 'x')")
    sql.sql(f"REFRESH INCREMENTAL VIEW {view}_all")
    assert _rows(sql, f"SELECT * FROM {view}_all") == [(2,)]
    assert sql.flow.flush_sinks(60)
    _compare(spark, view, query, {"a": table})
    sql.sql(f"INSERT INTO {table} VALUES (3, '3')")
    with pytest.raises(ps.PenstockError):
        sql.sql(f"REFRESH INCREMENTAL VIEW {view}")
    assert sql.flow.flush_sinks(60)
    _compare(spark, view, query, {"a": table})
    assert _rows(sql, f"SELECT * FROM {view}") == [(1, 1)]
    sql.sql(f"DELETE FROM {table} WHERE k = 2")
    sql.sql(f"REFRESH INCREMENTAL VIEW {view}")
    assert _rows(sql, f"SELECT * FROM {view}") == [(1, 1), (3, 3)]
    assert stands_for(spark, view) == {table: str(IcebergTable(spark, table).snapshot)}
    again = reopen(None)
    again.sql(f"UPDATE {table} SET s = '4' WHERE k = 3")
    again.sql(f"REFRESH INCREMENTAL VIEW {view}")
    assert _rows(again, f"SELECT * FROM {view}") == [(1, 1), (3, 4)]


@pytest.fixture
def use(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """USE, until the end of the test."""
    before = f"{spark.catalog.currentCatalog()}.{spark.catalog.currentDatabase()}"

    def chosen(schema: str) -> None:
        spark.sql(f"USE {schema}")

    yield chosen
    spark.sql(f"USE {before}")


def test_names_after_use_are_those_that_they_were_when_the_view_was_made(
    reopen: Callable[[Path | None], ps.Session],
    sql: ps.Session,
    spark: SparkSession,
    lake: str,
    use: Callable[[str], None],
) -> None:
    for schema, amount in (("db", 1), ("other", 7)):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake}.{schema}")
        create_table(spark, f"{lake}.{schema}.t", "copy-on-write", "k BIGINT, v BIGINT")
        spark.sql(f"INSERT INTO {lake}.{schema}.t VALUES (1, {amount})")
    spark.sql("CREATE OR REPLACE TEMP VIEW shadow AS SELECT 1 AS k, 100 AS v")
    use(f"{lake}.db")
    create_table(spark, f"{lake}.db.shadow", "copy-on-write", "k BIGINT, v BIGINT")
    view = f"{lake}.db.v"
    query = """
        /* 𝒕 and t */ WITH u AS (SELECT k, v FROM `t`), w AS (SELECT * FROM other . t)
        SELECT t.k, t.v + u.v + w.v + s.v AS total, (SELECT max(v) FROM t) AS most
        FROM t JOIN u ON t.k = u.k JOIN w ON w.k = t.k JOIN shadow AS s ON s.k = t.k
        WHERE t.k IN (SELECT k FROM u) AND '𝒕' <> 'FROM t'"""
    sql.sql(f"CREATE INCREMENTAL VIEW {view} AS {query}")
    sql.sql("CREATE SOURCE mine FROM TABLE t")
    assert sorted(source.name for source in sql.flow.sources()) == [f"{lake}.db.t", f"{lake}.other.t", "mine"]
    assert _rows(sql, "SELECT * FROM v") == [(1, 109, 1)]
    use(f"{lake}.other")
    sql.sql(f"INSERT INTO {lake}.db.t VALUES (2, 5)")
    sql.sql("REFRESH SOURCE mine")
    assert _rows(sql, "SELECT * FROM mine") == [(1, 1), (2, 5)]
    sql.sql(f"REFRESH INCREMENTAL VIEW {view}")
    assert _rows(sql, f"SELECT * FROM {view}") == [(1, 109, 5)]
    with pytest.raises(ps.ConfigError):
        sql.sql("REFRESH INCREMENTAL VIEW v")
    use(f"{lake}.db")
    sql.sql(f"UPDATE {lake}.other.t SET v = 8")
    sql.sql("REFRESH INCREMENTAL VIEW v")
    assert _rows(sql, "SELECT * FROM v") == [(1, 110, 5)]
    assert _rows(sql, "DESCRIBE INCREMENTAL VIEW v")
    sql.sql("CREATE INCREMENTAL VIEW IF NOT EXISTS v AS SELECT 1 AS one FROM t")
    for statement, code in (
        ("INSERT INTO v VALUES (1, 1, 1)", "FLOW_UNKNOWN_SOURCE"),
        ("DROP TABLE v", "SQL_WRONG_KIND"),
        ("CREATE INCREMENTAL VIEW v AS SELECT k FROM t", "FLOW_NAME_TAKEN"),
    ):
        with pytest.raises(ps.PenstockError) as refused:
            sql.sql(statement)
        assert (statement, refused.value.code) == (statement, code)
    # A session that has chosen nothing finds the same tables.
    use("spark_catalog.default")
    spark.sql(f"INSERT INTO {lake}.db.t VALUES (3, 6)")
    other = reopen(None)
    other.sql(f"REFRESH INCREMENTAL VIEW {view}")
    assert _rows(other, f"SELECT * FROM {view}") == [(1, 110, 6)]
    use(f"{lake}.db")
    other.sql("CREATE OR REPLACE INCREMENTAL VIEW v AS SELECT count(*) AS n FROM db.t")
    assert _rows(other, f"SELECT * FROM {view}") == [(3,)]
    again = reopen(None)
    again.sql("REFRESH INCREMENTAL VIEW v")
    assert [found.name for found in again.flow.views()] == [view]
    again.sql("DROP INCREMENTAL VIEW v")
    assert not spark.catalog.tableExists(view)
    spark.catalog.dropTempView("shadow")


def test_names_that_need_quotes_and_versions_are_refused(
    sql: ps.Session, spark: SparkSession, lake: str
) -> None:
    create_table(spark, f"{lake}.db.t", "copy-on-write", "k BIGINT")
    create_table(spark, f"{lake}.db.`my-t`", "copy-on-write", "k BIGINT")
    spark.sql(f"INSERT INTO {lake}.db.t VALUES (1)")
    snapshot = IcebergTable(spark, f"{lake}.db.t").snapshot
    for view, query in (
        ("`my-v`", f"SELECT k FROM {lake}.db.t"),
        ("v", f"SELECT k FROM {lake}.db.`my-t`"),
        ("v", f"SELECT k FROM {lake}.db.t VERSION AS OF {snapshot}"),
    ):
        with pytest.raises(ps.SqlError) as refused:
            sql.sql(f"CREATE INCREMENTAL VIEW {lake}.db.{view} AS {query}")
        assert (query, refused.value.code) == (query, "SQL_LAKE_NAME")
    with pytest.raises(ps.ConfigError, match="not known"):
        sql.sql(f"REFRESH INCREMENTAL VIEW {lake}.db.`my-v`")
    sql.sql(f"DROP INCREMENTAL VIEW IF EXISTS {lake}.db.`my-v`")
    assert (sql.flow.views(), sql.flow.sources()) == ([], [])
