"""Micro-batches of three records, Kafka to Kafka, in transactions and at least once, beside stock PySpark.

    python benchmarks/streaming_micro_batch.py [--batches 60] [--cases transactions "at least once"]

Every three records are sent when the batch before is done, and what counts is how long Spark says that the batch took. Stock PySpark
writes transactions in a function for `foreachBatch`, with the defaults of Kafka's client; its own Kafka sink is at least once.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from typing import Any

from harness import machine, publish, remember, run_here, table, times
from penstock import config
from penstock.spark.boot import jars
from streaming_broker import broker
from streaming_records import drop, new_topic

GOAL = 0.6
UNMEASURED = 20
CASES = {"transactions": True, "at least once": False}


def measure(servers: str, transactional: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Both sides, one after the other."""
    found: dict[str, Any] = {"machine": machine()}
    connectors = jars.ensure(("kafka", "avro"), config.load())
    for side in ("penstock", "stock"):
        folder = tempfile.mkdtemp(prefix="penstock-bench-")
        topic, output = new_topic(servers), new_topic(servers)
        asked = {
            "what": "micro_batch",
            "servers": servers,
            "format": "json",
            "topic": topic,
            "output": output,
            "transactional": transactional,
            "batches": options.batches + UNMEASURED,
            "unmeasured": UNMEASURED,
            "folder": folder,
            "jars": [str(path) for path in connectors],
        }
        try:
            found[side] = run_here(f"{side}_streams.py", asked, timeout=300)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            drop(servers, topic)
            drop(servers, output)
    return found


def report(results: dict[str, Any]) -> str:
    """All results as a table."""
    lines = []
    for name, found in results.items():
        sides = [found[side] for side in ("penstock", "stock")]
        wrong = next((side["error"] for side in sides if "error" in side), None)
        if wrong is not None:
            lines.append([name, f"no answer ({wrong})", "", "", ""])
            continue
        ours, stock = (times(side["ms"]) for side in sides)
        goal = f"{GOAL:g}" if CASES[name] else ""
        lines.append([name, str(ours), str(stock), f"{ours.p50 / stock.p50:.2f}", goal])
    head = [
        "ms per batch of 3 records (p50 / p95 / p99)",
        "penstock",
        "stock PySpark",
        "of stock, p50",
        "goal",
    ]
    return f"{table(head, lines)}\n\nMeasured on: {next(iter(results.values()))['machine']}."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    options = parser.parse_args()
    with broker() as servers:
        results = {name: measure(servers, CASES[name], options) for name in options.cases}
    if options.batches < parser.get_default("batches"):
        print(report(results), flush=True)
    else:
        publish("streaming_micro_batch", report(remember("streaming_micro_batch", results)))


if __name__ == "__main__":
    main()
