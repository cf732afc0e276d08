"""Submitted queries on a real Spark: tickets, threads, cancels."""

from __future__ import annotations

import random
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from spark_jobs import active_jobs
from waiting import wait_for

ENDLESS = "SELECT count(*) AS n FROM range(0, 10000000000000L, 1, 4) WHERE id % 7 = 3"


@pytest.mark.smoke
def test_tickets_give_the_rows_once_and_in_order(session: ps.Session) -> None:
    query = "SELECT id, id % 10 AS k, repeat('x', 20) AS text FROM range(0, 20000, 1, 5) ORDER BY k, id DESC"
    session.sql("SET spark.sql.adaptive.coalescePartitions.enabled=false")
    try:
        op = session.submit(query)
        expected = session.sql(query).toArrow()
        assert len(op.tickets) > 1
        batches = [batch for ticket in op.tickets for batch in op.fetch(ticket)]
        assert pa.Table.from_batches(batches, op.schema).equals(expected)
        assert op.result(timeout=120).equals(expected)
        assert op.state is ps.OperationState.DONE
    finally:
        session.sql("RESET spark.sql.adaptive.coalescePartitions.enabled")


def test_eight_threads_in_any_order_get_the_same_rows(session: ps.Session) -> None:
    # rand() without a seed would differ if a partition were computed again.
    op = session.submit("SELECT id, rand() AS r, uuid() AS u FROM range(0, 50000, 1, 16)")
    expected = op.result(timeout=120)
    assert len(op.tickets) == 16
    order = [*op.tickets, *op.tickets]
    random.Random(7).shuffle(order)
    with ThreadPoolExecutor(8) as pool:
        fetched = list(pool.map(op.fetch, order))
    found: dict[int, pa.Table] = {}
    for ticket, batches in zip(order, fetched, strict=True):
        table = pa.Table.from_batches(batches, op.schema)
        assert table.equals(found.setdefault(ticket.partition, table))
    assert pa.concat_tables(found[number] for number in range(16)).equals(expected)


def test_a_ticket_reads_only_its_own_partition(session: ps.Session) -> None:
    store = session.spark.sparkContext._jsc.sc().statusStore()
    op = session.submit("SELECT id FROM range(0, 1000, 1, 10)")
    assert op.wait(120)
    ticket = op.tickets[3]
    before = {job.jobId() for job in _jobs(store)}
    (batch,) = op.fetch(ticket)
    assert batch.column(0).to_pylist() == [*range(300, 400)]
    wait_for(lambda: len({job.jobId() for job in _jobs(store)} - before) == 1, "job of the ticket")
    (job,) = [job for job in _jobs(store) if job.jobId() not in before]
    assert job.numTasks() == 1


def _jobs(store: Any) -> list[Any]:
    """The jobs of Spark's status store; both are Java objects."""
    listed = store.jobsList(None)
    return [listed.apply(index) for index in range(listed.size())]


def test_a_frame_and_a_command_can_be_submitted(session: ps.Session) -> None:
    frame = session.sql("SELECT 1 AS a, 'x' AS b, CAST(NULL AS DECIMAL(10,2)) AS c, array(1, 2) AS d")
    assert session.submit(frame).result(timeout=120).equals(frame.toArrow())
    assert (
        session.submit("CREATE OR REPLACE TEMPORARY VIEW submitted AS SELECT 1").result(timeout=120).num_rows
        == 0
    )
    empty = session.submit("SELECT id FROM range(10) WHERE id > 100").result(timeout=120)
    assert empty.num_rows == 0
    assert empty.schema.names == ["id"]
    assert session.submit("SELECT :x AS x", args={"x": 5}).result(timeout=120).to_pylist() == [{"x": 5}]


def test_a_bad_query_fails_with_its_place(session: ps.Session) -> None:
    op = session.submit("SELECT id / 0 FROM range(2)")
    with pytest.raises(ps.DataError, match="division by zero") as caught:
        op.result(timeout=120)
    assert op.state == "FAILED"
    assert op.exception is caught.value
    assert "id / 0" in (caught.value.where or "")
    with pytest.raises(ps.SqlError, match="no table"):
        _ = session.submit("SELECT * FROM not_there_at_all").tickets


def test_cancel_ends_the_jobs(session: ps.Session) -> None:
    op = session.submit(ENDLESS)
    tag = f"penstock-op-{op.id}"
    wait_for(lambda: active_jobs(session.spark, tag), "running job")
    assert op in session.operation_registry.list()
    assert session.operation_registry.cancel(op.id)
    wait_for(lambda: not active_jobs(session.spark, tag), "end of the jobs")
    with pytest.raises(ps.StateError, match="was cancelled"):
        op.result()
    assert session.submit("SELECT 1 AS x").result(timeout=120).to_pylist() == [{"x": 1}]


def _functions(thread: int) -> set[str]:
    """The functions that a thread is in."""
    frame, names = sys._current_frames().get(thread), set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return names


def test_ctrl_c_while_waiting_cancels(session: ps.Session) -> None:
    op = session.submit(ENDLESS)
    tag = f"penstock-op-{op.id}"
    wait_for(lambda: active_jobs(session.spark, tag), "running job")
    main = threading.main_thread().ident or 0

    def interrupt() -> None:
        wait_for(lambda: "wait_for" in _functions(main), "wait of the main thread")
        signal.pthread_kill(main, signal.SIGINT)

    # The query would run for hours: only the interrupt ends the wait, however busy the machine is.
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        op.result()
    assert op.state == "CANCELLED"
    wait_for(lambda: not active_jobs(session.spark, tag), "end of the jobs")
    assert session.sql("SELECT count(*) AS n FROM range(0, 100, 1, 2)").collect()[0].n == 100, (
        "the next query is not cancelled"
    )


def test_what_is_let_go_leaves_spark(session: ps.Session) -> None:
    persisted = session.spark.sparkContext._jsc.getPersistentRDDs
    before = len(persisted())
    op = session.submit("SELECT id FROM range(100)", ttl="1 hour")
    assert op.result(timeout=120).num_rows == 100
    assert op.ttl == 3_600_000
    assert len(persisted()) == before + 1
    op.cancel()
    wait_for(lambda: len(persisted()) == before, "end of the persisted rows")
