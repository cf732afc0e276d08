"""Ticks that fail: the error says where and shows rows, nothing has changed, and the tick can be fed again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import DeltaBatch

NUMBERS = "id INT, k INT, v BIGINT, s STRING"
LARGE = 9223372036854775807


def number(at: int, k: int | None = 1, v: int | None = 1, s: str | None = "1") -> dict[str, Any]:
    return {"id": at, "k": k, "v": v, "s": s}


@dataclass(frozen=True, slots=True)
class Failure:
    """A view, a row that makes its tick fail, and what the error must say."""

    name: str
    sql: str
    bad: dict[str, Any]
    code: str
    operator: str
    shown: str
    tier: str = "kernel"


FAILURES = [
    Failure("division", "SELECT id, 10 / k AS q FROM t", number(9, k=0), "DATA_DIVIDE_BY_ZERO", "", "0"),
    Failure("overflow", "SELECT id, v + 1 AS n FROM t", number(9, v=LARGE), "DATA_OVERFLOW", "", str(LARGE)),
    Failure("named column", "SELECT id, v * 3 AS n FROM t", number(9, v=LARGE), "DATA_OVERFLOW", "", "v * 3"),
    Failure("cast", "SELECT id FROM t WHERE CAST(s AS INT) > 0", number(9, s="x"), "DATA_CAST", "", "'x'"),
    Failure(
        "sum",
        "SELECT k, sum(v) AS s FROM t GROUP BY k",
        number(9, v=LARGE),
        "DATA_OVERFLOW",
        "aggregate",
        "k=1",
    ),
    Failure(
        "total", "SELECT sum(v) AS s FROM t", number(9, v=LARGE), "DATA_OVERFLOW", "aggregate", f"v={LARGE}"
    ),
    Failure(
        "running sum",
        "SELECT id, sum(v) OVER (ORDER BY id) AS s FROM t",
        number(9, v=LARGE),
        "DATA_OVERFLOW",
        "window",
        f"changed rows of the partition: (id=3, v=1), (id=9, v={LARGE})",
    ),
    Failure(
        "scalar subquery",
        "SELECT id, (SELECT v FROM t WHERE id IN (2, 9)) AS w FROM t",
        number(9, v=5),
        "DATA_SCALAR_SUBQUERY",
        "single",
        "5",
    ),
    Failure(
        "correlated subquery",
        "SELECT id, (SELECT u.v FROM t u WHERE u.id = t.id) AS w FROM t",
        number(2),
        "DATA_SCALAR_SUBQUERY",
        "",
        "2",
    ),
    Failure(
        "behind a join",
        "SELECT t.id, 1 / (t.k - u.k + 1) AS q FROM t JOIN t u ON t.id = u.id + 7",
        number(9, k=0),
        "DATA_DIVIDE_BY_ZERO",
        "",
        "0",
    ),
    Failure(
        "raised",
        "SELECT id, IF(k < 0, raise_error('no negative keys'), k) AS k FROM t",
        number(9, k=-3),
        "DATA_RAISED",
        "",
        "-3",
        tier="spark",
    ),
    Failure(
        "on Spark over the change",
        "SELECT id, sha2(s, 256) AS h, to_binary(concat('0', s), 'hex') AS n FROM t",
        number(9, s="x"),
        "DATA_CONVERSION_INVALID_INPUT",
        "",
        "'x'",
        tier="spark",
    ),
    Failure(
        "on Spark over all rows",
        "SELECT approx_count_distinct(CAST(10 DIV k AS STRING) COLLATE UTF8_LCASE) AS n FROM t",
        number(9, k=0),
        "DATA_DIVIDE_BY_ZERO",
        "",
        "(k=0)",
        tier="recompute",
    ),
]


@pytest.mark.parametrize("failure", FAILURES, ids=[failure.name for failure in FAILURES])
@pytest.mark.parametrize("diff_based", [False, True], ids=["stepped", "recomputed"])
def test_a_tick_that_fails_changes_nothing(session: ps.Session, failure: Failure, diff_based: bool) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", NUMBERS)
    flow.register_source("other", "x INT")
    flow.register_view("before", "SELECT count(*) AS n FROM t")
    assert flow.register_view("failing", failure.sql).tier == failure.tier
    flow.register_view("behind", "SELECT * FROM failing")
    if diff_based:
        flow.force_diff_based()
    flow.tick("t", [number(1), number(2)])
    watch = flow.watch_output("before")
    before = _state(flow)
    for _ in range(2):
        flow.feed("other", [{"x": 1}])
        with pytest.raises(ps.DataError) as caught:
            flow.tick("t", [number(3), failure.bad])
        assert caught.value.code == failure.code
        where = caught.value.where or ""
        assert where.startswith("view 'failing'")
        assert failure.operator in where or diff_based
        assert failure.shown in str(caught.value) or diff_based
        assert _state(flow) == before
        assert watch.recv(timeout=0) is None
    flow.tick("t", [number(3, k=2)])
    assert flow.snapshot("before").to_pylist() == [{"n": 3}]
    assert flow.snapshot("behind") == flow.snapshot("failing")
    watch.close()


@pytest.mark.parametrize("failure", FAILURES, ids=[failure.name for failure in FAILURES])
@pytest.mark.parametrize("diff_based", [False, True], ids=["stepped", "recomputed"])
def test_the_tick_goes_on_without_a_view_that_may_be_suspended(
    session: ps.Session, failure: Failure, diff_based: bool
) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", NUMBERS)
    flow.register_view("before", "SELECT count(*) AS n FROM t")
    flow.register_view("failing", failure.sql, on_error="suspend")
    flow.register_view("behind", "SELECT * FROM failing")
    if diff_based:
        flow.force_diff_based()
    flow.tick("t", [number(1), number(2)])
    last = _sorted(flow.snapshot("failing"))
    summary = flow.tick("t", [number(3), failure.bad])
    assert flow.snapshot("before").to_pylist() == [{"n": 4}]
    assert _sorted(flow.snapshot("failing")) == _sorted(flow.snapshot("behind")) == last
    stopped = {name: view.suspended for name, view in summary.views.items() if view.suspended is not None}
    assert {name: (one.code, one.tick, one.because) for name, one in stopped.items()} == {
        "failing": (failure.code, 2, None),
        "behind": (failure.code, 2, "failing"),
    }
    with pytest.raises(ps.DataError) as again:
        flow.resume_view("failing")
    assert again.value.code == failure.code
    flow.tick("t", DeltaBatch.deletes([failure.bad]))
    flow.resume_view("failing")
    flow.tick("t", [number(4, k=3)])
    assert (
        _sorted(flow.snapshot("failing"))
        == _sorted(flow.snapshot("behind"))
        == _answer(session, flow, failure.sql)
    )


def test_a_correlation_with_a_constant_column_suspends_its_view_alone(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", NUMBERS)
    flow.register_view("related", "SELECT corr(k, v) AS c FROM t", on_error="suspend")
    flow.register_view("sums", "SELECT k, sum(v) AS s FROM t GROUP BY k")
    flow.tick("t", [number(1, k=1, v=1), number(2, k=1, v=2), number(3, k=2, v=3)])
    before = flow.snapshot("related")
    flow.tick("t", DeltaBatch.deletes([number(3, k=2, v=3)]))
    suspended = flow.explain("related").suspended
    assert suspended is not None
    assert suspended.code == "DATA_DIVIDE_BY_ZERO"
    assert flow.snapshot("related") == before
    assert flow.snapshot("sums").to_pylist() == [{"k": 1, "s": 3}]
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        _answer(session, flow, "SELECT corr(k, v) AS c FROM t")
    flow.tick("t", [number(4, k=5, v=4)])
    flow.resume_view("related")
    assert _sorted(flow.snapshot("related")) == _answer(session, flow, "SELECT corr(k, v) AS c FROM t")


def test_a_suspended_view_of_a_static_table_is_rebuilt_from_the_definition(session: ps.Session) -> None:
    session.register_table(
        "divisors", pa.table({"k": pa.array([1, 2], pa.int32()), "d": pa.array([1, 0], pa.int32())})
    )
    sql = "SELECT id, v DIV d AS q FROM t JOIN divisors USING (k)"
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", NUMBERS)
    flow.register_view("divided", sql, on_error="suspend")
    flow.tick("t", [number(1, k=1, v=8)])
    flow.tick("t", [number(2, k=2, v=8)])
    assert flow.explain("divided").suspended is not None
    session.register_table(
        "divisors", pa.table({"k": pa.array([1, 2], pa.int32()), "d": pa.array([2, 4], pa.int32())})
    )
    flow.reload_static("divisors")
    flow.resume_view("divided")
    assert _sorted(flow.snapshot("divided")) == [(1, 4), (2, 2)]
    again = ps.IncrementalFlow.from_definition(flow.definition(), session)
    assert again._graph.views["divided"].on_error == "suspend"


def _answer(session: ps.Session, flow: ps.IncrementalFlow, sql: str) -> list[tuple[Any, ...]]:
    """What Spark answers over the rows of now."""
    spark = session.spark.newSession()
    spark.createDataFrame(flow.snapshot("t")).createOrReplaceTempView("t")
    return sorted(tuple(row) for row in spark.sql(sql).collect())


def _sorted(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def _state(flow: ps.IncrementalFlow) -> list[Any]:
    names = ("t", "other", "before", "failing", "behind")
    return [flow.metrics()["penstock_flow_ticks_total"], *(flow.snapshot(name).to_pylist() for name in names)]


@pytest.mark.parametrize("wrong", range(5))
def test_the_rows_of_the_failing_partition_are_shown(session: ps.Session, wrong: int) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", NUMBERS)
    flow.register_view("running", "SELECT id, sum(v) OVER (PARTITION BY k ORDER BY id) AS s FROM t")
    flow.tick("t", [number(k, k=k) for k in range(5)])
    changes = [number(10 + k, k=k, v=LARGE if k == wrong else 1) for k in range(5)]
    with pytest.raises(ps.DataError) as caught:
        flow.tick("t", changes)
    assert str(caught.value).count("id=") == 1
    assert f"changed rows of the partition: (id={10 + wrong}, v={LARGE}, k={wrong})" in str(caught.value)


def test_a_retraction_of_a_missing_row_shows_it(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", NUMBERS)
    flow.tick("t", [number(1)])
    with pytest.raises(ps.DataError, match=r"id=2") as caught:
        flow.tick("t", DeltaBatch.deletes([number(1), number(2)]))
    assert caught.value.code == "DATA_MISSING_ROW"
    assert caught.value.where == "source 't'"
    assert flow.snapshot("t").num_rows == 1
    flow.tick("t", DeltaBatch.deletes([number(1)]))
    assert flow.snapshot("t").num_rows == 0


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([{**number(1), "_weight": None}], "DELTA_WEIGHT"),
        ([{**number(1), "_weight": 1.5}], "DELTA_WEIGHT"),
        ([number(1)], "DELTA_WEIGHT"),
    ],
    ids=["NULL", "a fraction", "none"],
)
def test_weights_are_whole_numbers(rows: list[dict[str, Any]], code: str) -> None:
    with pytest.raises(ps.DataError) as caught:
        DeltaBatch.weighted(rows)
    assert caught.value.code.startswith(code)


def test_views_cannot_read_each_other(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", NUMBERS)
    with pytest.raises(ps.SqlError, match="second") as caught:
        flow.register_view("first", "SELECT id FROM second")
    assert caught.value.code == "SQL_UNKNOWN_TABLE"
    flow.register_view("second", "SELECT id FROM t")
    flow.register_view("first", "SELECT id FROM second")
    with pytest.raises(ps.ConfigError) as taken:
        flow.register_view("second", "SELECT id FROM first")
    assert taken.value.code == "FLOW_NAME_TAKEN"


@pytest.mark.parametrize("call", ["rand()", "uuid()", "randn(1)", "monotonically_increasing_id()"])
def test_chance_is_refused_with_the_reason(session: ps.Session, call: str) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", NUMBERS)
    for query in (f"SELECT id, {call} AS x FROM t", f"SELECT count(*) AS n FROM t WHERE hash({call}) = 1"):
        with pytest.raises(ps.SqlError, match="every time") as caught:
            flow.register_view("v", query)
        assert caught.value.code == "SQL_NONDETERMINISTIC"
    assert flow.register_view("v", "SELECT id, now() AS at, current_date AS day FROM t").tier == "kernel"


def test_a_static_table_that_cannot_be_read_is_named(session: ps.Session, tmp_path: Path) -> None:
    frame = session.spark.createDataFrame([(1, "Peru")], "k INT, country STRING")
    frame.coalesce(1).write.parquet(str(tmp_path / "countries"))
    session.register_table("countries_of_files", str(tmp_path / "countries"))
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", NUMBERS)
    flow.register_view("good", "SELECT id, country FROM t JOIN countries_of_files USING (k)")
    flow.tick("t", [number(1)])
    for file in (tmp_path / "countries").glob("*.parquet"):
        file.unlink()
    with pytest.raises(ps.PenstockError) as reloaded:
        flow.reload_static("countries_of_files")
    assert "static table 'countries_of_files'" in str(reloaded.value.where)
    flow.drop_view("good")
    with pytest.raises(ps.PenstockError) as registered:
        flow.register_view("again", "SELECT id, country FROM t JOIN countries_of_files USING (k)")
    assert "static table 'countries_of_files'" in str(registered.value.where)
    assert type(registered.value).__module__ == "penstock.errors"
    assert flow.tick("t", [number(2)]).tick == 2
    with pytest.raises(ps.ConfigError):
        flow.explain("again")


def test_what_the_optimizer_refuses_is_an_error_of_the_view(session: ps.Session) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", NUMBERS)
    flow.register_source("other", "x INT")
    session.spark.conf.set("spark.sql.crossJoin.enabled", "false")
    try:
        with pytest.raises(ps.SqlError) as caught:
            flow.register_view("pairs", "SELECT id, x FROM t, other")
    finally:
        session.spark.conf.unset("spark.sql.crossJoin.enabled")
    assert str(caught.value.where).startswith("view 'pairs'")
    assert flow.register_view("pairs", "SELECT id, x FROM t, other").tier == "kernel"
