"""Streaming queries into incremental flows: epochs are ticks, and repeated ones count once."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock import config
from penstock.sinks.base import Epoch, Target
from penstock.sinks.flow import FlowSink


@pytest.fixture
def flow(session: ps.Session) -> ps.IncrementalFlow:
    """A flow with the total of each key."""
    made = ps.IncrementalFlow(session)
    made.register_source("orders", "id BIGINT, k STRING, amount BIGINT")
    made.register_view("totals", "SELECT k, SUM(amount) AS total, COUNT(*) AS n FROM orders GROUP BY k")
    return made


def _totals(flow: ps.IncrementalFlow) -> dict[str, tuple[int, int]]:
    return {row["k"]: (row["total"], row["n"]) for row in flow.snapshot("totals").to_pylist()}


def _add(
    spark: SparkSession,
    folder: Path,
    *rows: tuple[Any, ...],
    schema: str = "id BIGINT, k STRING, amount BIGINT",
) -> None:
    spark.createDataFrame(list(rows), schema).coalesce(1).write.mode("append").json(str(folder))


def _run(
    session: ps.Session, folder: Path, flow: ps.IncrementalFlow, checkpoint: Path | None, **options: Any
) -> ps.StreamingQuery:
    writer = session.read_stream.json(
        folder, schema=options.pop("schema", "id BIGINT, k STRING, amount BIGINT"), maxFilesPerTrigger=1
    ).write_stream.trigger(ps.Trigger.available_now())
    writer.output_mode(options.pop("mode", "append"))
    if checkpoint is not None:
        writer.option("checkpoint.location", checkpoint)
    query = writer.to_flow(flow, options.pop("source", "orders"), **options)
    query.await_termination()
    return query


@pytest.mark.smoke
def test_epochs_are_ticks_and_a_restart_goes_on(
    session: ps.Session, spark: SparkSession, flow: ps.IncrementalFlow, tmp_path: Path
) -> None:
    _add(spark, tmp_path / "in", (1, "a", 5), (2, "b", 7))
    _add(spark, tmp_path / "in", (3, "a", 1))
    query = _run(session, tmp_path / "in", flow, tmp_path / "ckpt", name="into-flow")
    assert _totals(flow) == {"a": (6, 2), "b": (7, 1)}
    assert flow.source_info("orders").ordinal == 2
    assert (
        "guarantee   not kept (the flow takes every epoch once, and ends with this process)"
        in query.explain()
    )
    _add(spark, tmp_path / "in", (4, "b", 10))
    _run(session, tmp_path / "in", flow, tmp_path / "ckpt", name="into-flow")
    assert _totals(flow) == {"a": (6, 2), "b": (17, 2)}
    assert flow.source_info("orders").ordinal == 3
    # A query of its own adds to what is there; without a checkpoint, all that it reads.
    _run(session, tmp_path / "in", flow, None)
    assert _totals(flow) == {"a": (12, 4), "b": (34, 4)}
    once = session.stream([{"id": 9, "k": "c", "amount": 1}]).write_stream.trigger(ps.Trigger.once())
    once.to_flow(flow, "orders").await_termination()
    assert _totals(flow)["c"] == (1, 1)


def test_a_repeated_epoch_counts_once(spark: SparkSession, flow: ps.IncrementalFlow) -> None:
    frame = spark.createDataFrame([(1, "a", 5)], "id BIGINT, k STRING, amount BIGINT")
    target = Target(spark, "q-1", "q", "append", frame.schema, settings=config.load())
    sink = FlowSink(flow, "orders")
    sink.check(target)
    sink.open(target)
    assert sink.write(Epoch(0, frame)) == 1
    assert sink.write(Epoch(0, frame)) == 0
    with pytest.raises(ps.StateError, match="another query feeds the source 'orders'"):
        FlowSink(flow, "orders").open(
            Target(spark, "q-2", "q", "append", frame.schema, settings=config.load())
        )
    sink.close()
    # Killed after the tick and before Spark noted the epoch: it comes again.
    sink.open(target)
    assert sink.write(Epoch(0, frame)) == 0
    assert sink.write(Epoch(1, frame)) == 1
    sink.close()
    assert _totals(flow) == {"a": (10, 2)}
    other = FlowSink(flow, "orders")
    other.open(Target(spark, "q-2", "q", "append", frame.schema, settings=config.load()))
    assert other.write(Epoch(0, frame)) == 1
    other.close()
    sink.open(target)  # the first one again: it has its own numbers, and the flow has seen them all
    assert sink.write(Epoch(1, frame)) == 0
    assert _totals(flow) == {"a": (15, 3)}
    assert sink.write(Epoch(2, frame)) == 1, "an epoch of its own that is new, whatever others have fed"
    sink.close()
    assert _totals(flow) == {"a": (20, 4)}


def test_a_flow_that_has_not_seen_what_the_query_has_read_is_refused(
    session: ps.Session, spark: SparkSession, flow: ps.IncrementalFlow, tmp_path: Path
) -> None:
    _add(spark, tmp_path / "in", (1, "a", 5))
    _run(session, tmp_path / "in", flow, tmp_path / "ckpt")
    fresh = ps.IncrementalFlow(session)  # as after a restart of the process
    fresh.register_source("orders", "id BIGINT, k STRING, amount BIGINT")
    with pytest.raises(
        ps.StateError, match="done 1 epochs according to its checkpoint, and the flow has seen 0"
    ) as behind:
        _run(session, tmp_path / "in", fresh, tmp_path / "ckpt")
    assert behind.value.code == "STREAM_FLOW_BEHIND"
    assert "another checkpoint" in str(behind.value.hint)
    _run(session, tmp_path / "in", fresh, tmp_path / f"ckpt-{uuid.uuid4().hex[:6]}")
    assert len(fresh.snapshot("orders")) == 1


def test_updates_are_by_the_primary_key(session: ps.Session, spark: SparkSession, tmp_path: Path) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("counts", "k STRING, n BIGINT", primary_key="k")
    flow.register_view("whole", "SELECT SUM(n) AS n FROM counts")
    for rows in ([(1, "a", 1), (2, "a", 1), (3, "b", 1)], [(4, "a", 1)]):
        _add(spark, tmp_path / "in", *rows)
        (
            session.read_stream.json(tmp_path / "in", schema="id BIGINT, k STRING, amount BIGINT")
            .key_by("k")
            .agg(n=F.count("*"))
            .write_stream.output_mode("update")
            .trigger(ps.Trigger.available_now())
            .option("checkpoint.location", tmp_path / "ckpt")
            .to_flow(flow, "counts")
            .await_termination()
        )
    counts = sorted(flow.snapshot("counts").to_pylist(), key=lambda row: row["k"])
    assert counts == [{"k": "a", "n": 3}, {"k": "b", "n": 1}]
    assert flow.snapshot("whole").to_pylist() == [{"n": 4}]


def test_weighted_rows(
    session: ps.Session, spark: SparkSession, flow: ps.IncrementalFlow, tmp_path: Path
) -> None:
    schema = "id BIGINT, k STRING, amount BIGINT, _weight BIGINT"
    _add(spark, tmp_path / "in", (1, "a", 5, 1), (2, "b", 7, 2), schema=schema)
    _run(session, tmp_path / "in", flow, tmp_path / "ckpt", schema=schema)
    assert _totals(flow) == {"a": (5, 1), "b": (14, 2)}
    _add(spark, tmp_path / "in", (1, "a", 5, -1), (2, "b", 7, -1), schema=schema)
    _run(session, tmp_path / "in", flow, tmp_path / "ckpt", schema=schema)
    assert _totals(flow) == {"b": (7, 1)}
    _add(spark, tmp_path / "in", (3, "x", 5, -1), schema=schema)
    with pytest.raises(ps.DataError):
        _run(session, tmp_path / "in", flow, tmp_path / "ckpt", schema=schema)
    assert _totals(flow) == {"b": (7, 1)}


def test_what_cannot_work_is_refused_at_the_start(
    session: ps.Session, spark: SparkSession, flow: ps.IncrementalFlow, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(ps.DataError, match="amount"):
        _run(session, tmp_path / "in", flow, None, schema="id BIGINT, k STRING, amount STRING")
    with pytest.raises(ps.DataError, match="amount"):
        _run(session, tmp_path / "in", flow, None, schema="id BIGINT, k STRING")
    with pytest.raises(ps.ConfigError, match="ordrs") as unknown:
        _run(session, tmp_path / "in", flow, None, source="ordrs")
    assert "orders" in str(unknown.value.hint)
    with pytest.raises(ps.ConfigError, match="has no primary key"):
        _run(session, tmp_path / "in", flow, None, mode="update")
    flow.register_source("keyed", "id BIGINT, k STRING, amount BIGINT", primary_key="id")
    stream = session.read_stream.json(tmp_path / "in", schema="id BIGINT, k STRING, amount BIGINT")
    with pytest.raises(ps.ConfigError, match="that of the source 'keyed' is"):
        stream.write_stream.key("k").output_mode("update").to_flow(flow, "keyed")
    with pytest.raises(ps.ConfigError, match="no other sink"):
        stream.write_stream.format("memory").to_flow(flow, "orders")
    with pytest.raises(ps.ConfigError, match="complete"):
        stream.key_by("k").agg(n=F.count("*")).write_stream.output_mode("complete").to_flow(flow, "orders")


def _durable(session: ps.Session, path: Path, **options: Any) -> ps.IncrementalFlow:
    flow = ps.IncrementalFlow(session, path=path, **options)
    if not flow.sources():
        flow.register_source("orders", "id BIGINT, k STRING, amount BIGINT")
        flow.register_source("payments", "id BIGINT, k STRING, amount BIGINT")
        flow.register_view("totals", "SELECT k, SUM(amount) AS total, COUNT(*) AS n FROM orders GROUP BY k")
    return flow


def test_a_durable_flow_and_its_streams_go_on_together(
    session: ps.Session, spark: SparkSession, tmp_path: Path
) -> None:
    for at in range(3):
        _add(spark, tmp_path / "in", (at, "a", 1))
    with _durable(session, tmp_path / "flow") as flow:
        stream = session.read_stream.json(tmp_path / "in", schema="id BIGINT, k STRING, amount BIGINT")
        with pytest.raises(ps.ConfigError) as refused:
            stream.write_stream().trigger(ps.Trigger.available_now()).to_flow(flow, "orders")
        assert refused.value.code == "STREAM_CHECKPOINT_MISSING"
        orders = _run(
            session, tmp_path / "in", flow, tmp_path / "ckpt" / "orders", name="into-a-durable-flow"
        )
        assert "guarantee   exactly once (each epoch is one record of the flow's log)" in orders.explain()
        _run(session, tmp_path / "in", flow, tmp_path / "ckpt" / "payments", source="payments")
        assert _totals(flow) == {"a": (3, 3)}
    _add(spark, tmp_path / "in", (4, "b", 7))
    with _durable(session, tmp_path / "flow") as flow:
        for source in ("orders", "payments"):
            _run(session, tmp_path / "in", flow, tmp_path / "ckpt" / source, source=source)
        assert _totals(flow) == {"a": (3, 3), "b": (7, 1)}
        assert flow.snapshot("payments").num_rows == 4
        assert flow.source_info("orders").ordinal == 4


def test_a_checkpoint_that_is_older_than_the_flow_is_refused(
    session: ps.Session, spark: SparkSession, tmp_path: Path
) -> None:
    _add(spark, tmp_path / "in", (1, "a", 1))
    flow = _durable(session, tmp_path / "flow")
    _run(session, tmp_path / "in", flow, tmp_path / "ckpt")
    shutil.copytree(tmp_path / "ckpt", tmp_path / "older")
    _add(spark, tmp_path / "in", (2, "a", 1))
    _run(session, tmp_path / "in", flow, tmp_path / "ckpt")
    _add(spark, tmp_path / "in", (3, "a", 1))
    # Its next epoch would have the number of one that is in, and the rows of two.
    with pytest.raises(
        ps.StateError, match="has seen 2 epochs of the query, and its checkpoint has begun 1"
    ) as ahead:
        _run(session, tmp_path / "in", flow, tmp_path / "older")
    assert ahead.value.code == "STREAM_FLOW_AHEAD"
    _run(session, tmp_path / "in", flow, tmp_path / "ckpt")
    assert _totals(flow) == {"a": (3, 3)}
    flow.close()
    # The other way round: the flow is gone, and the checkpoint is not.
    shutil.rmtree(tmp_path / "flow")
    with _durable(session, tmp_path / "flow") as other, pytest.raises(ps.StateError) as behind:
        _run(session, tmp_path / "in", other, tmp_path / "ckpt")
    assert behind.value.code == "STREAM_FLOW_BEHIND"


def test_an_epoch_is_on_the_disk_before_the_query_notes_it(
    session: ps.Session, spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([(1, "a", 5)], "id BIGINT, k STRING, amount BIGINT")
    target = Target(spark, "q-1", "q", "append", frame.schema, settings=config.load())
    with _durable(session, tmp_path / "flow", sync="1 hour") as flow:
        assert flow._runner.directory is not None
        log: Any = flow._runner.directory._log
        sink = FlowSink(flow, "orders")
        sink.open(target)
        flow.tick("payments", [{"id": 1, "k": "a", "amount": 1}])
        assert log._synced < log.next
        sink.write(Epoch(0, frame))
        assert log._synced == log.next
        flow.tick("payments", [{"id": 2, "k": "a", "amount": 1}])
        # An epoch that comes again is noted behind this call, too.
        sink.write(Epoch(0, frame))
        assert log._synced == log.next
        sink.close()
