"""Record Spark's answers to the golden cases, or check that they still are.

PYTHONPATH=tests python -m golden.record [--check] [area ...]
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import canonical
from .case import Area, Case, area_names, load
from .recording import Answers, Recording, recorded, save
from .spark_answer import ask_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    # Small queries spend most of their time in Java code that is not compiled yet; the quick compiler saves a third of it.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def plain_spark(warehouse: str) -> SparkSession:
    """Return Spark as it comes, with what makes small queries quick and nothing that changes an answer."""
    from pyspark.sql import SparkSession

    from penstock.config import load as load_settings
    from penstock.spark.boot.java import find_java

    os.environ["JAVA_HOME"] = str(find_java(load_settings()).home)
    # Errors are answers here, and need no report of their own.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    builder = SparkSession.builder.master("local[2]").appName("golden")
    for key, value in {**PLAIN, "spark.sql.warehouse.dir": warehouse}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def differences(
    area: Area, recordings: Mapping[str, Recording], answers: Mapping[str, Answers]
) -> dict[str, str]:
    """Return what is wrong with the recording of each case that is."""
    wrong = {}
    for case in area.cases:
        if case.name not in recordings:
            wrong[case.name] = "not recorded"
        elif difference := _difference(case, recordings[case.name].answers, answers[case.name]):
            wrong[case.name] = difference
    return wrong


def _difference(case: Case, before: Answers, now: Answers) -> str | None:
    """Return where two answers differ; columns whose value depends on the order of rows are compared within tolerance."""
    if before.schema != now.schema:
        return f"schema {now.schema}, recorded {before.schema}"
    loose = tuple(index for index, (name, _) in enumerate(now.schema) if name in case.tolerance)
    for number, (one, other) in enumerate(zip(before.ticks, now.ticks, strict=True)):
        rows = canonical.through_json(other.rows)
        if one.error != other.error or not canonical.close(rows, list(one.rows), loose):
            return f"tick {number}: {other.error or rows}, recorded {one.error or list(one.rows)}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*", help="all areas when none is named")
    parser.add_argument("--check", action="store_true", help="compare with the recordings, write nothing")
    arguments = parser.parse_args()
    wrong: list[str] = []
    count = 0
    with tempfile.TemporaryDirectory() as warehouse:
        spark = plain_spark(warehouse)
        for name in arguments.areas or area_names():
            area, began = load(name), time.perf_counter()
            answers, recordings = ask_all(spark, area), recorded(name)
            if arguments.check:
                lines = differences(area, recordings, answers)
                wrong += [f"{name}-{case}: {line}" for case, line in lines.items()]
            else:
                save(area, {case: Recording(answer, {}) for case, answer in answers.items()})
            count += len(area.cases)
            print(f"{name}: {len(area.cases)} cases, {time.perf_counter() - began:.1f} s", flush=True)
        spark.stop()
    if not arguments.check:
        # Views are planned by a penstock session, which is not what plain Spark is asked with.
        subprocess.run([sys.executable, "-m", "golden.record_tiers", *arguments.areas], check=True)
    print("\n".join([*wrong, f"{len(wrong)} of {count} cases have another answer"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
