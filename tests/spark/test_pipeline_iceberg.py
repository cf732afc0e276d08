"""The source `iceberg` of pipelines, and made-up rows."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import penstock as ps
from drained import drained, drained_rows
from penstock.config import load
from penstock.pipeline.sources.iceberg import IcebergNode
from penstock.pipeline.sources.rate import RateNode
from penstock.sources.base import SourceContext
from penstock.spark import catalogs


@pytest.fixture
def table(session: ps.Session, tmp_path: Path) -> str:
    lake = f"lake_{uuid.uuid4().hex[:12]}"
    for key, value in catalogs.conf_of(lake, {"type": "hadoop", "warehouse": str(tmp_path / "lake")}).items():
        session.spark.conf.set(key, value)
    session.spark.sql(f"CREATE TABLE {lake}.db.t (id BIGINT) USING iceberg")
    return f"{lake}.db.t"


def frame(session: ps.Session, table: str, *, goes_on: bool = False, **fields: Any) -> DataFrame:
    settings = load()
    node = IcebergNode.model_validate({"type": "iceberg", "table": table, **fields})
    return node.source(settings).read(SourceContext(session.spark, settings, goes_on=goes_on)).frame


@pytest.mark.parametrize("mode", ["bounded", {"type": "continuous", "poll_interval": "1s"}])
def test_rows_and_then_those_that_are_appended(
    session: ps.Session, table: str, tmp_path: Path, mode: Any
) -> None:
    spark = session.spark
    for number in range(3):
        spark.sql(f"INSERT INTO {table} VALUES ({number})")
    epochs = drained(frame(session, table, mode=mode, max_files=1), tmp_path / "c")
    assert [row["id"] for epoch in epochs for row in epoch] == [0, 1, 2]
    assert len(epochs) == 3
    spark.sql(f"INSERT INTO {table} VALUES (3)")
    assert drained_rows(frame(session, table, mode=mode), tmp_path / "c") == [{"id": 3}]


def test_deletes_fail_unless_they_are_to_be_left_out(session: ps.Session, table: str, tmp_path: Path) -> None:
    session.spark.sql(f"INSERT INTO {table} VALUES (1), (2)")
    session.spark.sql(f"DELETE FROM {table} WHERE id = 1")
    with pytest.raises(Exception, match=r"delete|overwrite"):
        drained(frame(session, table), tmp_path / "a")
    assert len(drained_rows(frame(session, table, only_appends=False), tmp_path / "b")) == 2


def test_a_table_that_is_to_end_beside_sources_that_do_not(session: ps.Session, table: str) -> None:
    with pytest.raises(ps.ConfigError) as caught:
        frame(session, table, mode="bounded", goes_on=True)
    assert caught.value.code == "SOURCE_ENDS"


def test_rows_that_are_made_up(session: ps.Session) -> None:
    settings = load()
    source = RateNode.model_validate({"type": "rate", "rows_per_second": 5}).source(settings)
    read = source.read(SourceContext(session.spark, settings)).frame
    assert read.isStreaming
    assert read.schema.simpleString() == "struct<timestamp:timestamp,value:bigint>"
