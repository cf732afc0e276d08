"""A process that refreshes a lake view is killed around ticks and commits: the table is always the query over the snapshots that it says."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seed import SEED

PROGRAM = """
import json, sys
import penstock as ps
from lake_history import bag, standing
from penstock.sinks import iceberg_view
from penstock.sinks.iceberg_view import IcebergViewSink

settings = json.loads(sys.argv[1])
session = ps.Session.embedded(
    master="local[2]",
    connectors=("iceberg",),
    catalogs={"lake": {"type": "hadoop", "warehouse": "warehouse"}},
    flow="flow" if settings["durable"] else None,
)
spark, sql = session.spark, session.sql
table, view = "lake.db.t", "lake.db.totals"
query = "SELECT g, count(*) AS n, sum(v) AS total FROM {} GROUP BY g"


def say(what):
    print(what, flush=True)


iceberg_view.FEW = settings["few"]
merge, overwrite = IcebergViewSink._merge, IcebergViewSink._overwrite


def told(self, *arguments):
    say("merging")
    merge(self, *arguments)
    say("merged")


def overwritten(self, *arguments):
    say("merging")
    overwrite(self, *arguments)
    say("merged")


IcebergViewSink._merge, IcebergViewSink._overwrite = told, overwritten


def compare():
    snapshot, sources = standing(spark, view)  # the sink of a flow that was opened may store more meanwhile
    expected = spark.sql(query.format(f"(SELECT * FROM {table} VERSION AS OF {sources[table]})"))
    stored = spark.sql(f"SELECT * FROM {view} VERSION AS OF {snapshot}")
    assert bag(stored.collect()) == bag(expected.collect()), (snapshot, sources)


if not spark.catalog.tableExists(view):
    sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    sql(f"CREATE TABLE {table} (k BIGINT, g INT, v BIGINT) USING iceberg")
    sql(f"INSERT INTO {table} VALUES (0, 0, 0)")
    sql(f"CREATE INCREMENTAL VIEW {view} AS {query.format(table)}")
compare()
say("up")
number = spark.table(table).agg({"k": "max"}).first()[0]
for number in range(number + 1, number + 1 + settings["more"]):
    sql(f"INSERT INTO {table} VALUES ({number}, {number % 3}, {number})")
    if number % 2:
        sql(f"UPDATE {table} SET v = v + 1, g = 1 WHERE k = {number // 2}")
    say("inserted")
    sql(f"REFRESH INCREMENTAL VIEW {view}")
    say("refreshed")
compare()
ticks = [row.tick for row in spark.sql(
    f"SELECT CAST(summary['penstock.tick'] AS INT) AS tick FROM {view}.snapshots ORDER BY committed_at").collect()]
if settings["durable"]:
    assert ticks == sorted(set(ticks)), ticks
assert bag(spark.table(view).collect()) == bag(spark.sql(query.format(table)).collect())
session.stop()
say("done")
"""


def _run(folder: Path, settings: dict[str, Any], *, kill_after: int | None) -> list[str]:
    """Let the process do its refreshes, or kill it behind a line; return what it said."""
    with (folder / "child.log").open("a") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(settings)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    assert child.stdout is not None
    said: list[str] = []
    try:
        for line in child.stdout:
            said.append(line.strip())
            if "up" in said and len(said) - said.index("up") == kill_after:
                child.kill()
    finally:
        child.kill()
        child.stdout.close()
        child.wait()
    assert "up" in said, (folder / "child.log").read_text()[-4000:]
    if kill_after is None:
        assert said[-1] == "done", (folder / "child.log").read_text()[-4000:]
    return said


@pytest.mark.parametrize(
    ("kills", "durable"),
    [
        (1, True),
        pytest.param(15, True, marks=pytest.mark.soak),
        pytest.param(15, False, marks=pytest.mark.soak),
    ],
)
def test_the_table_of_a_view_is_whole_whatever_was_killed(kills: int, durable: bool, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    for _ in range(kills):
        # Each refresh says four lines; a kill behind "merging" is in the middle of the commit.
        settings = {"more": 2, "durable": durable, "few": rng.choice([0, 100])}
        _run(tmp_path, settings, kill_after=rng.randint(2, 6))
    said = _run(tmp_path, {"more": 1, "durable": durable, "few": 100}, kill_after=None)
    assert said.count("refreshed") == 1
    assert "gets all rows anew" not in (tmp_path / "child.log").read_text()
