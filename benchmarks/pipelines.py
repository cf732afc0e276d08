"""Rows per second of whole pipelines, and what they cost, beside stock PySpark, Flink SQL and Quix Streams.

    python benchmarks/pipelines.py [--scale 1] [--runs 3] [--cases kafka-blackhole kafka-postgres] [--sides penstock flink]

JSON records of a topic go through a filter, which keeps four of five, and a projection into nothing, ClickHouse and PostgreSQL (append); a table of
ClickHouse is read and forgotten. The sides take turns on the same records, each run in a process of its own and behind a small one that does not
count; the median run is shown, and a side that does not keep exactly the rows it should is not. The broker and the servers run on the same cores; what
they take of the processor is not in the table. Results are kept, so that the cases can be run in pieces. `--scale 0.1 --runs 1` is a try of some minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import processor
from harness import HERE, machine, publish, remember, run_here, run_peer, table
from penstock import config
from penstock.spark.boot import jars
from streaming_broker import broker
from streaming_records import kept, topic

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from servers.clickhouse import ClickHouse
from servers.postgres import Postgres

SIDES = {"penstock": "penstock", "stock": "stock PySpark", "flink": "Flink SQL", "quix": "Quix Streams"}
WARM_ROWS = 200_000
GOAL_IDLE = 3.0
IDLE_SECONDS = 60.0
CALM, CALM_SECONDS, MOST_SECONDS = 0.3, 5.0, 120.0
FILL = """
CREATE TABLE {name} ENGINE MergeTree ORDER BY id AS
SELECT toInt64(number) AS id, concat('a', toString(number % 100000)) AS account, 'order' AS kind,
       number / 7 AS amount, toInt64(1760000000000 + number) AS at, toString(number % 97) AS note
FROM numbers({rows})
"""
FLINK_TABLE = "CREATE TABLE flink_{which} (id BIGINT, account TEXT, amount DOUBLE PRECISION, at BIGINT)"


@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline: how many rows, and the goal in rows per second."""

    rows: int
    goal: int


CASES = {
    "kafka-blackhole": Case(3_000_000, 300_000),
    "kafka-clickhouse": Case(2_000_000, 150_000),
    "kafka-postgres": Case(1_000_000, 80_000),
    "clickhouse-blackhole": Case(10_000_000, 800_000),
}


@dataclass(frozen=True, slots=True)
class Servers:
    """Where records come from, and where rows go."""

    kafka: str
    clickhouse: ClickHouse
    postgres: Postgres


@contextlib.contextmanager
def servers() -> Iterator[Servers]:
    """A broker, a ClickHouse and a PostgreSQL, which last as long as the `with` block."""
    with broker() as kafka, ClickHouse() as clickhouse, Postgres() as postgres:
        yield Servers(kafka, clickhouse, postgres)


def measure(side: str, case: str, at: Servers, rows: int, timeout: float) -> dict[str, Any]:
    """One run of a side: rows per second, processor seconds and memory."""
    counts = {"warm": min(WARM_ROWS, rows), "full": rows}
    keeps = {which: kept(count) for which, count in counts.items()}
    clickhouse, postgres = at.clickhouse.new_database(), at.postgres.new_database()
    asked: dict[str, Any] = {"case": case, "rows": counts, "kept": keeps, "servers": at.kafka}
    asked |= {"clickhouse": clickhouse, "postgres": postgres}
    for which, count in counts.items():
        if case.startswith("kafka"):
            asked[which] = topic(at.kafka, "json", 1, count)
        else:
            asked[which] = f"rows_{which}"
            at.clickhouse.execute(FILL.format(name=asked[which], rows=count), clickhouse)
        at.postgres.execute(FLINK_TABLE.format(which=which), postgres)
    asked["folder"] = tempfile.mkdtemp(prefix="penstock-bench-")
    try:
        answer = _ask(side, asked, timeout)
        if "error" in answer:
            return answer
        there = _there(f"{side}_full", case, at, asked)
        if there not in (None, keeps["full"]):
            return {"error": f"{there:,} rows instead of {keeps['full']:,}"}
        return answer | {"rate": rows / answer["seconds"], "rows": rows}
    finally:
        shutil.rmtree(asked["folder"], ignore_errors=True)
        at.clickhouse.execute(f"DROP DATABASE {clickhouse.rpartition('/')[2]}")


def _ask(side: str, asked: dict[str, Any], timeout: float) -> dict[str, Any]:
    settings = config.load()
    if side == "penstock":
        return run_here("penstock_pipelines.py", asked, timeout=timeout)
    if side == "stock":
        asked["jars"] = [str(path) for path in jars.ensure(("kafka", "postgres"), settings)]
        return run_here("stock_pipelines.py", asked, timeout=timeout)
    if side == "flink":
        lock = jars.Lock(HERE / "peers" / "peers.lock.toml")[side]
        fetched = jars.ensure_jars(lock.jars, settings.home / "bench" / "jars", settings, what=lock.about)
        asked["jars"] = [str(path) for path in fetched]
    return run_peer(side, f"{side}_pipelines.py", asked, timeout=timeout)


def _there(table: str, case: str, at: Servers, asked: dict[str, Any]) -> int | None:
    """How many rows the destination has; None where it keeps none."""
    if case == "kafka-postgres":
        return int(at.postgres.execute(f"SELECT count(*) FROM {table}", asked["postgres"])[0][0])
    if case == "kafka-clickhouse":
        return int(at.clickhouse.execute(f"SELECT count() AS n FROM {table}", asked["clickhouse"])[0]["n"])
    return None


def median_run(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The run in the middle; one that failed stands for all."""
    failed = next((run for run in runs if "error" in run), None)
    return failed or sorted(runs, key=lambda run: float(run["rate"]))[len(runs) // 2]


def idle(at: Servers) -> dict[str, float]:
    """Percent of a core that a pipeline takes which waits for records of Kafka, and the memory that it has."""
    rows = CASES["kafka-blackhole"].rows
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        file = Path(folder) / "idle.yaml"
        text = {
            "name": "bench-idle",
            "checkpoint": f"{folder}/checkpoint",
            "sources": {
                "events": {
                    "type": "kafka",
                    "topic": topic(at.kafka, "json", 1, rows),
                    "bootstrap_servers": at.kafka,
                    "schema": {"id": "int64", "kind": "string"},
                    "starting_offsets": "earliest",
                }
            },
            "transforms": {"wanted": {"type": "sql", "sql": "SELECT * FROM events WHERE kind <> 'other'"}},
            "sinks": {"out": {"type": "blackhole", "from": "wanted"}},
        }
        file.write_text(json.dumps(text))
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "run", str(file)],
            env=os.environ | {"PENSTOCK_STATE": f"sqlite:///{folder}/state.db"},
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_until_calm(process)
            used = processor.seconds(process.pid)
            time.sleep(IDLE_SECONDS)
            used = processor.seconds(process.pid) - used
            if process.poll() is not None:
                sys.exit("the pipeline that should wait has ended")
            memory = processor.memory(process.pid)
            return {"percent": 100 * used / IDLE_SECONDS, "memory": memory, "rows": rows}
        finally:
            process.terminate()
            process.wait(60)


def _wait_until_calm(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has worked, and then hardly works any more."""
    began = time.monotonic()
    while time.monotonic() - began < MOST_SECONDS:
        used = processor.seconds(process.pid)
        time.sleep(CALM_SECONDS)
        worked = processor.seconds(process.pid) - used
        if time.monotonic() - began > 4 * CALM_SECONDS and worked < CALM * CALM_SECONDS:
            return
    sys.exit("the pipeline that should wait goes on working")


def report(results: dict[str, Any]) -> str:
    """All results as a table, a line for each case and side."""
    lines = []
    for case in (name for name in CASES if name in results):
        ours = results[case].get("penstock", {})
        for side in (name for name in SIDES if name in results[case]):
            run = results[case][side]
            shown = f"{case.replace('-', ' → ')}, {run['of']:,} rows"
            goal = f"{CASES[case].goal / 1000:.0f}K" if side == "penstock" else ""
            if "error" in run:
                lines.append([shown, SIDES[side], f"no answer ({run['error']})", goal, "", "", ""])
                continue
            faster = "" if side == "penstock" or "rate" not in ours else f"{ours['rate'] / run['rate']:.1f}x"
            cost = f"{run['processor'] / run['rows'] * 1e6:.1f}"
            memory = f"{run['memory'] / 1e6:,.0f} MB"
            lines.append([shown, SIDES[side], f"{run['rate'] / 1000:,.0f}K", goal, faster, cost, memory])
    head = [
        *("pipeline", "side", "rows per second", "goal", "penstock is faster"),
        *("processor seconds per million rows", "most memory"),
    ]
    text = table(head, lines)
    if "idle" in results:
        waiting = results["idle"]
        text += (
            f"\n\nA pipeline that waits for Kafka behind {waiting['rows']:,} rows takes {waiting['percent']:.1f}% of a core "
            f"(goal: under {GOAL_IDLE:.0f}%) and has {waiting['memory'] / 1e6:,.0f} MB, that of the JVM included."
        )
    measured = [results[name]["machine"].partition("; ") for name in (*CASES, "idle") if name in results]
    machines = dict.fromkeys(machine for machine, _, _ in measured)
    loads = ", ".join(load.rpartition(" ")[2] for _, _, load in measured)
    return f"{text}\n\nMeasured on: {'; '.join(machines)}; load averages when the cases started {loads}."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1, help="of the rows of each case")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cases", nargs="*", choices=(*CASES, "idle"), default=(*CASES, "idle"))
    parser.add_argument("--sides", nargs="+", choices=tuple(SIDES), default=tuple(SIDES))
    parser.add_argument("--timeout", type=float, default=600, help="seconds that a run may take")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with servers() as at:
        for case in (name for name in options.cases if name != "idle"):
            rows = int(CASES[case].rows * options.scale)
            runs: dict[str, list[dict[str, Any]]] = {side: [] for side in options.sides}
            here = machine()
            for _ in range(options.runs):
                for side in options.sides:
                    if runs[side] and "error" in runs[side][-1]:
                        continue
                    runs[side].append(measure(side, case, at, rows, options.timeout))
                    print(case, side, runs[side][-1], file=sys.stderr, flush=True)
            results[case] = {side: median_run(made) | {"of": rows} for side, made in runs.items()}
            results[case]["machine"] = here
        if "idle" in options.cases:
            results["idle"] = {"machine": machine()} | idle(at)
    if options.scale == 1:
        known = remember("pipelines", {})
        for case in (name for name in CASES if name in results):
            results[case] = known.get(case, {}) | results[case]
        publish("pipelines", report(remember("pipelines", results)))
    else:
        print(report(results), flush=True)


if __name__ == "__main__":
    main()
