"""A process that feeds a durable flow with a PostgreSQL sink is killed at random moments: the table is the view, tick by tick."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seed import SEED
from servers.postgres import Postgres

LAG = 20  # a row goes so many ticks after it came
PROGRAM = """
import json, sys
import penstock as ps
from twin.durable import add_view, declare

settings = json.loads(sys.argv[1])
flow = ps.IncrementalFlow(path="flow", name="killed", checkpoint_every=20_000, sync=settings["sync"])
if not flow._graph.sources:
    declare(flow)
    add_view(flow, "totals")
flow.sink("totals", "postgres", url=settings["url"], table="totals", key=["k"])
number = flow.source_info("rows").ordinal or 0
print("up", flush=True)
last = number + settings["more"] if settings["more"] else None
while number != last:
    number += 1
    rows = [{"k": number % 11, "v": number, "w": 0, "_weight": 1}]
    if number > settings["lag"]:
        gone = number - settings["lag"]
        rows.append({"k": gone % 11, "v": gone, "w": 0, "_weight": -1})
    flow.tick("rows", ps.DeltaBatch.weighted(rows), ordinal=number)
    print(number, flush=True)
flow.close()
"""


def _run(folder: Path, settings: dict[str, Any], *, kill_after: int | None) -> int:
    """Let the process do its ticks, or kill it behind some of them; return the last that it has said."""
    with (folder / "child.log").open("a") as errors:
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(settings)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    assert child.stdout is not None
    last = 0
    try:
        assert child.stdout.readline() == "up\n", (folder / "child.log").read_text()[-4000:]
        for count, line in enumerate(child.stdout, 1):
            last = int(line)
            if count == kill_after:
                child.kill()
    finally:
        child.kill()
        child.stdout.close()
        code = child.wait()
    if kill_after is None:
        assert code == 0, (folder / "child.log").read_text()[-4000:]
    return last


def _totals(ticks: int) -> list[tuple[int, int]]:
    """The view after so many ticks, computed anew."""
    totals: Counter[int] = Counter()
    for number in range(max(1, ticks - LAG + 1), ticks + 1):
        totals[number % 11] += number
    return sorted(totals.items())


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.soak)])
def test_a_table_is_the_view_whatever_was_killed(kills: int, tmp_path: Path, postgres: Postgres) -> None:
    url, rng = postgres.new_database(), random.Random(SEED)
    settings = {"url": url, "lag": LAG, "more": 0, "sync": "tick"}

    def compare() -> int:
        [(mark,)] = postgres.execute("SELECT epoch FROM penstock_epochs", url)
        assert postgres.execute("SELECT k, v FROM totals ORDER BY k", url) == _totals(mark), f"tick {mark}"
        return int(mark)

    marks = []
    for _ in range(kills):
        said = _run(
            tmp_path,
            {**settings, "sync": rng.choice(["tick", 5])},
            kill_after=rng.randint(1, 150),
        )
        marks.append(compare())
        # The process may have been killed between a tick and the line about it.
        assert marks[-1] <= said + 1
    last = _run(tmp_path, {**settings, "more": 50}, kill_after=None)
    assert compare() == last
    assert last >= max(marks) + 50
    assert "brought in line" not in (tmp_path / "child.log").read_text()
