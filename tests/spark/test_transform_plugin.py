"""Plugins as transforms: in tasks and on the driver, their columns, rows that they cannot take, their life."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock import config
from penstock.errors import ConfigError, ConnectorError, PenstockError
from penstock.plugin import TransientValues
from penstock.sinks.memory import MemorySink
from penstock.spark.errors.query import translated
from penstock.transforms.base import TransformContext
from penstock.transforms.plugin import PluginTransform


class Doubled(ps.TransformPlugin):
    """Adds a column; a name that is "bad" is refused, and "odd" ones leave by a side output."""

    class Options(ps.Options):
        factor: int = 2

    def initialize(self, context: Any) -> None:
        self.context = context

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        if pc.any(pc.equal(batch["name"], "bad")).as_py():
            raise ValueError("a bad name")
        return batch.append_column("double", pc.multiply(batch["id"], self.options.factor))


class InOrder(Doubled):
    """Numbers its rows, on the driver."""

    class Options(Doubled.Options):
        path: str

    parallel = False
    schema = "number BIGINT, id BIGINT"

    def initialize(self, context: Any) -> None:
        super().initialize(context)
        self.tell("initialize", context.schema.names)

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        super().process_batch(batch)
        first = self.context.state.get("rows", 0)
        self.context.state.put("rows", first + batch.num_rows)
        if pc.all(pc.equal(batch["id"], 13)).as_py():
            self.context.side_output("unlucky").write(batch)
            return None
        return pa.record_batch({"number": range(first, first + batch.num_rows), "id": batch["id"]})

    def process_checkpoint_marker(self, epoch: int) -> None:
        self.tell("marker", epoch, self.context.epoch)

    def process_checkpoint_finalizer(self, epoch: int) -> None:
        self.tell("finalizer", epoch)

    def terminate(self) -> None:
        self.tell("terminate")

    def tell(self, *what: Any) -> None:
        with Path(self.options.path).open("a") as file:
            file.write(json.dumps(what) + "\n")


def _context(spark: SparkSession, **changes: Any) -> TransformContext:
    return TransformContext(spark, "q", "node", config.load(), state=TransientValues(), **changes)


def _rows(spark: SparkSession, *names: str, more: str = "") -> DataFrame:
    values = ", ".join(f"({number}, '{name}')" for number, name in enumerate(names))
    return spark.sql(f"SELECT CAST(id AS BIGINT) AS id, name{more} FROM VALUES {values} AS t(id, name)")


def _transform(kind: type[ps.TransformPlugin], **options: Any) -> PluginTransform:
    return PluginTransform(kind, options, name=kind.__name__.lower())


def _dicts(frame: DataFrame) -> list[Mapping[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def test_rows_in_tasks(spark: SparkSession) -> None:
    transform, context = _transform(Doubled, factor="3"), _context(spark)
    frame = transform.apply(_rows(spark, "a", "b", more=", 'i' AS _op").limit(0), context)
    assert frame.schema.simpleString() == "struct<id:bigint,name:string,_op:string,double:bigint>"
    transform.open(context)
    transform.begin(0)
    rows = _dicts(transform.apply(_rows(spark, "a", "b", more=", 'd' AS _op"), context))
    assert rows == [
        {"id": 0, "name": "a", "_op": "d", "double": 0},
        {"id": 1, "name": "b", "_op": "d", "double": 3},
    ]
    transform.commit(0)
    transform.finalize(0)
    transform.close()


def test_the_life_on_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    sink = MemorySink({})
    transform = PluginTransform(InOrder, {"path": str(calls)}, name="in_order", side_sinks={"unlucky": sink})
    context = _context(spark)
    assert transform.apply(_rows(spark, "a").limit(0), context).columns == ["number", "id"]
    transform.open(context)
    for epoch in (0, 1):
        transform.begin(epoch)
        frame = transform.apply(_rows(spark, "a", "b", "c"), context)
        # What reads the rows twice does not run the plugin twice.
        assert sorted(row["number"] for row in _dicts(frame)) == [3 * epoch, 3 * epoch + 1, 3 * epoch + 2]
        assert frame.count() == 3
        transform.commit(epoch)
        transform.finalize(epoch)
    transform.begin(2)
    unlucky = spark.sql("SELECT CAST(13 AS BIGINT) AS id, 'x' AS name")
    assert _dicts(transform.apply(unlucky, context)) == []
    transform.commit(2)
    assert [row["id"] for batch in sink.batches() or () for row in batch.to_pylist()] == [13]
    transform.close()
    assert [json.loads(line) for line in calls.read_text().splitlines()] == [
        ["initialize", ["id", "name"]],  # for the columns alone
        ["terminate"],
        ["initialize", ["id", "name"]],
        ["marker", 0, 0],
        ["finalizer", 0],
        ["marker", 1, 1],
        ["finalizer", 1],
        ["marker", 2, 2],
        ["terminate"],
    ]


@pytest.mark.parametrize("parallel", [True, False])
def test_rows_that_fail_are_found(spark: SparkSession, tmp_path: Path, parallel: bool) -> None:
    names = ["a", "bad", "c", "d", "bad", "f", "g"]
    options = {} if parallel else {"path": str(tmp_path / "calls")}
    transform = _transform(Doubled if parallel else InOrder, **options)
    context = _context(spark, on_error="dead_letter")
    transform.open(context)
    frame = transform.apply(_rows(spark, *names).coalesce(1), context)
    assert frame.columns[-2:] == ["_error", "_input"]
    failed = [row for row in _dicts(frame) if row["_error"] is not None]
    assert [row["_error"] for row in failed] == ["ValueError: a bad name"] * 2
    assert [json.loads(row["_input"]) for row in failed] == [
        {"id": 1, "name": "bad"},
        {"id": 4, "name": "bad"},
    ]
    assert all(row["id"] is None for row in failed)
    assert sorted(row["id"] for row in _dicts(frame) if row["_error"] is None) == [0, 2, 3, 5, 6]
    transform.close()


@pytest.mark.parametrize("parallel", [True, False])
def test_a_row_that_fails_is_named(spark: SparkSession, tmp_path: Path, parallel: bool) -> None:
    options = {} if parallel else {"path": str(tmp_path / "calls")}
    transform = _transform(Doubled if parallel else InOrder, **options)
    transform.open(_context(spark))
    why = r'cannot take a row: ValueError: a bad name; the row: {"id":1,"name":"bad"}'
    with pytest.raises(PenstockError, match=why) as refused, translated():
        transform.apply(_rows(spark, "a", "bad", "c").coalesce(1), _context(spark)).collect()
    assert refused.value.code == "PLUGIN_ROW"
    transform.close()


class Copied(ps.TransformPlugin):
    """Counts its rows and gives them to a side output, before it sees what it cannot take."""

    parallel = False
    schema = "number BIGINT, name STRING"
    outages = 1

    def initialize(self, context: Any) -> None:
        self.context = context

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        first = self.context.state.get("rows", 0)
        self.context.state.put("rows", first + batch.num_rows)
        self.context.side_output("copies").write(batch)
        if "away" in batch["name"].to_pylist() and Copied.outages:
            Copied.outages -= 1
            raise ConnectorError("the server is away", retryable=True)
        if "bad" in batch["name"].to_pylist():
            raise ValueError("a bad name")
        numbers = pa.array(range(first, first + batch.num_rows), pa.int64())
        return pa.record_batch({"number": numbers, "name": batch["name"]})


def test_what_a_batch_did_that_comes_again_is_there_once(spark: SparkSession) -> None:
    sink = MemorySink({})
    transform = PluginTransform(Copied, {}, name="copied", side_sinks={"copies": sink})
    context = _context(spark, on_error="drop")
    assert context.state is not None
    transform.open(context)
    rows = _rows(spark, "a", "away", "b", "bad", "c", "d", "e").coalesce(1)
    for _ in range(2):  # the second time a sink had failed, and the epoch comes again
        transform.begin(0)
        taken = [row for row in _dicts(transform.apply(rows, context)) if row["_error"] is None]
        assert [(row["number"], row["name"]) for row in taken] == list(
            enumerate(["a", "away", "b", "c", "d", "e"])
        )
    assert Copied.outages == 0
    assert context.state.get("rows") is None
    transform.commit(0)
    assert context.state.get("rows") == 6
    copies = [row["name"] for batch in sink.batches() or () for row in batch.to_pylist()]
    assert sorted(copies) == ["a", "away", "b", "c", "d", "e"]
    transform.close()


class Wrong(ps.TransformPlugin):
    class Options(ps.Options):
        what: str

    schema = "id BIGINT NOT NULL"

    def process_batch(self, batch: pa.RecordBatch) -> Any:
        match self.options.what:
            case "list":
                return batch.to_pylist()
            case "column":
                return batch.rename_columns(["idd", "name"]).select(["idd"])
            case "missing":
                return batch.select([])
            case _:
                return pa.record_batch({"id": ["x"] * batch.num_rows})


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("list", "the plugin wrong gave list, and a batch is a pyarrow.RecordBatch"),
        ("column", "unknown column 'idd'"),
        ("missing", "column 'id' is missing"),
        ("type", "column 'id' holds string values that do not fit int64: 'x'"),
    ],
)
def test_what_a_transform_must_not_give(spark: SparkSession, what: str, why: str) -> None:
    transform = _transform(Wrong, what=what)
    transform.open(_context(spark))
    with pytest.raises(PenstockError, match=why), translated():
        transform.apply(_rows(spark, "a").coalesce(1), _context(spark)).collect()
    transform.close()


class Away(ps.TransformPlugin):
    failures = 2
    parallel = False

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows and Away.failures:
            Away.failures -= 1
            raise ConnectorError("the server is away", retryable=True)
        return batch


def test_an_error_that_passes_is_waited_for(spark: SparkSession) -> None:
    transform, context = _transform(Away), _context(spark)
    transform.open(context)
    assert len(_dicts(transform.apply(_rows(spark, "a", "b"), context))) == 2
    assert Away.failures == 0
    assert context.status.retries == 2
    transform.close()


class Empty(ps.TransformPlugin):
    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.slice(0, 1 // batch.num_rows)


class NoOperations(ps.TransformPlugin):
    schema = "id BIGINT"

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(["id"])


def test_what_is_refused_before_rows_come(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="no option 'fact'"):
        _transform(Doubled, fact=1)
    with pytest.raises(PenstockError, match="raised ZeroDivisionError") as schema:
        _transform(Empty).apply(_rows(spark, "a"), _context(spark))
    assert schema.value.code == "PLUGIN_SCHEMA"
    rows = _rows(spark, "a", more=", 'd' AS _op")
    with pytest.raises(ConfigError, match="have operations, and those that come out have none"):
        _transform(NoOperations).apply(rows, _context(spark))
