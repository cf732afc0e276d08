"""From the producer to the output topic at 10,000 records per second: percentiles of the milliseconds, beside stock PySpark.

    python benchmarks/streaming_latency.py [--seconds 100] [--cases "processing_time(0)" "continuous(1000)"]

A process of its own sends the records, with the moment in each. The broker stamps records of the output topic when it appends them, and the
difference is the latency; the first minute, in which the JVM still compiles, does not count, on neither side. `--seconds 75` is a try.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from typing import Any

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from harness import HERE, machine, publish, remember, run_here, shown, table, times
from penstock import config
from penstock.spark.boot import jars
from streaming_broker import broker
from streaming_records import KINDS, drop, new_topic

GOAL_P50, GOAL_P99 = 150, 1000
UNMEASURED_SECONDS = 60
RATE = 10_000
CASES: dict[str, dict[str, Any]] = {
    "processing_time(0)": {"side": "penstock", "trigger": "processing_time(0)", "transactional": False},
    "processing_time(0), transactions": {
        "side": "penstock",
        "trigger": "processing_time(0)",
        "transactional": True,
    },
    "continuous(1000)": {"side": "penstock", "trigger": "continuous(1000)", "transactional": False},
    "stock PySpark": {"side": "stock", "trigger": "", "transactional": False},
    "stock PySpark, transactions": {"side": "stock", "trigger": "", "transactional": True},
}


def latencies(servers: str, output: str) -> tuple[int, list[float]]:
    """How many records have arrived, and the milliseconds between a record's own moment and its arrival, without the first seconds."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench-latency",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(output, 0, 0)])
    sent: list[int] = []
    arrived: list[int] = []
    while messages := consumer.consume(20_000, timeout=3):
        for message in messages:
            sent.append(json.loads(message.value() or b"")["at"])
            arrived.append(message.timestamp()[1])
    consumer.close()
    if not sent:
        return 0, []
    begun, ended = np.array(sent), np.array(arrived)
    counted = begun > begun.min() + UNMEASURED_SECONDS * 1000
    return len(sent), [float(each) for each in (ended - begun)[counted]]


def measure(servers: str, case: dict[str, Any], seconds: int) -> dict[str, Any]:
    """One case."""
    folder = tempfile.mkdtemp(prefix="penstock-bench-")
    topic, output = new_topic(servers), new_topic(servers, timestamps="LogAppendTime")
    asked = {
        "what": "latency",
        "servers": servers,
        "format": "json",
        "topic": topic,
        "output": output,
        **case,
        "feed": [sys.executable, str(HERE / "streaming_feed.py"), servers, topic, str(RATE), str(seconds)],
        "folder": folder,
        "jars": [str(path) for path in jars.ensure(("kafka", "avro"), config.load())],
    }
    try:
        answer = run_here(f"{case['side']}_streams.py", asked, timeout=300)
        if "error" in answer:
            return answer
        arrived, milliseconds = latencies(servers, output)
        expected = sum(KINDS[number % len(KINDS)] != "other" for number in range(RATE * seconds))
        if arrived < expected:  # percentiles of those that were quick enough would be too good
            return {"error": f"{arrived:,} of {expected:,} records arrived in time"}
        found = times(milliseconds)
        return {"p50": found.p50, "p95": found.p95, "p99": found.p99, **answer}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        drop(servers, topic)
        drop(servers, output)


def report(results: dict[str, Any]) -> str:
    """All results as a table."""
    lines = []
    for name, found in results.items():
        if "error" in found:
            lines.append([name, f"no answer ({found['error']})", "", ""])
            continue
        lines.append([name, *(shown(found[key]) for key in ("p50", "p95", "p99"))])
    head = ["ms at 10,000 records per second", f"p50 (goal {GOAL_P50})", "p95", f"p99 (goal {GOAL_P99:,})"]
    return f"{table(head, lines)}\n\nMeasured on: {next(iter(results.values()))['machine']}."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=100)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with broker() as servers:
        for name in options.cases:
            results[name] = {"machine": machine(), **measure(servers, CASES[name], options.seconds)}
            print(name, results[name], file=sys.stderr, flush=True)
    if options.seconds < parser.get_default("seconds"):
        print(report(results), flush=True)
    else:
        known = remember("streaming_latency", results)
        publish("streaming_latency", report({name: known[name] for name in CASES if name in known}))


if __name__ == "__main__":
    main()
