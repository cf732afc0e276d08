"""Record Spark's answers to the golden cases, or check that they still are: `PYTHONPATH=tests python -m golden.record [--check] [area ...]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from . import canonical
from .case import Area, area_names, load
from .spark_answer import Answers, ask_all, recorded, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plain_spark(warehouse: str) -> SparkSession:
    """Return Spark as it comes, with what makes small queries quick and nothing that changes an answer."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("golden")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": warehouse,
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def differences(area: Area, before: dict[str, Answers], now: dict[str, Answers]) -> list[str]:
    """Return a line for every case whose answer is another one now."""
    found = []
    for case in area.cases:
        if case.name not in before:
            found.append(f"{case.id}: not recorded")
        elif not same(before[case.name], now[case.name], case.tolerance):
            found.append(f"{case.id}: another answer")
    return found


def same(one: Answers, other: Answers, tolerance: tuple[str, ...]) -> bool:
    """Return whether two recordings agree, with float aggregates compared within tolerance."""
    if one.schema != other.schema or len(one.ticks) != len(other.ticks):
        return False
    loose = tuple(index for index, (name, _) in enumerate(one.schema) if name in tolerance)
    return all(
        first.error == second.error
        and canonical.close(canonical.through_json(first.rows), canonical.through_json(second.rows), loose)
        for first, second in zip(one.ticks, other.ticks, strict=True)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*", help="all areas when none is named")
    parser.add_argument("--check", action="store_true", help="compare with the recordings, write nothing")
    arguments = parser.parse_args()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as warehouse:
        spark = plain_spark(warehouse)
        for name in arguments.areas or area_names():
            area, began = load(name), time.perf_counter()
            now = ask_all(spark, area)
            if arguments.check:
                wrong += differences(area, recorded(name), now)
            else:
                save(area, now)
            print(f"{name}: {len(area.cases)} cases, {time.perf_counter() - began:.1f} s", file=sys.stderr)
            for case in area.cases:
                for number, tick in enumerate(now[case.name].ticks):
                    if tick.error:
                        print(f"  {case.id}: tick {number} ends with {tick.error}", file=sys.stderr)
        spark.stop()
    print("\n".join(wrong) if wrong else "done")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
