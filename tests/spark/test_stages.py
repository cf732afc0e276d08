"""explain_stages: before and after a run, for joins, broadcasts, subqueries, reuse and caches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.spark.stages import StageOperator, Stages

JOIN = "SELECT * FROM st1 JOIN st2 ON st1.name = st2.name"


@pytest.fixture(scope="module")
def tables(session: ps.Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stages")
    for table in ("st1", "st2"):
        (folder / table).mkdir()
        for part in range(2):
            rows = pa.table(
                {"id": [*range(part * 50, part * 50 + 50)], "name": [str(n % 10) for n in range(50)]}
            )
            pq.write_table(rows, folder / table / f"{part}.parquet")
        session.register_table(table, folder / table)
    return folder


@contextmanager
def settings(session: ps.Session, **conf: str) -> Iterator[None]:
    wanted = {f"spark.sql.{key.replace('__', '.')}": value for key, value in conf.items()}
    before = {name: session.spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        session.spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                session.spark.conf.set(name, old)


def _names(stages: Stages, number: int) -> list[str]:
    return [operator.name for operator in stages.stages[number].root.walk()]


def test_a_join_has_three_stages(session: ps.Session, tables: Path) -> None:
    with settings(session, autoBroadcastJoinThreshold="-1", shuffle__partitions="3"):
        before = session.explain_stages(JOIN)
        assert not before.final
        assert [stage.number for stage in before.stages] == [0, 1, 2]
        assert before.stages[0].partitions == 3
        assert before.stages[0].inputs == (1, 2)
        assert _names(before, 0) == ["SortMergeJoin", "Sort", "ShuffleRead", "Sort", "ShuffleRead"]
        assert _names(before, 1) == ["Exchange", "Filter", "Scan parquet"]
        text = str(before)
        assert "===============Stage 0 (partitions=3)===============" in text
        assert "    ShuffleRead <- stage 2" in text
        assert "Exchange hashpartitioning(name, 3)" in text
        assert "#" not in text
        assert "Executors" not in text
        op = session.submit(JOIN)
        rows = op.result(timeout=120).num_rows
        assert rows == 1000
        after = session.explain_stages(op)
        op.fetch(op.tickets[0])
        assert session.explain_stages(op) == after == session.explain_stages(JOIN)
    assert after.final
    assert after.stages[0].partitions == len(op.tickets)
    assert after.stages[1].partitions == 2
    for stage in after.stages:
        assert [*stage.tasks.values()] == [tuple(range(stage.partitions or 0))]
        assert stage.spark_stage is not None
    assert "Executors (stage/{partitions}):\n  driver (127.0.0.1:" in str(after)
    assert ": 0/{0}, 1/{0-1}, 2/{0-1}" in str(after)


def test_a_frame_that_ran(session: ps.Session, tables: Path) -> None:
    frame = session.sql("SELECT name, count(*) AS n FROM st1 GROUP BY name")
    assert not session.explain_stages(frame).final
    frame.collect()
    after = session.explain_stages(frame)
    assert after.final
    assert all(stage.tasks for stage in after.stages)
    simple = session.sql("SELECT id FROM range(0, 10, 1, 4)")
    simple.toArrow()
    assert session.explain_stages(simple).stages[0].tasks == {"driver": (0, 1, 2, 3)}


def test_broadcasts_subqueries_and_top_rows(session: ps.Session, tables: Path) -> None:
    query = """
        SELECT a.name, count(*) AS n FROM st1 a JOIN st2 b ON a.name = b.name
        WHERE a.id > (SELECT avg(id) FROM st2) GROUP BY a.name ORDER BY n LIMIT 5
    """
    before = session.explain_stages(query)
    kinds = [stage.kind for stage in before.stages]
    assert kinds.count("broadcast") == 1
    assert "subquery" in kinds
    # The top rows are gathered by a shuffle of the operator's own.
    assert _names(before, 0) == ["TakeOrderedAndProject", "ShuffleRead"]
    session.sql_with_timeout(query, 120_000)
    after = session.explain_stages(query)
    assert after.final
    assert [stage.kind for stage in after.stages].count("subquery") == 1
    assert all(stage.tasks for stage in after.stages)
    assert "BroadcastRead <- stage" in str(after)
    assert "(subquery: stage" in str(after)
    assert ", broadcast)====" in str(after)


def test_a_reused_exchange_is_one_stage(session: ps.Session, tables: Path) -> None:
    query = "WITH g AS (SELECT name, count(*) AS n FROM st1 GROUP BY name) SELECT * FROM g a JOIN g b ON a.name = b.name"
    with settings(session, autoBroadcastJoinThreshold="-1"):
        session.sql_with_timeout(query, 120_000)
        after = session.explain_stages(query)
    reads = [operator for operator in after.stages[0].root.walk() if operator.reads is not None]
    assert [operator.reads for operator in reads] == [1, 1]
    assert [operator.reused for operator in reads] == [False, True]
    assert "(reused)" in str(after)
    assert len(after.stages) == 2


def test_a_cached_table_is_named(session: ps.Session, tables: Path) -> None:
    session.sql("CACHE TABLE cached_counts AS SELECT name, count(*) AS n FROM st2 WHERE id > 7 GROUP BY name")
    try:
        found = session.explain_stages("SELECT * FROM cached_counts UNION ALL SELECT * FROM cached_counts")
        assert [stage.kind for stage in found.stages] == ["result", "cache", "shuffle"]
        assert found.stages[0].inputs == (1,)
        assert found.stages[0].partitions == 2 * (found.stages[1].partitions or 0)
    finally:
        session.sql("UNCACHE TABLE cached_counts")


def test_without_adaptive_execution(session: ps.Session, tables: Path) -> None:
    with settings(session, adaptive__enabled="false", shuffle__partitions="2"):
        frame = session.sql("SELECT id % 3 AS k, count(*) AS n FROM st2 GROUP BY id % 3")
        assert not any(stage.tasks for stage in session.explain_stages(frame).stages)
        frame.toArrow()
        after = session.explain_stages(frame)
    assert [stage.tasks for stage in after.stages] == [{"driver": (0, 1)}, {"driver": (0, 1)}]


def test_odd_ones(session: ps.Session) -> None:
    for query in ("SELECT 1 AS one", "SHOW TABLES", "SELECT * FROM range(5) WHERE false"):
        assert session.explain_stages(query).stages[0].kind == "result"
    op = session.submit("SELECT * FROM not_there")
    op.wait(120)
    with pytest.raises(ps.StateError, match="no plan to show: it is FAILED"):
        session.explain_stages(op)
    with pytest.raises(ps.SqlError, match="syntax error"):
        session.explain_stages("SELEC 1")


def test_long_operators_are_cut_in_the_text_only() -> None:
    from penstock.spark.stages import Stage

    stages = Stages((Stage(0, "result", None, StageOperator("Project", "x" * 500)),), final=True)
    assert max(map(len, str(stages).splitlines())) <= 140
    assert "(partitions=?)" in str(stages)
