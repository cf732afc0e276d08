"""The kit that authors of plugins use: good plugins pass, and what a bad one does wrong is said."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock.functions.plugin import scalar_function
from penstock.testing import (
    check_function,
    check_preprocessor,
    check_sink,
    check_source,
    check_transform,
    run_transform,
)
from penstock.testing.rows import EVERY_TYPE, generated_batches


class Numbers(ps.SourcePlugin):
    class Options(ps.Options):
        end: int = 7

    schema: Any = "id BIGINT, name STRING"

    def read(self, offset: Any, limit: int) -> Any:
        first = offset or 0
        last = min(self.options.end, first + limit)
        ids = pa.array(range(first, last), pa.int64())
        return [pa.record_batch({"id": ids, "name": ids.cast(pa.string())})] if last > first else [], last


def test_a_good_source() -> None:
    rows = check_source(Numbers, {"end": 7})
    assert rows.column("id").to_pylist() == list(range(7))


class Greedy(Numbers):
    def read(self, offset: Any, limit: int) -> Any:
        return super().read(offset, limit + 1)


class Forgetful(Numbers):
    position = 0

    def read(self, offset: Any, limit: int) -> Any:
        batches, self.position = super().read(self.position, limit)
        return batches, self.position


class Untyped(Numbers):
    schema = None


class Unstorable(Numbers):
    def read(self, offset: Any, limit: int) -> Any:
        return super().read(None, limit)[0], {1, 2}


class Stuck(Numbers):
    def read(self, offset: Any, limit: int) -> Any:
        return super().read(offset, limit)[0], offset


class Mistyped(Numbers):
    schema = "id BIGINT, nam STRING"


class Unending(Numbers):
    def terminate(self) -> None:
        raise OSError("nothing is open")


class Lax(Numbers):
    class Options(ps.Options):
        model_config = {"extra": "ignore"}
        end: int = 7


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Greedy, r"rows come epoch by epoch: read\(None, 3\) gave 4 rows, more than the limit"),
        (Forgetful, "an epoch is read again as it was, after the ones behind it: read"),
        (Untyped, "it declares its columns: schema is None"),
        (Unstorable, "the offset is {1, 2}, which JSON cannot say"),
        (Stuck, "gave rows, and the offset behind them is the same"),
        (Mistyped, "unknown column 'name'"),
        (Unending, r"it raised OSError: nothing is open \(.*test_plugin_contract.py:\d+\)"),
        (Lax, "an option that there is not is refused: 'no_such_option' was taken"),
    ],
)
def test_a_bad_source(kind: type[ps.SourcePlugin], why: str) -> None:
    with pytest.raises(
        AssertionError, match=f"{kind.__name__} does not keep the contract of a plugin:(.|\n)*{why}"
    ):
        check_source(kind)


def test_a_source_without_rows() -> None:
    with pytest.raises(AssertionError, match="give the check options with which there are some"):
        check_source(Numbers, {"end": 0})
    with pytest.raises(ps.ConfigError, match="end must be a whole number"):
        check_source(Numbers, {"end": "x"})


class Same(ps.TransformPlugin):
    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        return batch


class Upper(ps.TransformPlugin):
    class Options(ps.Options):
        column: str

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        at = batch.schema.get_field_index(self.options.column)
        return batch.set_column(at, self.options.column, pc.utf8_upper(batch[self.options.column]))


def test_good_transforms() -> None:
    check_transform(Same)
    check_transform(Upper, {"column": "name"}, schema="id BIGINT, name STRING")
    assert run_transform(Upper, {"column": "b"}, [{"a": 1, "b": "x"}, {"a": 2, "b": None}]) == [
        {"a": 1, "b": "X"},
        {"a": 2, "b": None},
    ]


class Counting(Same):
    """Its rows depend on their batch."""

    schema = "n BIGINT"

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        return pa.record_batch({"n": pa.array([batch.num_rows], pa.int64())})


class Changing(Same):
    calls = 0
    schema = "n BIGINT"

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        Changing.calls += 1
        return pa.record_batch({"n": pa.array([Changing.calls] * batch.num_rows, pa.int64())})


class Picky(Same):
    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        if batch.num_rows and batch.column(0).null_count:
            raise ValueError("no NULLs")
        return batch.select([batch.schema.names[0]])


class InOrder(Same):
    """Numbers its rows, and gives them to a side output before it hands them on."""

    parallel = False
    schema = "n BIGINT"

    def initialize(self, context: Any) -> None:
        self.context = context
        self.rows = 0

    def process_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        first = self.first(batch.num_rows)
        self.context.side_output("copies").write(batch)
        return pa.record_batch({"n": pa.array(range(first, first + batch.num_rows), pa.int64())})

    def first(self, rows: int) -> int:
        first = int(self.context.state.get("rows", 0))
        self.context.state.put("rows", first + rows)
        return first


class Remembering(InOrder):
    def first(self, rows: int) -> int:
        first, self.rows = self.rows, self.rows + rows
        return first


def test_a_transform_that_stores_what_it_counts() -> None:
    check_transform(InOrder)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Remembering, "a batch that fails comes again in halves: 100 rows leave other rows when they have"),
        (Counting, "rows do not depend on how they fall into batches: 100 rows in one batch"),
        (Changing, r"it takes a batch \(one row\): the same epoch gave other rows"),
        (Picky, r"it takes a batch \(nulls\): it raised ValueError: no NULLs"),
        (Picky, "the column _op is handed on: it comes in, and the columns that go out are a"),
    ],
)
def test_a_bad_transform(kind: type[ps.TransformPlugin], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_transform(kind)


class Database(ps.SinkPlugin):
    """Rows in SQLite, as the documentation has it."""

    class Options(ps.Options):
        path: str

    exactly_once = True

    def initialize(self, context: Any) -> None:
        self.db = sqlite3.connect(self.options.path, isolation_level=None)
        self.db.execute("CREATE TABLE IF NOT EXISTS rows (text)")
        self.db.execute("CREATE TABLE IF NOT EXISTS epochs (epoch)")
        self.db.execute("BEGIN")

    def process_batch(self, batch: pa.RecordBatch) -> None:
        self.db.executemany("INSERT INTO rows VALUES (?)", [(str(row),) for row in batch.to_pylist()])

    def process_checkpoint_marker(self, epoch: int) -> None:
        if self.db.execute("SELECT 1 FROM epochs WHERE epoch >= ?", [epoch]).fetchone():
            self.db.execute("ROLLBACK")
        else:
            self.db.execute("INSERT INTO epochs VALUES (?)", [epoch])
            self.db.execute("COMMIT")
        self.db.execute("BEGIN")

    def terminate(self) -> None:
        self.db.close()


class Files(ps.SinkPlugin):
    """Appends at once: at least once."""

    class Options(ps.Options):
        path: str

    def process_batch(self, batch: pa.RecordBatch) -> None:
        with Path(self.options.path).open("a") as file:
            file.writelines(json.dumps(str(row)) + "\n" for row in batch.to_pylist())


class Boastful(Files):
    exactly_once = True


class Lossy(Files):
    def process_batch(self, batch: pa.RecordBatch) -> None:
        super().process_batch(batch.slice(0, 5_000))


def _lines(path: Path) -> Callable[[], int]:
    return lambda: len(path.read_text().splitlines()) if path.exists() else 0


def test_good_sinks(tmp_path: Path) -> None:
    database = tmp_path / "rows.db"

    def stored() -> Any:
        return sqlite3.connect(database).execute("SELECT text FROM rows").fetchall()

    check_sink(Database, {"path": str(database)}, stored=stored)
    check_sink(Files, {"path": str(tmp_path / "rows")}, schema="id BIGINT", stored=_lines(tmp_path / "rows"))


def test_bad_sinks(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with pytest.raises(AssertionError, match="comes again: 10009 rows were written, and 10012 are stored"):
        check_sink(Boastful, {"path": str(path)}, stored=_lines(path))
    path.unlink()
    with pytest.raises(
        AssertionError, match="what is stored is what came in: 10006 rows were written, and 5006"
    ):
        check_sink(Lossy, {"path": str(path)}, stored=_lines(path))


def test_functions() -> None:
    @scalar_function("BIGINT", arguments=["STRING"])
    def length(texts: Any) -> Any:
        return pc.utf8_length(texts)

    @scalar_function("BIGINT")
    def position(texts: Any) -> Any:
        return pa.array(range(len(texts)), pa.int64())

    check_function(length)
    with pytest.raises(AssertionError, match="declare its arguments"):
        check_function(position)
    with pytest.raises(AssertionError, match="100 rows in one batch give other values than in two"):
        check_function(position, arguments=["STRING"])


def test_rows_are_of_every_type() -> None:
    batches = generated_batches(EVERY_TYPE)
    extremes = batches["extremes"].to_pylist()
    assert (extremes[0]["e"], extremes[1]["e"]) == (-(2**63), 2**63 - 1)
    assert str(extremes[1]["h"]) == "99999999.99"
    assert all(column.null_count == 2 for column in batches["nulls"].columns)


def _with_label(document: Any) -> Any:
    sources = document.get("sources")
    for node in sources.values() if isinstance(sources, dict) else ():
        if isinstance(node, dict):
            node.setdefault("telemetry", {"labels": {"team": "shop"}})
    return document


def _strict(document: Any) -> Any:
    if not document.get("sources"):
        raise ps.ConfigError("no sources")
    return _with_label(document)


def test_good_preprocessors() -> None:
    check_preprocessor(_with_label)
    check_preprocessor(_strict, {"sources": {"a": {"type": "rate"}}, "sinks": {}})


def _trusting(document: Any) -> Any:
    for node in document["sources"].values():
        node.setdefault("telemetry", {})
    return document


def _lost(document: Any) -> Any:
    document["labels"] = {}


def _dated(document: Any) -> Any:
    return {**document, "made": date(2026, 1, 1)}


def _counting(document: Any, calls: list[int] = [0]) -> Any:  # noqa: B006  # it is to remember
    calls[0] += 1
    return {**document, "name": f"run-{calls[0]}"}


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_trusting, r"that nobody has checked \(empty\): it raised KeyError: 'sources'"),
        (_trusting, r"\(nodes that are no mappings\): it raised AttributeError"),
        (_lost, "it takes a pipeline: it returned NoneType"),
        (_dated, "the document, made has date, which YAML does not have"),
        (_counting, "the same pipeline gave .*run-2"),
    ],
)
def test_a_bad_preprocessor(function: Callable[[Any], Any], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_preprocessor(function)
