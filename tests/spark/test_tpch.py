"""All 22 TPC-H queries as views of one flow, under inserts, updates and deletes, against Spark after every tick."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from golden import canonical, drive, tpch
from golden.recording import Tiers, recorded_tpch, tiers_of
from golden.spark_answer import QUICK, settings

SCALE = 0.01
REFRESHES = 3


@dataclass(slots=True)
class Replay:
    """What the flow and Spark said after each tick, by query; `refused` has the views that could not be registered."""

    flow: dict[str, list[pa.Table]] = field(default_factory=dict)
    spark: dict[str, list[pa.Table]] = field(default_factory=dict)
    refused: dict[str, Exception] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    tiers: dict[str, Tiers] = field(default_factory=dict)


@pytest.fixture(scope="module")
def replay(
    session: ps.Session, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replay]:
    folder = tmp_path_factory.mktemp("tpch")
    tables = tpch.generate(folder, SCALE)
    played = Replay()
    flow = drive.open_flow(session, tpch.ddl())
    watched: dict[str, drive.Watched] = {}
    for name, query in tpch.QUERIES.items():
        try:
            played.tiers[name] = tiers_of(flow.register_view(name, query))
            watched[name] = drive.Watched(flow, name)
        except ps.PenstockError as error:
            played.refused[name] = error
    with settings(spark, QUICK):
        for number, refresh in enumerate(tpch.refreshes(tables, REFRESHES, seed=1)):
            for table, rows in refresh.changes.items():
                flow.feed(table, ps.DeltaBatch.weighted(rows))
            summary = flow.step()
            _show(spark, refresh, folder / str(number))
            for name in watched:
                _check(watched[name], summary, played)
                played.flow.setdefault(name, []).append(flow.snapshot(name))
            # Small queries leave half of two cores idle, so two are asked at a time.
            with ThreadPoolExecutor(2) as pool:
                answers = pool.map(lambda name: spark.sql(tpch.QUERIES[name]).toArrow(), watched)
                for name, answer in zip(watched, answers, strict=True):
                    played.spark.setdefault(name, []).append(answer)
    yield played
    for table in tables:
        spark.catalog.dropTempView(table)


def test_there_are_22_queries() -> None:
    assert len(tpch.QUERIES) == 22


@pytest.mark.parametrize("name", tpch.QUERIES)
@pytest.mark.timeout(600)
def test_query_is_right_after_every_refresh(replay: Replay, name: str) -> None:
    if name in replay.refused:
        raise replay.refused[name]
    assert name not in replay.wrong, replay.wrong[name]
    for tick, (got, expected) in enumerate(zip(replay.flow[name], replay.spark[name], strict=True)):
        assert canonical.schema(got.schema) == canonical.schema(expected.schema)
        assert canonical.rows(got) == canonical.rows(expected), f"{name} after tick {tick}"


def test_every_query_runs_in_its_tier(replay: Replay) -> None:
    assert replay.tiers == recorded_tpch(), "on purpose? then `make tiers` records the new ones"


def _check(watched: drive.Watched, summary: ps.StepSummary, replay: Replay) -> None:
    """One view whose deltas do not add up fails its own test, not the replay."""
    try:
        watched.check(summary)
    except AssertionError as error:
        replay.wrong[watched.view] = str(error)


def _show(spark: SparkSession, refresh: tpch.Refresh, folder: Path) -> None:
    """Make Spark's tables hold the rows after a refresh."""
    folder.mkdir()
    for name, rows in refresh.tables.items():
        path = folder / f"{name}.parquet"
        pq.write_table(rows, path)
        spark.read.parquet(str(path)).createOrReplaceTempView(name)
