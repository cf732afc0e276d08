"""Change streams to sinks that keep every row: they show or store the operation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

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


def test_the_console_samples_and_is_done(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"format": "json", "sample_every": 3, "num_records_before_stop": 4}
    sink = open_sink(ConsoleSink(options), spark.range(1))
    done = []
    for epoch, start in enumerate(range(0, 20, 5)):
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
