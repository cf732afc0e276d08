"""Results that leave Spark in batches bounded by bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import penstock as ps
from penstock.spark import arrow_stream
from waiting import wait_for

BYTES = 100_000
WIDE = "SELECT id, repeat('x', 9000) AS text FROM range(0, 300, 1, 3)"


@pytest.fixture
def bounded(session: ps.Session) -> Iterator[None]:
    """A small bound, so that a few rows reach it."""
    key = "spark.sql.execution.arrow.maxBytesPerBatch"
    before = session.spark.conf.get(key)
    session.spark.conf.set(key, str(BYTES))
    yield
    session.spark.conf.set(key, str(before))


def _streamed(frame: DataFrame) -> list[pa.RecordBatch]:
    return list(arrow_stream.stream(frame)[1])


WAYS: dict[str, Callable[[ps.Session, DataFrame], list[pa.RecordBatch]]] = {
    "toArrow": lambda _, frame: frame.toArrow().to_batches(),
    "stream": lambda _, frame: _streamed(frame),
    "submit": lambda session, frame: session.submit(frame).result(timeout=120).to_batches(),
    "timeout": lambda session, _: session.sql_with_timeout(WIDE, 600_000).to_batches(),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_bounded_by_bytes(session: ps.Session, bounded: None, way: str) -> None:
    batches = WAYS[way](session, session.sql(WIDE))
    assert [n for batch in batches for n in batch["id"].to_pylist()] == list(range(300))
    assert max(batch.nbytes for batch in batches) < BYTES + 10_000
    # As few as the bound allows, and none without rows: twelve rows of nine thousand bytes each.
    assert len(batches) == 27
    assert all(batch.num_rows for batch in batches)


def test_a_row_that_is_larger_than_the_bound_is_a_batch_of_its_own(
    session: ps.Session, bounded: None
) -> None:
    rows = session.sql("SELECT repeat('x', 300000) AS text FROM range(0, 4, 1, 1)").toArrow()
    assert [batch.num_rows for batch in rows.to_batches()] == [1, 1, 1, 1]


def test_rows_are_bounded_too(session: ps.Session) -> None:
    rows = session.sql("SELECT id FROM range(0, 25000, 1, 1)").toArrow()
    assert [batch.num_rows for batch in rows.to_batches()] == [10_000, 10_000, 5_000]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM range(0)",
        "SELECT 1 AS one WHERE false",
        "SELECT id FROM range(0, 10, 1, 7) WHERE id IN (3, 9)",
        "SELECT NULL AS nothing, CAST(NULL AS STRING) AS text",
        "SELECT timestamp'2024-01-02 03:04:05' AS t, timestamp_ntz'2024-01-02 03:04:05' AS n, 1.50BD AS d, X'00ff' AS x",
        "SELECT array(1, NULL) AS a, map('k', 1) AS m, named_struct('s', 'v') AS s, interval '1' day AS i",
        "SELECT id % 3 AS k, sum(id) AS s FROM range(100) GROUP BY 1 ORDER BY 1",
        "SELECT id FROM range(100) ORDER BY id DESC LIMIT 3",
        "VALUES (1, 'a'), (2, NULL)",
        "SHOW FUNCTIONS LIKE 'abs'",
    ],
)
def test_a_stream_has_the_columns_and_rows_of_to_arrow(session: ps.Session, query: str) -> None:
    table = session.sql(query).toArrow()
    schema, batches = arrow_stream.stream(session.sql(query))
    streamed = pa.Table.from_batches(list(batches), schema)
    assert streamed.schema == table.schema
    assert streamed.to_pylist() == table.to_pylist()
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        tuple(row.values()) for row in session.submit(query).result(timeout=120).to_pylist()
    ]


def test_a_whole_result_keeps_to_the_limit_of_spark(
    session: ps.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.spark.sparkContext._jsc.sc().conf().set("spark.driver.maxResultSize", "1m")
    try:
        with pytest.raises(ps.DataError) as caught:
            session.sql_with_timeout(WIDE, 600_000)
        assert caught.value.code == "SPARK_RESULT_SIZE"
        assert sum(batch.num_rows for batch in _streamed(session.sql(WIDE))) == 300
    finally:
        session.spark.sparkContext._jsc.sc().conf().remove("spark.driver.maxResultSize")


def test_what_nobody_reads_to_the_end_ends(session: ps.Session) -> None:
    _, batches = arrow_stream.stream(
        session.sql("SELECT id, repeat('x', 9000) AS t FROM range(0, 4000000, 1, 400)")
    )
    next(batches)
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    wait_for(lambda: not session.spark.sparkContext.statusTracker().getActiveJobsIds(), "end of the job")


def test_an_error_in_the_middle_is_raised_and_not_taken_for_the_end(session: ps.Session) -> None:
    # Other tasks are interrupted while they send, which closes their channel: one in fourteen results said that instead of the error.
    for number in range(60):
        frame = session.sql(f"SELECT id, 1 / (id - {90_000 + number}) AS x FROM range(0, 100000, 1, 10)")
        # Where the reader is slow, the job may have failed before the first message is read.
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            _streamed(frame)
