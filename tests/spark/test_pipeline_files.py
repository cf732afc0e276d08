"""The source `file` of pipelines: single files, folders, patterns, object stores, columns that are kept, and where it ends."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import penstock as ps
from drained import drained, drained_rows
from penstock.config import load
from penstock.pipeline.sources.file import FileNode
from penstock.sources.base import SourceContext
from penstock.spark.filesystem import Folder
from remembered import Remembered

ROWS = "id,price\n1,10.50\n2,7\n"


def frame(
    session: ps.Session, state: Remembered | None = None, *, goes_on: bool = False, **fields: Any
) -> DataFrame:
    node = FileNode.model_validate({"type": "file", **fields})
    settings = load()
    source = node.source(settings)
    return source.read(SourceContext(session.spark, settings, state=state, goes_on=goes_on)).frame


@pytest.mark.parametrize("path", ["orders.csv", ".", "*.csv", "[o]rders.csv"])
def test_one_file_a_folder_and_patterns(
    session: ps.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "orders.csv").write_text(ROWS)
    monkeypatch.chdir(data)
    rows = drained_rows(
        frame(session, path=path, format="csv", schema={"id": "int64", "price": "float64"}), tmp_path / "c"
    )
    assert [(row["id"], row["price"]) for row in rows] == [(1, 10.5), (2, 7.0)]


def test_one_file_of_several_is_alone(session: ps.Session, tmp_path: Path) -> None:
    (tmp_path / "a[1].csv").write_text(ROWS)
    (tmp_path / "a1.csv").write_text("id,price\n9,9\n")
    rows = drained_rows(frame(session, path=str(tmp_path / "a[1].csv")), tmp_path / "c")
    assert [row["id"] for row in rows] == [1, 2]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.csv", "id;price\n1;10.50\n"),
        ("x.tsv", "id\tprice\n1\t10.50\n"),
        ("x.jsonl", '{"id": 1, "price": 10.50}\n'),
    ],
)
def test_types_of_arrow_and_of_spark(session: ps.Session, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    options = {"sep": ";"} if name == "x.csv" else {}
    schema = {"id": "int64", "price": "decimal(10,2)"}
    read = frame(session, path=str(tmp_path / name), schema=schema, options=options)
    assert read.schema.simpleString() == "struct<id:bigint,price:decimal(10,2)>"
    [row] = drained_rows(read, tmp_path / "c")
    assert (row["id"], str(row["price"])) == (1, "10.50")


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "avro"])
def test_inferred_columns_are_kept(session: ps.Session, tmp_path: Path, form: str) -> None:
    state, data, checkpoint = Remembered(), tmp_path / "data", tmp_path / "c"
    session.spark.sql("SELECT 1 AS id, 'a' AS name").write.format(form).option("header", True).save(str(data))
    fields: dict[str, Any] = {"path": str(data), "format": form}
    first = frame(session, state, **fields)
    assert len(drained_rows(first, checkpoint)) == 1
    # What is there now would be inferred as other columns, or for CSV as other types.
    changed = session.spark.sql("SELECT 2 AS id, '7' AS name" + ("" if form == "csv" else ", 5 AS more"))
    changed.write.mode("overwrite").format(form).option("header", True).save(str(data))
    again = frame(session, state, **fields)
    assert again.schema == first.schema
    rows = drained_rows(again, checkpoint)
    assert [(row["id"], row["name"]) for row in rows] == [(2, "7")]


def test_each_file_once_and_so_many_per_epoch(session: ps.Session, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(3):
        (data / f"{number}.json").write_text(f'{{"id": {number}}}\n')
    fields: dict[str, Any] = {"path": str(data / "*.json"), "schema": {"id": "int64"}, "max_files": 1}
    assert sorted(row["id"] for [row] in drained(frame(session, **fields), tmp_path / "c")) == [0, 1, 2]
    assert drained(frame(session, **fields), tmp_path / "c") == []
    (data / "3.json").write_text('{"id": 3}\n')
    assert drained(frame(session, **fields), tmp_path / "c") == [[{"id": 3}]]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_bounded_source_has_its_end_in_a_query_that_goes_on(
    session: ps.Session, tmp_path: Path, form: str
) -> None:
    data, state = tmp_path / "data", Remembered()
    session.spark.sql("SELECT 1 AS id").write.format(form).option("header", True).save(str(data))
    fields: dict[str, Any] = {"path": str(data), "format": form, "schema": {"id": "int32"}}
    read = frame(session, state, goes_on=True, **fields)
    assert [row["id"] for row in drained_rows(read, tmp_path / "c")] == [1]
    session.spark.sql("SELECT 2 AS id").write.mode("append").format(form).option("header", True).save(
        str(data)
    )
    later = time.time() + 5
    for path in data.iterdir():
        if path.suffix == f".{form}" and path.stat().st_mtime > state.get("started_at_ms") / 1000:
            os.utime(path, (later, later))
    assert drained(frame(session, state, goes_on=True, **fields), tmp_path / "c") == []


def test_folders_in_a_folder(session: ps.Session, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "north").mkdir(parents=True)
    (data / "north" / "a.csv").write_text("id\n1\n")
    (data / "b.csv").write_text("id\n2\n")
    fields: dict[str, Any] = {"path": str(data), "format": "csv", "schema": {"id": "int64"}}
    deep = drained_rows(frame(session, recursive=True, **fields), tmp_path / "deep")
    assert sorted(row["id"] for row in deep) == [1, 2]
    assert [row["id"] for row in drained_rows(frame(session, **fields), tmp_path / "flat")] == [2]


def test_bad_records_are_dropped(session: ps.Session, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"id": 1}\n{"id": "one"}\n{"id": 2}\n')
    read = frame(session, path=str(tmp_path / "x.jsonl"), schema={"id": "int64"}, on_bad_record="drop")
    assert [row["id"] for row in drained_rows(read, tmp_path / "c")] == [1, 2]


@pytest.mark.parametrize(("path", "ids"), [("day/a.csv", [1]), ("day/", [1, 2]), ("day/*.csv", [1, 2])])
def test_an_object_store(session: ps.Session, bucket: str, tmp_path: Path, path: str, ids: list[int]) -> None:
    folder = Folder(session.spark, bucket)
    for name, number in (("a", 1), ("b", 2)):
        folder.write(f"day/{name}.csv", f"id\n{number}\n")
    read = frame(session, path=f"{bucket}/{path}", format="csv", schema={"id": "int64"})
    assert sorted(row["id"] for row in drained_rows(read, tmp_path / "c")) == ids
