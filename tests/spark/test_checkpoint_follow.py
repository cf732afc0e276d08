"""A query with other sources that goes on where one has ended."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.spark.micro_batch import checkpoint, plan
from penstock.spark.micro_batch.union import union


def _write(session: ps.Session, folder: Path, name: str, *values: int) -> DataFrame:
    session.spark.createDataFrame([(value,) for value in values], "id INT").coalesce(1).write.mode(
        "append"
    ).parquet(str(folder / name))
    return session.spark.readStream.schema("id INT").parquet(str(folder / name))


def _run(session: ps.Session, frame: DataFrame, location: Path) -> tuple[str, list[tuple[int, list[int]]]]:
    epochs: list[tuple[int, list[int]]] = []

    def write(batch: DataFrame, number: int) -> None:
        if "id" not in batch.columns:
            batch = batch.selectExpr("coalesce(_row_0._c0, _row_1._c0) AS id")
        epochs.append((number, sorted(row[0] for row in batch.collect())))

    writer = session.stream(frame).write_stream.trigger(ps.Trigger.available_now())
    query = writer.option("checkpoint.location", location).foreach_batch(write).start()
    query.await_termination()
    return query.id, epochs


def test_epochs_are_counted_on_and_the_new_sources_begin_anew(
    session: ps.Session, spark: SparkSession, tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    history = _write(session, tmp_path, "history", 1, 2)
    first, epochs = _run(session, history, before)
    assert epochs == [(0, [1, 2])]
    _write(session, tmp_path, "history", 3)
    assert _run(session, history, before) == (first, [(1, [3])])

    live = union([_write(session, tmp_path, "live", 4), _write(session, tmp_path, "other", 5)])
    for _ in range(2):
        checkpoint.follow(spark, str(before), str(after), plan.shape(live))
    assert _run(session, live, after) == (first, [(2, [4, 5])])
    checkpoint.follow(spark, str(before), str(after), plan.shape(live))
    _write(session, tmp_path, "other", 6)
    assert _run(session, live, after) == (first, [(3, [6])])


def test_a_crash_between_the_two_logs_is_repaired(
    session: ps.Session, spark: SparkSession, tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    first, _ = _run(session, _write(session, tmp_path, "history", 1), before)
    live = _write(session, tmp_path, "live", 2)
    checkpoint.follow(spark, str(before), str(after), plan.shape(live))
    (after / "commits" / "0").unlink()
    checkpoint.follow(spark, str(before), str(after), plan.shape(live))
    assert _run(session, live, after) == (first, [(1, [2])])


def test_a_query_without_an_epoch_is_followed_from_the_beginning(
    session: ps.Session, spark: SparkSession, tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    empty = session.spark.readStream.schema("id INT").parquet(str(tmp_path / "nothing*"))
    (tmp_path / "nothing").mkdir()
    first, epochs = _run(session, empty, before)
    assert epochs == []
    live = _write(session, tmp_path, "live", 2)
    checkpoint.follow(spark, str(before), str(after), plan.shape(live))
    assert _run(session, live, after) == (first, [(0, [2])])
