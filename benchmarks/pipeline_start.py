"""From the command to the first row of a pipeline: CSV -> SQL -> print, beside the same written in stock PySpark.

    python benchmarks/pipeline_start.py --runs 10

All are started by turns, in fresh processes, on a warm installation. The stock programs read the file as a stream that ends (`availableNow`, as
pipelines run whose sinks keep something) and as a batch; Flink SQL reads it with its file connector. The first row is the first line on standard
output that has its value.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import environment, machine, publish, table
from penstock import config
from penstock.spark.boot import archive_build

ROWS = 1_000
MARK = b"name-999"
STOCK = "stock PySpark, a stream"
SCHEMA = "id BIGINT, amount DOUBLE, name STRING"
PIPELINE = """
name: start
sources:
  orders: {{type: file, path: "{file}", schema: {{id: int64, amount: float64, name: string}}, primary_key: id}}
transforms:
  large: {{type: sql, sql: "SELECT *, now() AS at FROM orders WHERE amount > 990"}}
sinks:
  out: {{type: print, from: large}}
"""
STREAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.schema("{schema}").option("header", True).csv("{folder}")
large = rows.where("amount > 990").selectExpr("*", "now() AS at")
large.writeStream.format("console").trigger(availableNow=True).start().awaitTermination()
"""
FLINK = """
from pyflink.table import EnvironmentSettings, TableEnvironment
env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
env.execute_sql('''CREATE TABLE orders (id BIGINT, amount DOUBLE, name STRING) WITH (
  'connector' = 'filesystem', 'path' = '{folder}/orders.csv', 'format' = 'csv', 'csv.ignore-parse-errors' = 'true')''')
env.execute_sql("SELECT *, CURRENT_TIMESTAMP AS `at` FROM orders WHERE amount > 990").print()
"""
BATCH = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.read.schema("{schema}").option("header", True).csv("{folder}").createOrReplaceTempView("orders")
spark.sql("SELECT *, now() AS at FROM orders WHERE amount > 990").show()
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One process: seconds to the first row, and to its end."""

    first: float
    total: float


def measure(command: list[str]) -> Run:
    """Run a command in a fresh process; one that fails or prints no row ends the benchmark."""
    begin = time.perf_counter()
    first = None
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if first is None and MARK in line:
                first = time.perf_counter() - begin
        process.wait()
        total = time.perf_counter() - begin
        errors.seek(0)
        if process.returncode or first is None:
            sys.exit(f"{command} failed:\n{errors.read().decode()}")
    return Run(first, total)


def report(runs: dict[str, list[Run]], here: str) -> str:
    """The results as Markdown, with the ratio of medians to the stock stream."""
    stock = statistics.median(run.first for run in runs[STOCK])
    lines = []
    for name, results in runs.items():
        first = [run.first for run in results]
        total = statistics.median(run.total for run in results)
        lines.append(
            [
                name,
                str(len(results)),
                *(f"{seconds:.2f} s" for seconds in (statistics.median(first), min(first), max(first))),
                f"{statistics.median(first) / stock:.2f}",
                f"{total:.2f} s",
            ]
        )
    head = ["", "runs", "first row, median", "minimum", "maximum", "of stock", "whole process, median"]
    return f"{table(head, lines)}\n\nMeasured on: {here}."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10, help="runs of each (default 10)")
    arguments = parser.parse_args()
    here = machine()
    if not archive_build.make(config.load()):
        sys.exit(f"no class archive; see {config.load().home / 'cds' / 'build.log'}")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        lines = ["id,amount,name", *(f"{number},{number},name-{number}" for number in range(ROWS))]
        (data / "orders.csv").write_text("\n".join(lines) + "\n")
        pipeline = Path(folder) / "start.yaml"
        pipeline.write_text(PIPELINE.format(file=data / "orders.csv"))
        commands = {
            STOCK: [sys.executable, "-c", STREAM.format(schema=SCHEMA, folder=data)],
            "stock PySpark, a batch": [sys.executable, "-c", BATCH.format(schema=SCHEMA, folder=data)],
            "Flink SQL": [str(environment("flink")), "-c", FLINK.format(folder=data)],
            "penstock run": [str(Path(sys.executable).with_name("penstock")), "run", str(pipeline)],
        }
        for command in commands.values():
            measure(command)  # once before it counts, to have the files in memory
        runs: dict[str, list[Run]] = {name: [] for name in commands}
        for number in range(arguments.runs):
            for name, command in commands.items():
                runs[name].append(measure(command))
            shown = ", ".join(f"{name} {results[-1].first:.2f} s" for name, results in runs.items())
            print(f"  {number + 1}/{arguments.runs}: {shown}", file=sys.stderr, flush=True)
    publish("pipeline_start", report(runs, here))


if __name__ == "__main__":
    main()
