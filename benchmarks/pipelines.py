"""Rows per second of whole pipelines, and what they cost, beside stock PySpark, Flink SQL and Quix Streams.

    python benchmarks/pipelines.py [--rows 2000000] [--cases kafka-blackhole kafka-postgres] [--sides penstock flink]

JSON records of a topic go through a filter, which keeps four of five, and a projection into nothing, ClickHouse and PostgreSQL; a table of ClickHouse is
read and forgotten. All sides read the same records one after the other, each in a process of its own, and every run follows a small one that does
not count. The broker and the servers run on the same cores; their processor time is not in the table. Results are kept, so that the cases
can be run in pieces. `--rows 300000` is a try of three minutes.
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
from streaming_records import topic

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from servers.clickhouse import ClickHouse
from servers.postgres import Postgres

GOALS = {
    "kafka-blackhole": 300_000,
    "kafka-clickhouse": 150_000,
    "kafka-postgres": 80_000,
    "clickhouse-blackhole": 800_000,
}
SIDES = {"penstock": "penstock", "stock": "stock PySpark", "flink": "Flink SQL", "quix": "Quix Streams"}
WITHOUT_CLICKHOUSE = ("flink", "quix")
WARM_ROWS = 200_000
GOAL_IDLE = 3.0
BEFORE_IDLE, IDLE = 30.0, 20.0
FILL = """
CREATE TABLE {name} ENGINE MergeTree ORDER BY id AS
SELECT toInt64(number) AS id, concat('a', toString(number % 100000)) AS account, 'order' AS kind,
       number / 7 AS amount, toInt64(1760000000000 + number) AS at, toString(number % 97) AS note
FROM numbers({rows})
"""
FLINK_TABLE = (
    "CREATE TABLE IF NOT EXISTS {name} (id BIGINT, account TEXT, amount DOUBLE PRECISION, at BIGINT)"
)


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


def measure(side: str, case: str, at: Servers, options: argparse.Namespace) -> dict[str, Any]:
    """One case on one side: rows per second, processor seconds and memory."""
    if side in WITHOUT_CLICKHOUSE and "clickhouse" in case:
        return {"error": "no connector"}
    rows = {"warm": min(WARM_ROWS, options.rows), "full": options.rows}
    clickhouse, postgres = at.clickhouse.new_database(), at.postgres.new_database()
    asked: dict[str, Any] = {"case": case, "rows": rows, "servers": at.kafka}
    asked |= {"clickhouse": clickhouse, "postgres": postgres}
    for which, count in rows.items():
        if case.startswith("kafka"):
            asked[which] = topic(at.kafka, "json", 1, count)
        else:
            asked[which] = f"rows_{which}"
            at.clickhouse.execute(FILL.format(name=asked[which], rows=count), clickhouse)
        at.postgres.execute(FLINK_TABLE.format(name=f"flink_{which}"), postgres)
    asked["folder"] = tempfile.mkdtemp(prefix="penstock-bench-")
    try:
        answer = _ask(side, asked, options.timeout)
        if "error" not in answer:
            answer["rate"] = options.rows / answer["seconds"]
            answer["written"] = _written(side, case, at, asked)
        return answer
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
        found = jars.ensure_jars(lock.jars, settings.home / "bench" / "jars", settings, what=lock.about)
        asked["jars"] = [str(path) for path in found]
    return run_peer(side, f"{side}_pipelines.py", asked, timeout=timeout)


def _written(side: str, case: str, at: Servers, asked: dict[str, Any]) -> int | None:
    """How many rows the destination has; None where it keeps none."""
    if case == "kafka-postgres":
        return int(at.postgres.execute(f"SELECT count(*) FROM {side}_full", asked["postgres"])[0][0])
    if case == "kafka-clickhouse":
        name = "out_full" if side == "penstock" else f"{side}_full"
        found = at.clickhouse.execute(f"SELECT count() AS n FROM {name}", asked["clickhouse"])
        return int(found[0]["n"])
    return None


def idle(at: Servers) -> dict[str, float]:
    """Percent of a core that a pipeline takes which waits for records of Kafka, and the memory that it has."""
    name = topic(at.kafka, "json", 1, WARM_ROWS)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        file = Path(folder) / "idle.yaml"
        text = {
            "name": "bench-idle",
            "checkpoint": f"{folder}/checkpoint",
            "sources": {
                "events": {
                    "type": "kafka",
                    "topic": name,
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
            time.sleep(BEFORE_IDLE)
            used = processor.seconds(process.pid)
            time.sleep(IDLE)
            used = processor.seconds(process.pid) - used
            if process.poll() is not None:
                sys.exit("the pipeline that should wait has ended")
            return {"percent": 100 * used / IDLE, "memory": processor.memory(process.pid)}
        finally:
            process.terminate()
            process.wait()


def report(results: dict[str, Any]) -> str:
    """All results as a table, a line for each case and side."""
    lines = []
    for case in (name for name in GOALS if name in results):
        ours = results[case].get("penstock", {})
        for side in (name for name in SIDES if name in results[case]):
            found = results[case][side]
            goal = f"{GOALS[case] / 1000:.0f}K" if side == "penstock" else ""
            shown = case.replace("-", " → ")
            if "error" in found:
                lines.append([shown, SIDES[side], f"no answer ({found['error']})", goal, "", "", ""])
                continue
            ratio = "" if side == "penstock" or "rate" not in ours else f"{ours['rate'] / found['rate']:.1f}x"
            lines.append(
                [
                    shown,
                    SIDES[side],
                    f"{found['rate'] / 1000:,.0f}K",
                    goal,
                    ratio,
                    f"{found['processor'] / found['rows'] * 1e6:.1f}",
                    f"{found['memory'] / 1e6:,.0f} MB",
                ]
            )
    head = [
        "pipeline",
        "side",
        "rows per second",
        "goal",
        "penstock is faster by",
        "processor seconds per million rows",
        "memory",
    ]
    text = table(head, lines)
    if "idle" in results:
        waiting = results["idle"]
        text += (
            f"\n\nA pipeline that waits for Kafka takes {waiting['percent']:.1f}% of a core (goal: under {GOAL_IDLE:.0f}%) "
            f"and has {waiting['memory'] / 1e6:,.0f} MB, the JVM's included."
        )
    return f"{text}\n\n{results['rows']:,} rows each. Measured on: {results['machine']}."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--cases", nargs="*", choices=(*GOALS, "idle"), default=(*GOALS, "idle"))
    parser.add_argument("--sides", nargs="+", choices=tuple(SIDES), default=tuple(SIDES))
    parser.add_argument("--timeout", type=float, default=600, help="seconds that a side may take for a case")
    options = parser.parse_args()
    full = options.rows == parser.get_default("rows")
    results: dict[str, Any] = {"machine": machine(), "rows": options.rows}
    with servers() as at:
        for case in (name for name in options.cases if name != "idle"):
            results[case] = {}
            for side in options.sides:
                found = results[case][side] = measure(side, case, at, options) | {"rows": options.rows}
                print(case, side, found, file=sys.stderr, flush=True)
        if "idle" in options.cases:
            results["idle"] = idle(at)
    if full:
        known = remember("pipelines", {})
        for case in (name for name in GOALS if name in results):
            results[case] = known.get(case, {}) | results[case]
        publish("pipelines", report(remember("pipelines", results)))
    else:
        print(report(results), flush=True)


if __name__ == "__main__":
    main()
