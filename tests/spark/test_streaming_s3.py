"""Streams in an object store: input, output and checkpoint, with state."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F  # as PySpark's users have it

import penstock as ps
from penstock.sinks import SINKS
from penstock.sinks.base import Epoch, Target


def test_a_query_with_state_goes_on_where_it_was(session: ps.Session, bucket: str) -> None:
    spark = session.spark
    rows = spark.range(100).select("id", (F.col("id") % 2).alias("k"))

    def run() -> list[tuple[int, int]]:
        query = (
            session.read_stream.parquet(f"{bucket}/in", schema="id BIGINT, k BIGINT")
            .drop_duplicates(["id"])
            .write_stream.trigger(ps.Trigger.available_now())
            .format("parquet")
            .option("path", f"{bucket}/out")
            .option("partition_by", "k")
            .option("checkpoint.location", f"{bucket}/checkpoint")
            .start()
        )
        query.await_termination()
        return sorted((row.id, row.k) for row in spark.read.parquet(f"{bucket}/out").collect())

    rows.write.parquet(f"{bucket}/in")
    assert run() == [(at, at % 2) for at in range(100)]
    spark.range(50, 150).select("id", (F.col("id") % 2).alias("k")).write.mode("append").parquet(
        f"{bucket}/in"
    )
    assert run() == [(at, at % 2) for at in range(150)]


def test_an_epoch_that_was_cut_short_is_written_once(session: ps.Session, bucket: str) -> None:
    frame = session.spark.range(5).repartition(3)
    target = Target(
        session.spark,
        "0a1b2c3d-0000-0000-0000-000000000000",
        "again",
        "append",
        frame.schema,
        settings=session.settings,
    )

    def opened() -> Any:
        sink = SINKS.load("parquet")({"path": f"{bucket}/out"})
        sink.check(target)
        sink.open(target)
        return sink

    def count() -> int:
        return session.spark.read.parquet(f"{bucket}/out").count()

    cut = opened()
    cut._folder.write = lambda name, content: (_ for _ in ()).throw(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        cut.write(Epoch(0, frame))
    assert count() == 5
    for _ in range(2):
        opened().write(Epoch(0, frame))
        assert count() == 5
