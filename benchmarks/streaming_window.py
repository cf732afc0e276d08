"""Counts per key and hour at 100,000 keys, beside stock PySpark.

    python benchmarks/streaming_window.py [--rows 1000000] [--batch 250000]

Avro records from one partition of Kafka, in batches of so many records, with state that outlives each batch; update mode, and the result is
computed and forgotten. `--rows 200000` is a try of a minute.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from typing import Any

from harness import machine, publish, remember, run_here, table
from penstock import config
from penstock.spark.boot import jars
from streaming_broker import broker
from streaming_records import ACCOUNTS, topic

GOAL = 2.0
WARM_ROWS = 200_000


def measure(servers: str, options: argparse.Namespace) -> dict[str, Any]:
    """Both sides, one after the other."""
    found: dict[str, Any] = {"machine": machine(), "rows": options.rows, "batch": options.batch}
    connectors = jars.ensure(("kafka", "avro"), config.load())
    for side in ("penstock", "stock"):
        folder = tempfile.mkdtemp(prefix="penstock-bench-")
        asked = {
            "what": "window",
            "servers": servers,
            "format": "avro",
            "topic": topic(servers, "avro", 1, options.rows),
            "warm": topic(servers, "avro", 1, min(WARM_ROWS, options.rows)),
            "batch": options.batch,
            "folder": folder,
            "jars": [str(path) for path in connectors],
        }
        try:
            found[side] = run_here(f"{side}_streams.py", asked, timeout=580)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return found


def report(found: dict[str, Any]) -> str:
    """The result as a table."""
    rates = [
        found["rows"] / found[side]["seconds"] if "seconds" in found[side] else None
        for side in ("penstock", "stock")
    ]
    shown = [
        found[side].get("error", "") if rate is None else f"{rate / 1000:,.0f}K"
        for side, rate in zip(("penstock", "stock"), rates, strict=True)
    ]
    ours, stock = rates
    factor = f"{ours / stock:.1f}x" if ours and stock else ""
    head = ["records per second", "penstock", "stock PySpark", "faster", "goal"]
    lines = [[f"count per hour and key, {ACCOUNTS:,} keys", *shown, factor, f"{GOAL:g}x"]]
    return (
        f"{table(head, lines)}\n\n{found['rows']:,} records in batches of {found['batch']:,}. "
        f"Measured on: {found['machine']}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=250_000)
    options = parser.parse_args()
    with broker() as servers:
        found = measure(servers, options)
    if options.rows < parser.get_default("rows"):
        print(report(found), flush=True)
    else:
        remember("streaming_window", found)
        publish("streaming_window", report(found))


if __name__ == "__main__":
    main()
