"""A query with views in its middle is killed at every stage of an epoch: its two sinks have the answer, each change once."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from class_archive import archive_conf
from seed import SEED

POINTS = ("behind the tick", "between the sinks", "behind the sinks")
MORE_POINTS = ("before the tick", *POINTS, "behind the end")
FILES, ROWS = 12, 30
PROGRAM = """
import os, signal, sqlite3, sys
from pathlib import Path
import penstock as ps
from penstock.engine.epoch_flow import EpochFlow
from penstock.pipeline.stage_plan import StageInput, StageView
from penstock.pipeline.view_stage import ViewStage

point, epochs = sys.argv[1], int(sys.argv[2])
schema = "id BIGINT, k BIGINT, n BIGINT, _op STRING"
done = 0

def die(here):
    if here == point and done >= epochs:
        os.kill(os.getpid(), signal.SIGKILL)

tick = EpochFlow.tick
def killed_tick(flow, epoch, batches):
    die("before the tick")
    tick(flow, epoch, batches)
    die("behind the tick")
EpochFlow.tick = killed_tick

class Sink:
    def __init__(self, name):
        self.db = sqlite3.connect(f"{name}.db", check_same_thread=False)
        self.db.execute("CREATE TABLE IF NOT EXISTS totals (k INT PRIMARY KEY, n INT, rows INT)")
        self.db.execute("CREATE TABLE IF NOT EXISTS epochs (epoch INT PRIMARY KEY)")

    def write(self, epoch, rows):
        with self.db:
            if self.db.execute("SELECT 1 FROM epochs WHERE epoch = ?", [epoch]).fetchone():
                return
            self.db.execute("INSERT INTO epochs VALUES (?)", [epoch])
            for row in rows:
                # Each change fits what is there: an insert finds no row, an update and a delete find one.
                if row["_op"] == "i":
                    self.db.execute("INSERT INTO totals VALUES (?, ?, ?)", [row["k"], row["n"], row["rows"]])
                elif row["_op"] == "u":
                    changed = self.db.execute("UPDATE totals SET n = ?, rows = ? WHERE k = ?", [row["n"], row["rows"], row["k"]])
                    assert changed.rowcount == 1
                else:
                    gone = self.db.execute("DELETE FROM totals WHERE k = ? AND n = ? AND rows = ?", [row["k"], row["n"], row["rows"]])
                    assert gone.rowcount == 1

commits = Path("checkpoint/commits")
committed = max((int(name) for name in os.listdir(commits) if name.isdigit()), default=-1) if commits.exists() else -1
with ps.Session.embedded(master="local[2]") as session:
    stage = ViewStage(
        session,
        "stage",
        [StageInput("rows", schema, ("id",), operations=True)],
        [
            StageView("large", "SELECT * FROM rows WHERE n > 1", ("id",), wanted=False),
            StageView("totals", "SELECT k, sum(n) AS n, count(*) AS rows FROM large GROUP BY k", ("k",)),
        ],
        checkpoint_every=1,
    )
    stage.open(committed=committed)
    sinks = [Sink("first"), Sink("second")]
    last = committed

    def epoch_of(frame, epoch):
        global done, last
        if last >= 0:
            stage.finalize(last)
        changes = stage.step(epoch, {"rows": frame})["totals"].collect()
        sinks[0].write(epoch, changes)
        die("between the sinks")
        sinks[1].write(epoch, changes)
        die("behind the sinks")
        done, last = done + 1, epoch

    rows = session.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json("in")
    query = rows.writeStream.option("checkpointLocation", "checkpoint").trigger(availableNow=True).foreachBatch(epoch_of).start()
    query.awaitTermination()
    die("behind the end")
    stage.finalize(last)
    stage.close()
print("finished")
"""


def _rows(number: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "id": number.randrange(60),
            "k": number.randrange(7),
            "n": number.randrange(5),
            "_op": number.choice("iud"),
        }
        for _ in range(ROWS)
    ]


def _run(folder: Path, point: str, epochs: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PENSTOCK_CONF": archive_conf(), "TMPDIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, point, str(epochs)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number, marks=pytest.mark.soak) for number in range(1, 8))]
)
def test_two_sinks_have_the_answer_whenever_the_process_is_killed(number: int, tmp_path: Path) -> None:
    chance = random.Random(SEED + number)
    table: dict[int, dict[str, Any]] = {}
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        rows = _rows(chance)
        for row in rows:
            if row["_op"] == "d":
                table.pop(row["id"], None)
            else:
                table[row["id"]] = row
        path = tmp_path / "in" / f"{file:03d}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        # Files are read in the order of their times.
        os.utime(path, (1_700_000_000 + file, 1_700_000_000 + file))
    for point in POINTS if number == 0 else MORE_POINTS:
        killed = _run(tmp_path, point, 0 if point == "behind the end" else chance.randrange(3))
        assert killed.returncode == -9, killed.stderr[-3_000:]
    finished = _run(tmp_path, "never", 0)
    assert finished.stdout == "finished\n", finished.stderr[-3_000:]
    sums: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    for row in table.values():
        if row["n"] > 1:
            sums[row["k"]] += row["n"]
            counts[row["k"]] += 1
    for name in ("first", "second"):
        with sqlite3.connect(tmp_path / f"{name}.db") as db:
            stored = sorted(db.execute("SELECT k, n, rows FROM totals"))
            assert stored == [(k, sums[k], counts[k]) for k in sorted(counts)]
            assert [epoch for (epoch,) in db.execute("SELECT epoch FROM epochs ORDER BY 1")] == [
                *range(FILES)
            ]
