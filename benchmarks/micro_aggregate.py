"""Ticks of the stateful operators alone: aggregates, COUNT DISTINCT, top-10 and rank per partition, without source, plan and sinks.

    python benchmarks/micro_aggregate.py [--rows 100000 1000000 10000000] [--ticks 200] [--case NAME ...]

A tick is 800 inserts and 200 deletes of rows that are there. Times are p50 / p95 / p99 in milliseconds, of the operator's step and commit;
CPU time stands beside wall time because other processes disturb the latter; rates are per second of CPU time.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.operators.aggregate import Aggregate
from penstock.operators.base import Operator
from penstock.operators.topk import TopK
from penstock.operators.window import Window
from penstock.plan.node import AggregateCall as Call
from penstock.plan.node import Frame, SortKey, WindowCall
from penstock.state.limits import LIMITS

TICK = Tick(1, 0)
LONG = pa.int64()


@dataclass
class Rows:
    """The rows that are there: (group, value) pairs, by place."""

    groups: npt.NDArray[np.int64]
    values: npt.NDArray[np.generic]
    rng: np.random.Generator
    draw: Callable[[np.random.Generator, int], npt.NDArray[np.generic]]
    group_count: int
    top: bool = False

    def change(self, size: int) -> Delta:
        """Replace some rows: 20% of the change are deletes, the rest inserts."""
        gone = size // 5
        if self.top:
            places = np.argpartition(self.values, gone)[:gone]
        else:
            places = self.rng.choice(len(self.groups), gone, replace=False)
        new_groups = self.rng.integers(0, self.group_count, size - gone)
        new_values = self.draw(self.rng, size - gone)
        groups = np.concatenate([self.groups[places], new_groups])
        values = np.concatenate([self.values[places], new_values])
        self.groups[places], self.values[places] = new_groups[:gone], new_values[:gone]
        if size > 2 * gone:
            self.groups = np.append(self.groups, new_groups[gone:])
            self.values = np.append(self.values, new_values[gone:])
        return Delta((pa.array(groups), pa.array(values)), np.repeat([-1, 1], [gone, size - gone]))


def doubles(rng: np.random.Generator, size: int) -> npt.NDArray[np.generic]:
    return rng.normal(100, 30, size).round(2)


def longs(rng: np.random.Generator, size: int) -> npt.NDArray[np.generic]:
    return rng.integers(0, 1 << 40, size)


def few(rng: np.random.Generator, size: int) -> npt.NDArray[np.generic]:
    return rng.integers(0, 1 << 24, size)


def aggregate(kind: pa.DataType, keys: list[int]) -> Operator:
    names = ("Sum", "Count", "Average", "Min", "Max")
    return Aggregate([LONG, kind], keys, [Call(name, (1,), "") for name in names])


def count_distinct(keys: list[int]) -> Operator:
    return Aggregate([LONG, LONG], keys, [Call("Count", (1,), "bigint", distinct=True)])


def top_ten(partition: list[int]) -> Operator:
    return TopK([LONG, LONG], partition, [SortKey(1)], 10)


def rank() -> Operator:
    call = WindowCall("Rank", (), "int", Frame("rows", None, 0))
    return Window([LONG, LONG], [0], [SortKey(1)], [call])


CASES: dict[
    str, tuple[Callable[[], Operator], Callable[[np.random.Generator, int], npt.NDArray[np.generic]], int]
] = {
    # name: operator, values, rows per group (0: one group)
    "aggregate of doubles, N/100 groups": (lambda: aggregate(pa.float64(), [0]), doubles, 100),
    "aggregate of bigints, N/100 groups": (lambda: aggregate(LONG, [0]), longs, 100),
    "aggregate of doubles, one group": (lambda: aggregate(pa.float64(), []), doubles, 0),
    "count distinct, N/100 groups": (lambda: count_distinct([0]), few, 100),
    "count distinct, one group": (lambda: count_distinct([]), few, 0),
    "top 10, the top always deleted": (lambda: top_ten([]), longs, 0),
    "top 10 per partition, N/100": (lambda: top_ten([0]), longs, 100),
    "rank in partitions of 10 rows": (rank, longs, 10),
}


def load(operator: Operator, rows: Rows) -> float:
    """Fill an operator; return seconds of CPU time."""
    delta = Delta((pa.array(rows.groups), pa.array(rows.values)), np.ones(len(rows.groups), np.int64))
    started = time.process_time()
    operator.initial(TICK)
    operator.step([delta], TICK)
    operator.commit()
    operator.maintain(LIMITS.fuel)
    return time.process_time() - started


def ticks(
    operator: Operator, rows: Rows, count: int, size: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    wall, cpu = [], []
    for _ in range(count):
        delta = rows.change(size)
        cpu_started, started = time.process_time(), time.perf_counter()
        operator.step([delta], TICK)
        operator.commit()
        operator.maintain(LIMITS.fuel)
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - cpu_started)
    return np.array(wall) * 1e3, np.array(cpu) * 1e3


def shown(values: npt.NDArray[np.float64]) -> str:
    return " / ".join(f"{np.percentile(values, share):6.2f}" for share in (50, 95, 99))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--ticks", type=int, default=200)
    parser.add_argument("--case", nargs="+", default=list(CASES))
    options = parser.parse_args()
    print(
        f"{'case':38} {'rows':>10} {'load rows/s':>12} {'MB':>6}  {'tick wall ms':24} {'tick CPU ms':24} {'10 rows':>8} {'100k rows/s':>12}"
    )
    for name in options.case:
        make, draw, per_group = CASES[name]
        for count in options.rows:
            rng = np.random.default_rng(1)
            groups = max(1, count // per_group) if per_group else 1
            rows = Rows(
                rng.integers(0, groups, count), draw(rng, count), rng, draw, groups, top="deleted" in name
            )
            operator = make()
            seconds = load(operator, rows)
            gc.collect()
            gc.freeze()
            ticks(operator, rows, 10, 1000)
            wall, cpu = ticks(operator, rows, options.ticks, 1000)
            _, ten = ticks(operator, rows, 50, 10)
            _, many = ticks(operator, rows, 3, 100_000)
            print(
                f"{name:38} {count:>10,} {count / seconds:>12,.0f} {operator.memory() / 1e6:>6.0f}  {shown(wall)}   {shown(cpu)}   "
                f"{np.median(ten):>6.2f} {1e8 / np.median(many):>12,.0f}",
                flush=True,
            )
            del operator, rows
            gc.unfreeze()


if __name__ == "__main__":
    main()
