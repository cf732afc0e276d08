"""Rows per second through a script on one core: Spark, the Python worker and Deno together, beside plain Python per row.

    python benchmarks/scripts.py [--rows 1000000] [--runs 3]

The script reshapes transfers: five columns in, five others out. All processes are kept on one core; the rows come from a Parquet file, and the result
is computed and forgotten. `--rows 200000` is a try of half a minute.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import penstock as ps
import processor
from harness import machine, publish, remember, table
from penstock import config
from penstock.transforms.base import TransformContext
from penstock.transforms.script.transform import ScriptTransform

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

GOAL = 200_000
SCRIPT = """\
function invoke(data) {
  return {
    transfer_id: data.id,
    sender: data.from_address,
    receiver: data.to_address,
    value_eth: Number(data.value) / 1e18,
    timestamp: new Date(data.block_timestamp * 1000).toISOString()
  };
}
"""
GIVEN = "transfer_id STRING, sender STRING, receiver STRING, value_eth DOUBLE, timestamp STRING"


def transfers(session: ps.Session, rows: int, folder: str) -> DataFrame:
    """Rows with texts of the lengths that hashes and addresses have."""
    path = f"{folder}/transfers"
    session.spark.range(0, rows, 1, 1).selectExpr(
        "concat('0x', sha2(string(id), 256)) AS id",
        "concat('0x', left(sha2(string(id % 1000), 256), 40)) AS from_address",
        "concat('0x', left(sha2(string(id % 777), 256), 40)) AS to_address",
        "string(id * 1000000000000) AS value",
        "1700000000 + id AS block_timestamp",
    ).write.parquet(path)
    written: DataFrame = session.read_parquet(path)
    return written


def script(session: ps.Session) -> Callable[[DataFrame], DataFrame]:
    """The transform as a pipeline runs it."""
    transform = ScriptTransform({"script": SCRIPT, "schema": GIVEN, "language": "typescript"})
    context = TransformContext(spark=session.spark, query="bench", name="reshape", settings=config.load())
    return lambda rows: transform.apply(rows, context)


def python(rows: DataFrame) -> DataFrame:
    """The same for each row in Python."""
    return rows.mapInArrow(_reshape, GIVEN)


def _reshape(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        rows = [
            {
                "transfer_id": row["id"],
                "sender": row["from_address"],
                "receiver": row["to_address"],
                "value_eth": float(row["value"]) / 1e18,
                "timestamp": datetime.fromtimestamp(row["block_timestamp"], UTC).isoformat(),
            }
            for row in batch.to_pylist()
        ]
        yield pa.RecordBatch.from_pylist(rows)


def measure(rows: DataFrame, apply: Callable[[DataFrame], DataFrame], runs: int) -> dict[str, float]:
    """The best of some runs, after one that does not count: other programs on the machine only ever take time away."""

    def run() -> tuple[float, float]:
        began, used = time.perf_counter(), processor.seconds()
        apply(rows).write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began, processor.seconds() - used

    run()
    times = [run() for _ in range(runs)]
    return {"seconds": min(wall for wall, _ in times), "processor": min(used for _, used in times)}


def report(found: dict[str, Any]) -> str:
    """The result as a table."""
    rows = found["rows"]
    head = [
        "one core",
        "rows per second",
        "rows per second of the processor",
        "goal",
        "processor seconds per million rows",
    ]
    lines = [
        [
            name,
            f"{rows / case['seconds'] / 1000:,.0f}K",
            f"{rows / case['processor'] / 1000:,.0f}K",
            f"{GOAL / 1000:.0f}K" if name == "script" else "",
            f"{case['processor'] / rows * 1e6:.1f}",
        ]
        for name, case in found["cases"].items()
    ]
    return f"{table(head, lines)}\n\n{rows:,} rows. Measured on: {found['machine']}."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(), "rows": options.rows}
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        ps.Session.embedded(master="local[1]") as session,
    ):
        rows = transfers(session, options.rows, folder)
        cases: dict[str, Callable[[DataFrame], DataFrame]] = {
            "script": script(session),
            "Python per row": python,
            "nothing": lambda same: same,
        }
        found["cases"] = {name: measure(rows, apply, options.runs) for name, apply in cases.items()}
    if options.rows < parser.get_default("rows"):
        print(report(found), flush=True)
    else:
        remember("scripts", found)
        publish("scripts", report(found))


if __name__ == "__main__":
    main()
