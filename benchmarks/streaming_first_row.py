"""Process start to the first rows in a sink, from files to Parquet and from Kafka to Kafka, beside stock PySpark.

    python benchmarks/streaming_first_row.py [--runs 5]

Both are started by turns, in fresh processes; what counts is the moment in which the program knows that its first batch is committed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import HERE, machine, publish, remember, table
from penstock import config
from penstock.spark.boot import archive_build, jars
from streaming_broker import broker
from streaming_records import DDL, drop, encoder, new_topic, send

GOAL = 4.0
ROWS = 1000
CASES = ("files to parquet", "kafka to kafka")
SIDES = ("penstock", "stock")


def measure(servers: str, case: str, side: str) -> float:
    """Seconds to the first line of output; a program that fails ends the benchmark."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    kafka = case.startswith("kafka")
    source, target = str(folder / "in"), str(folder / "out")
    if kafka:
        source, target = new_topic(servers), new_topic(servers)
        send(servers, source, ROWS)
    else:
        Path(source).mkdir()
        encode = encoder("json")
        lines = [encode(number, "a000001", "click", 1.5, 0) for number in range(ROWS)]
        (Path(source) / "rows.json").write_bytes(b"\n".join(lines))
    asked = {
        "kafka": kafka,
        "servers": servers,
        "in": source,
        "out": target,
        "schema": DDL,
        "checkpoint": str(folder / "checkpoint"),
        "jars": [str(path) for path in jars.ensure(("kafka",), config.load())],
    }
    command = [sys.executable, str(HERE / "peers" / f"{side}_first_row.py"), json.dumps(asked)]
    state = {"PENSTOCK_STATE": f"sqlite:///{folder}/state.db"}
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | state
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        seconds = time.perf_counter() - begin
        process.stdout.read()
        errors = process.stderr.read()
    if kafka:
        drop(servers, source)
        drop(servers, target)
    shutil.rmtree(folder, ignore_errors=True)
    if process.returncode or not first.strip():
        sys.exit(f"{command} failed:\n{errors.decode()}")
    return seconds


def report(results: dict[str, Any]) -> str:
    """All results as a table."""
    lines = []
    for case in CASES:
        ours, stock = (statistics.median(results[case][side]) for side in SIDES)
        spread = f"{min(results[case]['penstock']):.2f} to {max(results[case]['penstock']):.2f} s"
        lines.append([case, f"{ours:.2f} s", spread, f"{stock:.2f} s", f"{ours / stock:.2f}", f"{GOAL:g} s"])
    head = [
        "first rows in the sink, median",
        "penstock",
        "minimum, maximum",
        "stock PySpark",
        "of stock",
        "goal",
    ]
    return f"{table(head, lines)}\n\nMeasured on: {results['machine']}."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    if not archive_build.make(config.load()):
        sys.exit(f"no class archive; see {config.load().home / 'cds' / 'build.log'}")
    results: dict[str, Any] = {case: {side: [] for side in SIDES} for case in CASES} | {"machine": machine()}
    with broker() as servers:
        for number in range(options.runs + 1):  # the first has the files brought into memory
            for case in CASES:
                for side in SIDES:
                    seconds = measure(servers, case, side)
                    print(
                        f"  {number}/{options.runs} {case}, {side}: {seconds:.2f} s",
                        file=sys.stderr,
                        flush=True,
                    )
                    if number:
                        results[case][side].append(seconds)
    if options.runs < parser.get_default("runs"):
        print(report(results), flush=True)
    else:
        publish("streaming_first_row", report(remember("streaming_first_row", results)))


if __name__ == "__main__":
    main()
