"""Records per second from Kafka through a filter and a projection into each sink, beside stock PySpark.

    python benchmarks/streaming_throughput.py [--rows 5000000] [--formats json avro] [--partitions 1 4] [--sinks parquet iceberg]

Both sides read the same topics by turns, each in a process of its own, and every run follows a small one that does not count.
Results are kept, so that the cases can be run in pieces; the table shows all of them. `--rows 200000` is a try of a minute.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

from harness import machine, publish, remember, run_here, table
from penstock import config
from penstock.spark.boot import jars
from streaming_broker import broker
from streaming_records import drop, new_topic, topic

SINKS = ("blackhole", "parquet", "iceberg", "kafka", "kafka_transactional")
GOALS = {
    ("json", "parquet"): 200_000,
    ("json", "iceberg"): 200_000,
    ("avro", "parquet"): 500_000,
    ("avro", "iceberg"): 500_000,
    ("json", "kafka_transactional"): 100_000,
    ("avro", "kafka_transactional"): 100_000,
}
SIDES = ("penstock", "stock")
WARM_ROWS = 200_000
TRANSACTION_ROWS = 500_000


def measure(
    servers: str, form: str, partitions: int, sinks: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    """One format and number of partitions, both sides, all sinks: records per second."""
    found: dict[str, Any] = {sink: {"machine": machine(), "rows": options.rows} for sink in sinks}
    connectors = jars.ensure(("kafka", "avro", "iceberg"), config.load())
    for side in options.sides:
        folder = tempfile.mkdtemp(prefix="penstock-bench-")
        outputs = {
            sink: [new_topic(servers) for _ in range(2)] if sink.startswith("kafka") else ["", ""]
            for sink in sinks
        }
        asked = {
            "what": "throughput",
            "servers": servers,
            "format": form,
            "topic": topic(servers, form, partitions, options.rows),
            "warm": topic(servers, form, partitions, min(WARM_ROWS, options.rows)),
            "sinks": list(sinks),
            "outputs": outputs,
            "transaction": TRANSACTION_ROWS,
            "folder": folder,
            "jars": [str(path) for path in connectors],
        }
        try:
            answer = run_here(f"{side}_streams.py", asked, timeout=options.timeout)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            for name in (name for names in outputs.values() for name in names if name):
                drop(servers, name)
        for sink in sinks:
            if "error" in answer:
                found[sink][side] = {"error": answer["error"]}
            else:
                found[sink][side] = {"rate": options.rows / answer["seconds"][sink]}
    return found


def report(results: dict[str, Any]) -> str:
    """All results as a table."""
    lines = []
    for name, found in results.items():
        form, partitions, sink = name.split("/")
        ours, stock = found.get("penstock", {}), found.get("stock", {})
        goal = GOALS.get((form, sink))
        both = "rate" in ours and "rate" in stock
        lines.append(
            [
                f"{form}, {partitions} partition{'s' if partitions != '1' else ''}, {sink.replace('_', ', ')}",
                _rate(ours),
                "" if goal is None else f"{goal / 1000:.0f}K",
                _rate(stock),
                f"{ours['rate'] / stock['rate']:.1f}x" if both else "",
            ]
        )
    first = next(iter(results.values()))
    head = ["records per second", "penstock", "goal", "stock PySpark", "faster"]
    return f"{table(head, lines)}\n\n{first['rows']:,} records each. Measured on: {first['machine']}."


def _rate(found: dict[str, Any]) -> str:
    if "rate" in found:
        return f"{found['rate'] / 1000:,.0f}K"
    return f"no answer ({found['error']})" if "error" in found else "not measured"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--formats", nargs="+", choices=("json", "avro"), default=("json", "avro"))
    parser.add_argument("--partitions", nargs="+", type=int, default=(1, 4))
    parser.add_argument("--sinks", nargs="+", choices=SINKS, default=SINKS)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--timeout", type=float, default=600, help="seconds that a side may take for a case")
    options = parser.parse_args()
    full = options.rows == parser.get_default("rows")
    results: dict[str, Any] = {}
    with broker() as servers:
        for form in options.formats:
            for partitions in options.partitions:
                found = measure(servers, form, partitions, options.sinks, options)
                named = {f"{form}/{partitions}/{sink}": one for sink, one in found.items()}
                if full:
                    known = remember("streaming_throughput", {})
                    named = {name: known.get(name, {}) | one for name, one in named.items()}
                    remember("streaming_throughput", named)
                results |= named
    if full:
        known = remember("streaming_throughput", {})
        names = [f"{form}/{count}/{sink}" for form in ("json", "avro") for count in (1, 4) for sink in SINKS]
        publish("streaming_throughput", report({name: known[name] for name in names if name in known}))
    else:
        print(report(results), flush=True)


if __name__ == "__main__":
    main()
