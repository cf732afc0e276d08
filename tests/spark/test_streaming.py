"""Streaming queries: triggers, modes, sinks of this process, life and end."""

from __future__ import annotations

import gc
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import penstock as ps
from penstock.backend import JobState, open_backend
from penstock.backend.heartbeat import PART_OF_TTL
from penstock.backend.lease import TTL_MS
from penstock.spark.micro_batch.query_run import _Reports
from penstock.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent
from penstock.streaming.writer import StreamWriter
from waiting import wait_for

START = datetime(2026, 1, 1)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A folder with one file of ten orders, one every twenty seconds."""
    folder = tmp_path / "orders"
    folder.mkdir()
    add_orders(folder, 0, 10)
    return folder


def add_orders(folder: Path, first: int, count: int, **more: Any) -> None:
    numbers = list(range(first, first + count))
    columns = {
        "id": numbers,
        "customer": [number % 3 for number in numbers],
        "event_time": pa.array(
            [START + timedelta(seconds=20 * number) for number in numbers], pa.timestamp("us", "UTC")
        ),
        **{name: [value] * count for name, value in more.items()},
    }
    draft = folder.parent / f"draft-{first}"
    pq.write_table(pa.table(columns), draft)
    draft.rename(folder / f"orders-{first:05d}.parquet")


@pytest.fixture
def queries(session: ps.Session) -> Iterator[None]:
    """No query outlives its test."""
    yield
    for query in ps.StreamingQueryManager(session).active():
        query.stop(10)


def rows(query: ps.StreamingQuery) -> list[dict[str, Any]]:
    return [row for batch in query.memory_batches() for row in batch.to_pylist()]


def windows(session: ps.Session, folder: Path) -> ps.Stream:
    return (
        session.read_stream.parquet(folder)
        .with_event_time("event_time")
        .with_watermark("10 seconds")
        .tumbling_window(60_000)
        .agg(n=F.count("*"))
    )


@pytest.mark.smoke
def test_the_example_of_a_file_and_windows(
    session: ps.Session, orders: Path, tmp_path: Path, queries: None
) -> None:
    """One file, a window of a minute, Parquet: windows that the watermark has passed are there, and only they."""
    query = (
        session.stream(orders / "orders-00000.parquet")
        .with_event_time("event_time")
        .tumbling_window(60_000)
        .agg(F.count("*"))
        .write_stream.output_mode(ps.OutputMode.APPEND)
        .trigger(ps.Trigger.available_now())
        .format("parquet")
        .option("path", tmp_path / "out")
        .option("checkpoint.location", tmp_path / "ckpt")
        .start()
    )
    query.await_termination()
    assert query.status.state is ps.QueryState.STOPPED
    written = pq.read_table(tmp_path / "out").sort_by("window_start")
    assert written.column_names == ["window_start", "window_end", "count(1)"]
    assert written["count(1)"].to_pylist() == [3, 3, 3]


def test_once_emits_every_window_and_appends_the_second_time(
    session: ps.Session, orders: Path, tmp_path: Path, queries: None
) -> None:
    for runs in (1, 2):
        writer = windows(session, orders).write_stream.trigger(ps.Trigger.once())
        query = writer.format("parquet").option("path", tmp_path / "out").start("once")
        query.await_termination()
        assert query.last_progress is not None
        assert (query.last_progress.input_rows, query.last_progress.output_rows) == (10, 4)
        written = pq.read_table(tmp_path / "out")
        assert sorted(written["n"].to_pylist()) == sorted([3, 3, 3, 1] * runs)


def test_once_of_joins_and_duplicates_is_what_a_batch_gives(
    session: ps.Session, orders: Path, queries: None
) -> None:
    one = session.read_stream.parquet(orders).with_event_time("event_time").with_watermark("1 minute")
    other = (
        one.select("id", F.col("event_time").alias("paid_at"))
        .with_event_time("paid_at")
        .with_watermark("1 minute")
    )
    joined = one.join(other, "id", within="1 minute").where("id < 5")
    query = joined.write_stream.trigger(ps.Trigger.once()).format("memory").start()
    query.await_termination()
    assert sorted(row["id"] for row in rows(query)) == [0, 1, 2, 3, 4]
    distinct = one.drop_duplicates("customer", within="10 minutes").write_stream
    query = distinct.trigger(ps.Trigger.once()).format("memory").start()
    query.await_termination()
    assert sorted(row["customer"] for row in rows(query)) == [0, 1, 2]


def test_once_needs_a_source_with_an_end(session: ps.Session) -> None:
    stream = session.read_stream.rate(rows_per_second=1)
    with pytest.raises(ps.ConfigError, match="source 'rate' has no end"):
        stream.write_stream.trigger(ps.Trigger.once()).format("memory").start()


def test_a_query_goes_on_where_it_was(
    session: ps.Session, orders: Path, tmp_path: Path, queries: None
) -> None:
    def run() -> ps.StreamingQuery:
        writer = session.read_stream.parquet(orders).where("id % 2 = 0").write_stream
        writer = writer.trigger(ps.Trigger.available_now()).format("json").option("path", tmp_path / "out")
        query = writer.option("checkpoint.location", tmp_path / "ckpt").start("going_on")
        query.await_termination()
        return query

    first = run()
    add_orders(orders, 10, 5)
    second = run()
    third = run()
    assert first.id == second.id == third.id
    assert third.last_progress is None
    written = session.read_json(tmp_path / "out").toArrow()
    assert sorted(written["id"].to_pylist()) == [0, 2, 4, 6, 8, 10, 12, 14]


@pytest.mark.parametrize("form", ["parquet", "csv", "json", "orc"])
def test_an_epoch_that_comes_again_is_written_once(
    session: ps.Session, tmp_path: Path, form: str, orders: Path
) -> None:
    from penstock.sinks import SINKS
    from penstock.sinks.base import Epoch, Target

    frame = session.spark.range(5)
    target = Target(
        session.spark,
        "0a1b2c3d-0000-0000-0000-000000000000",
        "again",
        "append",
        frame.schema,
        settings=session.settings,
    )

    def opened() -> Any:
        sink = SINKS.load(form)({"path": tmp_path / "out"})
        sink.check(target)
        sink.open(target)
        return sink

    def count() -> int:
        return session.spark.read.format(form).options(header=True).load(str(tmp_path / "out")).count()

    sink = opened()
    assert sink.write(Epoch(0, frame)) == 5
    assert sink.write(Epoch(1, frame.limit(0))) == 0
    assert sink.write(Epoch(2, frame)) == 5
    assert opened().write(Epoch(2, frame)) == 0
    assert count() == 10
    # Cut short after the first file of an epoch was moved, before the mark: only what is done again counts.
    cut = opened()
    cut._folder.write = lambda name, content: (_ for _ in ()).throw(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        cut.write(Epoch(3, frame.repartition(3)))
    assert count() == 15
    assert opened().write(Epoch(3, frame.repartition(3))) == 5
    assert count() == 15
    assert not list((tmp_path / "out" / "_penstock").glob("staging-*"))


def test_partitions_and_writer_options(
    session: ps.Session, orders: Path, tmp_path: Path, queries: None
) -> None:
    writer = session.read_stream.parquet(orders).write_stream.trigger(ps.Trigger.once()).format("parquet")
    writer = writer.options(path=tmp_path / "out", partition_by="customer", compression="gzip")
    writer.start().await_termination()
    found = sorted(
        path.relative_to(tmp_path / "out").parts[0] for path in (tmp_path / "out").rglob("part-*.parquet")
    )
    assert found == ["customer=0", "customer=1", "customer=2"]
    assert all(".gz" in path.name for path in (tmp_path / "out").rglob("part-*.parquet"))
    assert session.read_parquet(tmp_path / "out").count() == 10


def test_columns_may_come_but_not_change(
    session: ps.Session, orders: Path, tmp_path: Path, queries: None
) -> None:
    def write(stream: ps.Stream, form: str) -> None:
        writer = stream.write_stream.trigger(ps.Trigger.once()).format(form)
        writer.option("path", tmp_path / form).start().await_termination()

    stream = session.read_stream.parquet(orders)
    wider = stream.with_column("note", F.lit("x"))
    write(stream, "parquet")
    write(wider, "parquet")
    merged = session.read_parquet(tmp_path / "parquet", mergeSchema=True)
    assert merged.where("note IS NULL").count() == 10
    assert merged.where("note = 'x'").count() == 10
    with pytest.raises(ps.DataError, match="'id' was bigint and is string now"):
        write(stream.with_column("id", F.col("id").cast("string")), "parquet")
    write(stream, "csv")
    with pytest.raises(ps.DataError, match="the columns were"):
        write(wider, "csv")
    assert session.read_csv(tmp_path / "csv").count() == 10


def test_files_of_another_program_are_looked_at(session: ps.Session, orders: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "out" / "other.parquet")
    writer = session.read_stream.parquet(orders).write_stream.trigger(ps.Trigger.once())
    with pytest.raises(ps.DataError, match="'id' was string and is bigint now"):
        writer.format("parquet").option("path", tmp_path / "out").start()


def test_update_and_complete(session: ps.Session, orders: Path, tmp_path: Path, queries: None) -> None:
    counts = session.read_stream.parquet(orders).key_by("customer").agg(n=F.count("*")).write_stream
    query = counts.output_mode("complete").trigger(ps.Trigger.processing_time(0)).format("memory").start()
    wait_for(lambda: len(rows(query)) == 3)
    add_orders(orders, 10, 3)
    wait_for(lambda: sum(row["n"] for row in rows(query)) == 13)
    assert len(rows(query)) == 3
    updates = session.read_stream.parquet(orders).key_by("customer").agg(n=F.count("*")).write_stream
    query = updates.output_mode(ps.OutputMode.UPDATE).format("memory").start()
    wait_for(lambda: len(rows(query)) == 3)
    add_orders(orders, 15, 1)
    wait_for(lambda: len(rows(query)) == 4)
    assert rows(query)[-1] == {"customer": 0, "n": 6}


@pytest.mark.parametrize(
    ("mode", "form", "aggregate", "said"),
    [
        ("append", "memory", True, "aggregates without watermark"),
        ("complete", "memory", False, "the query can do append, update"),
        ("update", "parquet", False, "takes append"),
        ("complete", "parquet", True, "cannot take it"),
    ],
)
def test_a_mode_that_cannot_be_is_refused_with_those_that_can(
    session: ps.Session, orders: Path, tmp_path: Path, mode: str, form: str, aggregate: bool, said: str
) -> None:
    stream = session.read_stream.parquet(orders)
    if aggregate:
        stream = stream.key_by("customer").agg(n=F.count("*"))
    writer = stream.write_stream.output_mode(mode).format(form)
    if form == "parquet":
        writer = writer.option("path", tmp_path / "out").option("checkpoint.location", tmp_path / "ckpt")
    with pytest.raises(ps.ConfigError) as caught:
        writer.start()
    assert caught.value.code == "STREAM_OUTPUT_MODE"
    assert said in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_windows_of_every_kind(session: ps.Session, orders: Path, queries: None) -> None:
    stream = session.read_stream.parquet(orders).with_event_time("event_time")

    def once(built: ps.Stream) -> list[dict[str, Any]]:
        query = built.write_stream.trigger(ps.Trigger.once()).format("memory").start()
        query.await_termination()
        return rows(query)

    assert (
        sum(row["n"] for row in once(stream.sliding_window("1 minute", "30 seconds").agg(n=F.count("*"))))
        == 20
    )
    [session_row] = once(stream.session_window("21 seconds").agg(n=F.count("*")))
    assert session_row["n"] == 10
    assert len(once(stream.session_window("20 seconds").key_by("customer").agg(n=F.count("*")))) == 10
    keyed = once(stream.key_by("customer").tumbling_window("1 hour").agg(F.max("id").alias("last")))
    assert sorted((row["customer"], row["last"]) for row in keyed) == [(0, 9), (1, 7), (2, 8)]


def test_sql_over_a_stream_leaves_views_alone(session: ps.Session, orders: Path, queries: None) -> None:
    session.register_table("stream", [{"mine": 1}])
    stream = session.read_stream.parquet(orders)
    query = (
        stream.sql("SELECT id * 2 AS twice FROM stream WHERE id > 7")
        .write_stream.trigger(ps.Trigger.available_now())
        .format("memory")
        .start()
    )
    query.await_termination()
    assert sorted(row["twice"] for row in rows(query)) == [16, 18]
    assert session.sql("SELECT * FROM stream").toArrow().to_pylist() == [{"mine": 1}]
    session.spark.catalog.dropTempView("stream")
    with pytest.raises(ps.SqlError, match="no column 'idd'"):
        stream.sql("SELECT idd FROM stream")


def test_rows_and_tables_as_streams(session: ps.Session, orders: Path, queries: None) -> None:
    for given in (
        [{"id": number} for number in range(10)],
        session.read_parquet(orders),
        str(orders),
        orders / "orders-00000.parquet",
    ):
        query = (
            session.stream(given).write_stream.trigger(ps.Trigger.available_now()).format("memory").start()
        )
        query.await_termination()
        assert sorted(row["id"] for row in rows(query)) == list(range(10))
    session.register_table("ten_orders", orders)
    query = session.stream("ten_orders").write_stream.trigger(ps.Trigger.once()).format("memory").start()
    query.await_termination()
    assert len(rows(query)) == 10
    with pytest.raises(ps.SqlError, match="no file"):
        session.stream(orders / "nothing.parquet")


def test_the_schema_of_an_empty_folder_must_be_given(
    session: ps.Session, tmp_path: Path, queries: None
) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(ps.DataError, match="to learn the columns from"):
        session.read_stream.parquet(tmp_path / "in")
    stream = session.read_stream.csv(tmp_path / "in", schema="id BIGINT, name STRING")
    query = stream.write_stream.format("memory").start()
    (tmp_path / "draft").write_text("id,name\n1,a\n")
    (tmp_path / "draft").rename(tmp_path / "in" / "one.csv")
    wait_for(lambda: rows(query) == [{"id": 1, "name": "a"}])


def test_batches_go_to_a_function_and_its_errors_say_where(
    session: ps.Session, orders: Path, queries: None
) -> None:
    seen: list[tuple[int, int]] = []

    def take(frame: DataFrame, number: int) -> None:
        seen.append((number, frame.count()))
        if seen[-1][1] == 1:
            raise ValueError("one is not enough")

    query = session.read_stream.parquet(orders).write_stream.foreach_batch(take).start("to_function")
    wait_for(lambda: seen == [(0, 10)])
    assert "at least once" in query.explain()
    add_orders(orders, 10, 1)
    with pytest.raises(ps.PenstockError) as caught:
        query.await_termination_timeout(60)
    assert caught.value.code == "STREAM_FUNCTION"
    assert "ValueError: one is not enough" in str(caught.value)
    assert f"{__file__}:" in str(caught.value.where)
    assert query.status.state is ps.QueryState.FAILED
    assert query.exception() is caught.value


def test_an_error_of_spark_in_a_batch_is_reported_as_usual(
    session: ps.Session, orders: Path, queries: None
) -> None:
    stream = session.read_stream.parquet(orders).with_column("bad", F.expr("10 / (id - id)"))
    query = stream.write_stream.format("memory").start()
    with pytest.raises(ps.DataError) as caught:
        query.await_termination()
    assert caught.value.code == "DATA_DIVIDE_BY_ZERO"


def test_stop_drains_the_batch_that_runs(session: ps.Session, orders: Path, queries: None) -> None:
    inside, finished = threading.Event(), threading.Event()

    def slow(frame: DataFrame, number: int) -> None:
        inside.set()
        time.sleep(1)
        frame.count()
        finished.set()

    query = session.read_stream.parquet(orders).write_stream.foreach_batch(slow).start("draining")
    assert inside.wait(60)
    query.stop()
    assert finished.is_set()
    assert query.status.state is ps.QueryState.STOPPED
    assert query.exception() is None
    query.stop()


def test_a_stop_leaves_no_batch_that_has_not_begun(
    session: ps.Session, tmp_path: Path, queries: None
) -> None:
    read: dict[int, list[int]] = {}
    inside = threading.Event()

    def slow(frame: DataFrame, number: int) -> None:
        read[number] = [row.value for row in frame.select("value").collect()]
        inside.set()
        time.sleep(0.5)

    checkpoint = tmp_path / "checkpoint"
    stream = session.read_stream.rate(rows_per_second=1000)
    for _ in range(3):
        inside.clear()
        query = stream.write_stream.foreach_batch(slow).option("checkpoint.location", checkpoint).start()
        assert inside.wait(60)
        # Rows come all the time: Spark lays down the next batch in the moment in which this one is done.
        query.stop()
        noted = [
            {path.name for path in (checkpoint / log).iterdir() if not path.name.startswith(".")}
            for log in ("offsets", "commits")
        ]
        assert noted[0] == noted[1]
    values = [value for number in sorted(read) for value in sorted(read[number])]
    assert values == list(range(len(values)))
    assert sorted(read) == list(range(len(read)))


def test_a_batch_that_had_begun_before_is_not_forgotten(
    session: ps.Session, orders: Path, tmp_path: Path, queries: None
) -> None:
    checkpoint = tmp_path / "checkpoint"
    inside = threading.Event()

    def broken(frame: DataFrame, number: int) -> None:
        inside.set()
        raise ValueError("half of it is written")

    stream = session.read_stream.parquet(orders)

    def started(body: Callable[[DataFrame, int], None]) -> ps.StreamingQuery:
        return stream.write_stream.foreach_batch(body).option("checkpoint.location", checkpoint).start()

    with pytest.raises(ps.PenstockError):
        started(broken).await_termination()
    assert (checkpoint / "offsets" / "0").exists()
    query = started(broken)
    # The stop may come before the batch, which then does not begin.
    query.stop()
    assert (checkpoint / "offsets" / "0").exists()
    assert not (checkpoint / "commits" / "0").exists()


def test_stop_with_a_limit_cuts_a_batch_short(session: ps.Session, orders: Path, queries: None) -> None:
    inside = threading.Event()

    def endless(frame: DataFrame, number: int) -> None:
        inside.set()
        frame.sparkSession.sql(
            "SELECT count(*) FROM range(0, 10000000000000L, 1, 2) WHERE id % 7 = 3"
        ).collect()

    query = session.read_stream.parquet(orders).write_stream.foreach_batch(endless).start()
    assert inside.wait(60)
    wait_for(lambda: session.spark.sparkContext.statusTracker().getActiveJobsIds(), "running job")
    # The batch would run for hours: only the limit ends it, however busy the machine is.
    query.stop(timeout=1)
    assert query.status.state is ps.QueryState.STOPPED
    assert session.spark.range(3).count() == 3


def test_with_stops_and_a_lost_handle_does_not(session: ps.Session, orders: Path, queries: None) -> None:
    with session.read_stream.parquet(orders).write_stream.format("memory").start("with_block") as query:
        wait_for(lambda: len(rows(query)) == 10)
    assert query.status.state is ps.QueryState.STOPPED
    session.read_stream.parquet(orders).write_stream.format("memory").start("nobody_holds_it")
    manager = ps.StreamingQueryManager(session)
    assert [query.name for query in manager.active()] == ["nobody_holds_it"]
    found = manager.get("nobody_holds_it")
    assert found is not None
    wait_for(lambda: len(rows(found)) == 10)
    manager.stop_all()
    assert manager.active() == []


def test_listeners_hear_everything_once(session: ps.Session, orders: Path, queries: None) -> None:
    class Recorder(ps.StreamingQueryListener):
        def __init__(self) -> None:
            self.heard: list[Any] = []

        def on_query_started(self, event: QueryStartedEvent) -> None:
            self.heard.append(event)

        def on_query_progress(self, event: QueryProgressEvent) -> None:
            self.heard.append(event)

        def on_query_terminated(self, event: QueryTerminatedEvent) -> None:
            self.heard.append(event)

    manager, recorder = ps.StreamingQueryManager(session), Recorder()
    manager.add_listener(recorder)
    try:
        good = session.read_stream.parquet(orders).write_stream.trigger(ps.Trigger.available_now())
        good.format("memory").start("good").await_termination()
        bad = session.read_stream.parquet(orders).with_column("bad", F.expr("10 / (id - id)")).write_stream
        query = bad.format("memory").start("bad")
        with pytest.raises(ps.DataError):
            query.await_termination()
        wait_for(
            lambda: len([each for each in recorder.heard if isinstance(each, QueryTerminatedEvent)]) == 2
        )
    finally:
        manager.remove_listener(recorder)
    kinds = [(type(event), event.name) for event in recorder.heard]
    assert kinds == [
        (QueryStartedEvent, "good"),
        (QueryProgressEvent, "good"),
        (QueryTerminatedEvent, "good"),
        (QueryStartedEvent, "bad"),
        (QueryTerminatedEvent, "bad"),
    ]
    assert recorder.heard[2].exception is None
    assert recorder.heard[2].last_progress.output_rows == 10
    assert recorder.heard[4].exception.code == "DATA_DIVIDE_BY_ZERO"


def test_metrics_for_prometheus(session: ps.Session, orders: Path, tmp_path: Path, queries: None) -> None:
    manager = ps.StreamingQueryManager(session)
    port = manager.serve_metrics(0)
    with pytest.raises(ps.ConfigError, match="served already"):
        manager.serve_metrics(0)
    writer = windows(session, orders).write_stream.trigger(ps.Trigger.available_now()).format("memory")
    writer.start("measured").await_termination()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        said = answer.read().decode()
    values = dict(line.rsplit(" ", 1) for line in said.splitlines() if 'query="measured"' in line)
    assert values['penstock_query_input_rows_total{query="measured"}'] == "10.0"
    assert values['penstock_query_output_rows_total{query="measured"}'] == "2.0"
    assert values['penstock_query_batches_total{query="measured"}'] == "2.0"
    assert values['penstock_query_state_rows{query="measured"}'] == "2.0"
    assert values['penstock_query_running{query="measured"}'] == "0.0"
    assert values['penstock_query_sink_retries_total{query="measured"}'] == "0.0"
    assert float(values['penstock_query_batch_seconds{quantile="0.5",query="measured"}']) > 0
    assert float(values['penstock_query_watermark_delay_seconds{query="measured"}']) > 0


def test_memory_is_bounded(session: ps.Session, orders: Path, queries: None) -> None:
    writer = session.read_stream.parquet(orders).write_stream.trigger(ps.Trigger.available_now())
    query = writer.format("memory").option("max_rows", 4).start()
    query.await_termination()
    assert [row["id"] for row in rows(query)] == [6, 7, 8, 9]
    assert query._runtime.plan.sink.dropped == 6  # type: ignore[attr-defined]


def test_console(
    session: ps.Session, orders: Path, queries: None, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = session.read_stream.parquet(orders).select("id").write_stream.trigger(ps.Trigger.once())
    writer.format("console").option("rows", 2).start().await_termination()
    said = capsys.readouterr().out
    assert said.startswith("epoch 0\n+---+\n| id|")
    assert "only the first 2 of 10 rows" in said


@pytest.mark.parametrize(
    ("build", "code", "said"),
    [
        (lambda stream: stream.with_event_time("evnt_time"), "STREAM_COLUMN", "did you mean 'event_time'?"),
        (lambda stream: stream.with_event_time("id"), "STREAM_EVENT_TIME", "timestamp_millis"),
        (lambda stream: stream.with_watermark("1 minute"), "STREAM_EVENT_TIME", "with_event_time"),
        (lambda stream: stream.tumbling_window(1_000), "STREAM_EVENT_TIME", "with_event_time"),
        (
            lambda stream: stream.with_event_time("event_time").tumbling_window(0),
            "STREAM_DURATION",
            "longer than 0",
        ),
        (
            lambda stream: stream.with_event_time("event_time").sliding_window("1 minute", "2 minutes"),
            "STREAM_WINDOW",
            "leave rows out",
        ),
        (lambda stream: stream.agg(), "STREAM_AGGREGATE", 'n=F.count("*")'),
        (lambda stream: stream.transform_with_state(None, "id BIGINT"), "STREAM_KEY", "key_by"),
        (lambda stream: stream.write_stream.start(), "STREAM_SINK_MISSING", ".format(name)"),
        (lambda stream: stream.write_stream.format("parqet"), "UNKNOWN_SINK", "did you mean 'parquet'?"),
        (lambda stream: stream.write_stream.format("parquet").start(), "STREAM_OPTION_MISSING", "path"),
        (
            lambda stream: stream.write_stream.format("parquet").option("path", "/nowhere/x").start(),
            "STREAM_CHECKPOINT_MISSING",
            "checkpoint.location",
        ),
        (
            lambda stream: stream.write_stream.format("memory").option("max_row", 1).start(),
            "STREAM_OPTION_UNKNOWN",
            "did you mean 'max_rows'?",
        ),
        (
            lambda stream: stream.write_stream.format("memory").option("max_rows", "many").start(),
            "STREAM_OPTION_VALUE",
            "above 0",
        ),
        (lambda stream: stream.write_stream.key("idd"), "STREAM_KEY", "did you mean 'id'?"),
        (lambda stream: stream.write_stream.trigger("5 seconds"), "STREAM_TRIGGER", "processing_time"),
        (lambda stream: stream.write_stream.foreach_batch(3), "STREAM_FUNCTION", "needs a function"),
    ],
)
def test_mistakes(
    session: ps.Session, orders: Path, build: Callable[[ps.Stream], Any], code: str, said: str
) -> None:
    with pytest.raises(ps.ConfigError) as caught:
        build(session.read_stream.parquet(orders))
    assert caught.value.code == code
    assert said in str(caught.value)


def test_the_last_windows_are_closed_on_demand(
    session: ps.Session, orders: Path, tmp_path: Path, queries: None
) -> None:
    def run(*, close: bool) -> list[int]:
        writer = windows(session, orders).write_stream.trigger(ps.Trigger.available_now()).format("parquet")
        writer = writer.option("path", tmp_path / "out").option("checkpoint.location", tmp_path / "ckpt")
        writer.option("close_windows", close).start("closing").await_termination()
        return sorted(pq.read_table(tmp_path / "out")["n"].to_pylist())

    assert run(close=False) == [3, 3]
    assert run(close=True) == [1, 3, 3, 3]
    # Rows that come later are not too late, although everything had been closed.
    add_orders(orders, 12, 3)
    assert run(close=True) == [1, 3, 3, 3, 3]
    assert run(close=True) == [1, 3, 3, 3, 3]


def test_a_closing_batch_that_was_cut_short_is_done_again(
    session: ps.Session, orders: Path, tmp_path: Path, queries: None
) -> None:
    from penstock.spark.micro_batch import checkpoint

    seen: list[tuple[int, list[int]]] = []

    def take(frame: DataFrame, number: int) -> None:
        seen.append((number, sorted(row["n"] for row in frame.collect())))

    def run() -> None:
        writer = windows(session, orders).write_stream.trigger(ps.Trigger.available_now()).foreach_batch(take)
        writer.option("checkpoint.location", tmp_path / "ckpt").start().await_termination()

    run()
    assert seen == [(0, []), (1, [3, 3])]
    assert checkpoint.begin_closing(session.spark, str(tmp_path / "ckpt"))
    add_orders(orders, 12, 3)
    run()
    assert seen[2:] == [(2, [1, 3]), (3, []), (4, [])]
    add_orders(orders, 16, 1)
    run()
    assert seen[-1][1] == [3]


def test_close_windows_needs_an_end(session: ps.Session, orders: Path) -> None:
    writer = windows(session, orders).write_stream.format("memory").option("close_windows", True)
    with pytest.raises(ps.ConfigError, match=r"close_windows belongs to Trigger.available_now"):
        writer.start()


def test_a_checkpoint_of_a_changed_query_says_what_changed(
    session: ps.Session, orders: Path, tmp_path: Path, queries: None
) -> None:
    stream = session.read_stream.parquet(orders)

    def run(built: ps.Stream, place: str) -> None:
        writer = built.write_stream.output_mode("update").trigger(ps.Trigger.available_now()).format("memory")
        writer.option("checkpoint.location", tmp_path / place).start().await_termination()

    counts = stream.key_by("customer").agg(n=F.count("*"))
    run(counts, "a")
    run(counts.where("n > 1"), "a")
    for changed, said in (
        (stream.key_by("id").agg(n=F.count("*")), "it keeps aggregate by id BIGINT"),
        (stream.key_by("customer").agg(n=F.sum("id")), "and had aggregate by customer BIGINT"),
        (stream, "it keeps nothing now"),
        (session.read_stream.rate().key_by("value").agg(n=F.count("*")), "it reads rate"),
    ):
        with pytest.raises(ps.StateError) as caught:
            run(changed, "a")
        assert caught.value.code == "STREAM_CHECKPOINT_CHANGED"
        assert said in str(caught.value)
        assert "penstock state reset" in str(caught.value)


def test_a_savepoint_starts_another_query_with_the_same_state(
    session: ps.Session, orders: Path, tmp_path: Path, queries: None
) -> None:
    def counts() -> ps.Stream:
        return session.read_stream.parquet(orders).key_by("customer").agg(n=F.count("*"))

    writer = counts().write_stream.output_mode("update").format("memory")
    query = writer.option("checkpoint.location", tmp_path / "ckpt").start("saved")
    wait_for(lambda: len(rows(query)) == 3)
    wait_for(lambda: query.last_progress)
    assert query.savepoint(tmp_path / "save") == 0
    with pytest.raises(ps.ConfigError, match="not empty"):
        query.savepoint(tmp_path / "save")
    state = session.state(query).select("key.customer", "value.count").toArrow().to_pylist()
    assert sorted((row["customer"], row["count"]) for row in state) == [(0, 4), (1, 3), (2, 3)]
    query.stop()
    add_orders(orders, 10, 1)
    changed = counts().where("n > 3").write_stream.output_mode("update").trigger(ps.Trigger.available_now())
    changed = changed.format("memory").option("checkpoint.location", tmp_path / "other")
    other = changed.option("savepoint", tmp_path / "save").start("from_save")
    other.await_termination()
    assert rows(other) == [{"customer": 1, "n": 4}]
    assert other.id != query.id
    with pytest.raises(ps.ConfigError, match="no savepoint in"):
        changed.option("checkpoint.location", tmp_path / "new").option("savepoint", tmp_path / "none").start()


def test_what_has_no_checkpoint_has_no_state(session: ps.Session, orders: Path, queries: None) -> None:
    query = session.read_stream.parquet(orders).write_stream.format("memory").start()
    with pytest.raises(ps.StateError, match="no checkpoint to copy"):
        query.savepoint("anywhere")
    with pytest.raises(ps.StateError, match="no checkpoint to read"):
        session.state(query)


def test_a_named_query_is_in_the_state_backend(session: ps.Session, orders: Path, queries: None) -> None:
    query = session.read_stream.parquet(orders).write_stream.format("memory").start("recorded")
    with pytest.raises(ps.StateError, match="'recorded' is running in this session"):
        session.read_stream.parquet(orders).write_stream.format("memory").start("recorded")
    wait_for(lambda: query.last_progress)
    with open_backend(session.settings.state) as backend:
        job = backend.jobs.get("recorded")
        assert (job.id, job.state, job.kind) == (query.id, JobState.RUNNING, "query")
        assert job.start is not None
        assert job.start.place is not None
        assert job.start.place.startswith(__file__)
        wait_for(lambda: backend.epochs.last("recorded"))
        epoch = backend.epochs.last("recorded")
        assert epoch is not None
        assert (epoch.number, epoch.meta) == (0, {"rows": 10})
        backend.jobs.request("recorded", "restart")
        add_orders(orders, 10, 5)
        wait_for(lambda: len(rows(query)) == 15)
        wait_for(lambda: backend.jobs.get("recorded").request is None)
        restarted = backend.jobs.get("recorded").started_at
        assert restarted is not None
        assert job.started_at is not None
        assert restarted > job.started_at
        backend.jobs.request("recorded", "stop")
        assert query.await_termination_timeout(30)
        ended = backend.jobs.get("recorded")
        assert ended.state is JobState.STOPPED
        assert ended.lease is not None
        assert not ended.lease.active
        assert ended.log is not None
        log = Path(ended.log).read_text()
        assert "epoch 0: 10 rows in, 10 out" in log


def test_what_a_stream_is_and_what_it_lacks(session: ps.Session, orders: Path) -> None:
    stream = session.read_stream.parquet(orders)
    assert repr(stream) == "<penstock stream [id: bigint, customer: bigint, event_time: timestamp]>"
    with pytest.raises(ps.SqlError, match="no column 'nope'") as caught:
        stream.select("nope")
    assert (caught.value.where or "").startswith(__file__)
    with pytest.raises(ps.ConfigError, match="watermark") as joined:
        stream.join(stream, "id", "left").write_stream.format("memory").start()
    assert "LEGACY" not in str(joined.value)


def test_what_spark_refuses_leaves_nothing_behind(session: ps.Session, orders: Path, queries: None) -> None:
    taken = (
        session.spark.readStream.format("rate").load().writeStream.format("noop").queryName("taken").start()
    )
    try:
        with pytest.raises(ps.PenstockError, match="taken"):
            session.read_stream.parquet(orders).write_stream.format("memory").start("taken")
    finally:
        taken.stop()
    assert ps.StreamingQueryManager(session).active() == []
    query = session.read_stream.parquet(orders).write_stream.trigger(ps.Trigger.available_now())
    query.format("memory").start("taken").await_termination()


def test_a_query_that_loses_its_lease_stops_at_once(session: ps.Session, orders: Path, queries: None) -> None:
    query = session.read_stream.parquet(orders).write_stream.format("memory").start("robbed")
    wait_for(lambda: query.last_progress)
    query._runtime._lease_lost(
        ps.StateError("this process does not run 'robbed' any more", code="STATE_LEASE_LOST")
    )
    with pytest.raises(ps.StateError, match="does not run 'robbed'"):
        query.await_termination()
    assert query.status.state is ps.QueryState.FAILED


def test_a_plan_takes_no_lease_and_writes_nothing(
    session: ps.Session, orders: Path, tmp_path: Path, queries: None
) -> None:
    folders = set(Path(tempfile.gettempdir()).glob("penstock-stream-*"))
    late = windows(session, orders)
    writer = (
        session.read_stream.parquet(orders)
        .write_stream.format("parquet")
        .option("path", tmp_path / "out")
        .option("checkpoint.location", tmp_path / "ckpt")
    )
    plan = writer.plan("dry")
    assert (plan.name, plan.trigger, plan.mode.value) == ("dry", ps.Trigger.processing_time(0), "append")
    assert f"parquet files in {tmp_path / 'out'}" in plan.explain()
    assert (plan.call_site or "").startswith(__file__)
    late.write_stream.format("memory").plan("temporary")
    late.write_stream.format("memory").trigger(ps.Trigger.once()).plan("batch")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders"]
    assert set(Path(tempfile.gettempdir()).glob("penstock-stream-*")) == folders
    with open_backend(session.settings.state) as backend:
        assert {job.name for job in backend.jobs.list()}.isdisjoint({"dry", "temporary", "batch"})
    assert ps.StreamingQueryManager(session).active() == []
    with writer.launch(plan) as query:
        wait_for(lambda: query.last_progress)
        assert query.id == plan.id
    assert pq.read_table(tmp_path / "out").num_rows == 10


def test_a_plan_of_a_checkpoint_or_a_savepoint_only_reads_it(
    session: ps.Session, orders: Path, tmp_path: Path, queries: None
) -> None:
    def writer(checkpoint: str) -> StreamWriter:
        counts = session.read_stream.parquet(orders).key_by("customer").agg(n=F.count("*"))
        written = counts.write_stream.output_mode("update").trigger(ps.Trigger.available_now())
        return written.format("memory").option("checkpoint.location", tmp_path / checkpoint)

    def content(folder: Path) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    query = writer("ckpt").start("counted")
    query.await_termination()
    query.savepoint(tmp_path / "save")
    before = content(tmp_path)
    again = writer("ckpt").plan("counted")
    assert (again.id, again.target.committed) == (query.id, 0)
    moved = writer("new").option("savepoint", tmp_path / "save").plan("moved")
    assert moved.id != query.id
    assert moved.target.committed == 0
    with pytest.raises(ps.ConfigError, match="no savepoint"):
        writer("new").option("savepoint", tmp_path / "none").plan("moved")
    other = session.read_stream.parquet(orders).key_by("id").agg(n=F.count("*")).write_stream
    with pytest.raises(ps.StateError, match="belongs to another query") as changed:
        other.output_mode("update").format("memory").option("checkpoint.location", tmp_path / "new").option(
            "savepoint", tmp_path / "save"
        ).plan("moved")
    assert changed.value.code == "STREAM_CHECKPOINT_CHANGED"
    assert content(tmp_path) == before
    assert not (tmp_path / "new").exists()


def test_streams_that_are_gone_leave_no_taps_behind(
    session: ps.Session, tmp_path: Path, queries: None
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "rows.json").write_text('{"id": 1}\n{"id": "x"}\n')

    def stream(number: int) -> ps.Stream:
        destination = tmp_path / f"bad-{number}"
        return session.read_stream.json(
            folder, schema="id BIGINT", on_bad_record="quarantine", quarantine=str(destination)
        )

    gc.collect()
    before = len(session.queries.taps)
    for number in range(5):
        stream(number).where("id > 0").write_stream.format("memory").trigger(ps.Trigger.available_now())
    gc.collect()
    assert len(session.queries.taps) == before
    frame = stream(9).df.where("id > 0")  # a DataFrame of the user's: what it needs is not forgotten
    gc.collect()
    query = session.stream(frame).write_stream.trigger(ps.Trigger.available_now()).format("memory").start()
    query.await_termination()
    assert rows(query) == [{"id": 1}]
    assert pq.read_table(tmp_path / "bad-9").num_rows == 1


def test_reports_belong_to_a_session_and_not_to_its_number(session: ps.Session) -> None:
    reports = _Reports.of(session.spark)
    assert _Reports.of(session.spark) is reports
    gc.collect()
    before = len(_Reports._by_session)
    other = session.spark.newSession()
    assert _Reports.of(other) is not reports
    assert _Reports.of(session.spark) is reports
    del other
    session.spark.newSession()  # PySpark itself keeps the newest session, for RDD.toDF
    gc.collect()
    assert len(_Reports._by_session) == before


def test_a_stop_that_is_asked_for_while_a_query_starts_is_obeyed(
    session: ps.Session, orders: Path, tmp_path: Path, queries: None
) -> None:
    class SlowToOpen(ps.SinkPlugin):
        def initialize(self, context: Any) -> None:
            with open_backend(session.settings.state) as backend:
                backend.jobs.request(context.name, "stop")
            time.sleep(2 * PART_OF_TTL * TTL_MS / 1000)  # until the heartbeat has seen the request

        def process_batch(self, batch: pa.RecordBatch) -> None:
            pass

    writer = session.read_stream.parquet(orders).write_stream.format(SlowToOpen)
    query = writer.option("checkpoint.location", tmp_path / "ckpt").start("stopped-early")
    assert query.await_termination_timeout(60)
    assert query.status.state is ps.QueryState.STOPPED
