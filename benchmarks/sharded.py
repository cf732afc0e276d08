"""Ticks of a flow in shards, beside the cheapest Spark job, a plain flow, and one shard.

python benchmarks/sharded.py [--rows 10000000] [--ticks 100] [--large 1000000]
"""

from __future__ import annotations

import argparse
import time

import penstock as ps
from flows import Rig
from harness import machine, publish, table, times
from workload import CASES

ROWS = 1_000  # of a small tick
SHARDS = 2


def cheapest_job(session: ps.Session) -> float:
    """The milliseconds of a job of one stage over two rows."""
    frame = session.spark.range(0, SHARDS, 1, SHARDS)
    begin = time.perf_counter()
    frame.collect()
    return (time.perf_counter() - begin) * 1000


def small_ticks(session: ps.Session, case: str, rows: int, count: int) -> list[list[str]]:
    """Ticks in two shards and the cheapest jobs take turns, so that both have the same machine."""
    plain = Rig(session, [CASES[case]], rows)
    alone = times(plain.ticks(ROWS, count))
    plain.close()
    rig = Rig(session, [CASES[case]], rows, ps.PartitionedIncrementalFlow, shards=SHARDS)
    jobs, ticked = [], []
    for at in range(count + 20):
        taken = cheapest_job(session), rig.tick(ROWS)
        if at >= 20:
            jobs.append(taken[0])
            ticked.append(taken[1])
    rig.close()
    job, tick = times(jobs), times(ticked)
    return [
        [f"{case}: plain flow", str(alone), ""],
        [f"{case}: cheapest one-stage SQL job", str(job), ""],
        [f"{case}: {SHARDS} shards", str(tick), f"{tick.p50 / job.p50:.2f} times the job (p50)"],
    ]


def large_ticks(session: ps.Session, case: str, rows: int, large: int, count: int) -> list[list[str]]:
    """Ticks of many rows, on one shard and on two, by turns."""
    rigs = {
        shards: Rig(session, [CASES[case]], rows, ps.PartitionedIncrementalFlow, shards=shards)
        for shards in (1, SHARDS)
    }
    taken: dict[int, list[float]] = {shards: [] for shards in rigs}
    for at in range(count + 1):
        for shards, rig in rigs.items():
            milliseconds = rig.tick(large)
            if at:
                taken[shards].append(milliseconds)
    for rig in rigs.values():
        rig.close()
    one, two = (times(taken[shards]) for shards in (1, SHARDS))
    return [
        [f"{case}, {large:,} rows: 1 shard", str(one), ""],
        [
            f"{case}, {large:,} rows: {SHARDS} shards",
            str(two),
            f"{one.p50 / two.p50:.2f} times as fast (p50)",
        ],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ticks", type=int, default=100)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--case", action="append", choices=list(CASES))
    arguments = parser.parse_args()
    here = machine()
    cases = arguments.case or ["aggregate", "join"]
    lines: list[list[str]] = []
    with ps.Session.embedded() as session:
        for case in cases:
            lines += small_ticks(session, case, arguments.rows, arguments.ticks)
        for case in cases:
            lines += large_ticks(session, case, arguments.rows // 10, arguments.large, 5)
    head = [f"ticks of {ROWS:,} rows on {arguments.rows / 1e6:g}M", "p50 / p95 / p99, ms", ""]
    publish("sharded", f"{table(head, lines)}\n\n{here}")


if __name__ == "__main__":
    main()
