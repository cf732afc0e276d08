"""Process start to first result: `penstock sql "SELECT 1"` beside the same query with stock PySpark.

    python benchmarks/cold_start.py --runs 10

Both are started by turns, in fresh processes. The first result is the first byte on standard output; the whole run ends
with the process. Prints a Markdown table and the machine it was measured on.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from harness import machine
from penstock import config
from penstock.spark.boot import archive_build
from penstock.spark.boot.java import find_java

STOCK = 'from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate().sql("SELECT 1").show()'
OURS = [str(Path(sys.executable).with_name("penstock")), "sql", "SELECT 1"]
CANDIDATES = {
    "stock PySpark": [sys.executable, "-c", STOCK],
    "penstock sql": OURS,
    "penstock sql, no archive yet": [*OURS, "--conf", "spark.penstock.archive=false"],
}


@dataclass(frozen=True, slots=True)
class Run:
    """One process: seconds to the first byte of output, and to its end."""

    first: float
    total: float


def measure(command: list[str]) -> Run:
    """Run a command in a fresh process; a failing one ends the benchmark."""
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        start = process.stdout.read(1)
        first = time.perf_counter() - begin
        output = start + process.stdout.read()
        errors = process.stderr.read()
    total = time.perf_counter() - begin
    if process.returncode or b"1" not in output:
        sys.exit(f"{command} failed:\n{output.decode()}\n{errors.decode()}")
    return Run(first, total)


def table(runs: dict[str, list[Run]]) -> str:
    """The results as Markdown, with the ratio of medians to stock."""
    stock = runs["stock PySpark"]
    lines = [
        "| | runs | first result, median | minimum | maximum | of stock | whole process, median | of stock |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, results in runs.items():
        first = [run.first for run in results]
        total = [run.total for run in results]
        lines.append(
            f"| {name} | {len(results)} | {statistics.median(first):.2f} s | {min(first):.2f} s | {max(first):.2f} s "
            f"| {statistics.median(first) / statistics.median(run.first for run in stock):.2f} "
            f"| {statistics.median(total):.2f} s "
            f"| {statistics.median(total) / statistics.median(run.total for run in stock):.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10, help="runs of each (default 10)")
    arguments = parser.parse_args()
    java = find_java(config.load())
    print(f"Measured on: {machine()}; Java {java.version} ({java.origin})\n")
    if not archive_build.make(config.load()):
        sys.exit(f"no class archive; see {config.load().home / 'cds' / 'build.log'}")
    for command in CANDIDATES.values():
        measure(command)  # once before it counts, to have the files in memory
    runs: dict[str, list[Run]] = {name: [] for name in CANDIDATES}
    for number in range(arguments.runs):
        for name, command in CANDIDATES.items():
            runs[name].append(measure(command))
        shown = ", ".join(f"{name} {results[-1].first:.2f} s" for name, results in runs.items())
        print(f"  {number + 1}/{arguments.runs}: {shown}", file=sys.stderr, flush=True)
    print(table(runs))


if __name__ == "__main__":
    main()
