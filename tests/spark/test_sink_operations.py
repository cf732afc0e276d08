"""Change streams to sinks that keep every row: they show or store the operation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from open_sink import open_sink
from penstock.sinks import SINKS
from penstock.sinks.base import Epoch
from penstock.sinks.console import ConsoleSink
from penstock.sinks.memory import MemorySink


def _changes(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [(1, "a", "i"), (1, "b", "u"), (1, "b", "d")], "id INT, v STRING, _op STRING"
    )


def _open(sink: Any, frame: DataFrame) -> Any:
    return open_sink(sink, frame, keys=("id",), operation="_op")


def test_the_console_shows_the_operation_first(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = _changes(spark)
    assert _open(ConsoleSink({}), frame).write(Epoch(0, frame)) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "epoch 0"
    assert [line.strip("|").replace(" ", "") for line in lines[2:3] + lines[4:7]] == [
        "_op|id|v",
        "i|1|a",
        "u|1|b",
        "d|1|b",
    ]


def test_the_console_prints_a_line_per_row(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    frame = _changes(spark)
    _open(ConsoleSink({"format": "json"}), frame).write(Epoch(0, frame))
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == {"_op": "i", "id": 1, "v": "a"}
    assert [list(row) for row in rows] == [["_op", "id", "v"]] * 3


@pytest.mark.parametrize("truncate", [True, False])
def test_the_console_draws_the_table_that_spark_shows(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], truncate: bool
) -> None:
    frame = spark.sql(
        "SELECT 1.5D AS d, 1e10D AS big, CAST(2.50 AS DECIMAL(10,2)) AS m, true AS b, NULL AS nothing, DATE '2026-01-02' AS day, "
        "TIMESTAMP '2026-01-02 03:04:05.678' AS at, TIMESTAMP_NTZ '2026-01-02 03:04:05' AS local, X'CAFE' AS bytes, "
        "array(1, NULL) AS many, map('k', NULL) AS pairs, named_struct('x', 1, 'y', CAST(NULL AS STRING)) AS `in`, "
        "'a\\tb\\nc' AS `odd\tname`, '日本語' AS wide, 'twenty letters, all of them shown or cut' AS long "
        "UNION ALL SELECT 0D, double('NaN'), NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '', '', 'exactly 20 letters!!'"
    ).coalesce(1)
    sink = open_sink(ConsoleSink({"truncate": truncate}), frame)
    assert sink.write(Epoch(3, frame)) == 2
    shown = frame._jdf.showString(20, 20 if truncate else 0, False)
    assert capsys.readouterr().out == f"epoch 3\n{shown}\n"


def test_the_console_samples_and_is_done(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"format": "json", "sample_every": 3, "num_records_before_stop": 4}
    sink = open_sink(ConsoleSink(options), spark.range(1))
    done = []
    assert sink.write(Epoch(0, spark.range(0))) == 0
    for epoch, start in enumerate(range(0, 20, 5), 1):
        assert sink.write(Epoch(epoch, spark.range(start, start + 5).coalesce(1))) == 5
        done.append(sink.is_done)
    printed = [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()]
    assert printed == [0, 3, 6, 9]
    assert done == [False, True, True, True]


def test_memory_and_files_have_the_operation_as_a_column(spark: SparkSession, tmp_path: Path) -> None:
    frame = _changes(spark)
    memory = _open(MemorySink({}), frame)
    memory.write(Epoch(0, frame))
    assert [row["_op"] for batch in memory.batches() for row in batch.to_pylist()] == ["i", "u", "d"]
    files = _open(SINKS.load("json")({"path": tmp_path / "out"}), frame)
    files.write(Epoch(0, frame))
    assert sorted(row["_op"] for row in spark.read.json(str(tmp_path / "out")).collect()) == ["d", "i", "u"]


def test_sinks_say_that_they_know_operations() -> None:
    untold = [name for name in SINKS.builtin if name != "python" and not SINKS.load(name).takes_operations]
    assert untold == []


def test_a_query_ends_when_its_sink_is_done(session: ps.Session, capsys: pytest.CaptureFixture[str]) -> None:
    stream = session.read_stream.rate(rows_per_second=200).select("value")
    writer = (
        stream.write_stream.format("console").option("format", "json").option("num_records_before_stop", 5)
    )
    query = writer.start()
    assert query.await_termination_timeout(60)
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_two_sinks_of_a_pipeline_may_write_to_one_folder(spark: SparkSession, tmp_path: Path) -> None:
    folder, query = tmp_path / "out", "0b9d3c1e-4a57-4b5e-9d4f-0f6f3a6f1c55"
    sinks = [SINKS.load("json")({"path": folder}) for _ in range(2)]
    for start, (name, sink) in enumerate(zip(("first", "odd:name/表"), sinks, strict=True)):
        frame = spark.range(start * 10, start * 10 + 2).coalesce(1)
        open_sink(sink, frame, query=f"{query}-{name}")
        assert sink.write(Epoch(0, frame)) == 2
        again = open_sink(SINKS.load("json")({"path": folder}), frame, query=f"{query}-{name}")
        assert again.write(Epoch(0, frame)) == 0
    assert sorted(row["id"] for row in spark.read.json(str(folder)).collect()) == [0, 1, 10, 11]
