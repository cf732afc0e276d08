"""Ticks of 1,000 changed rows (80% inserts, 20% deletes) through one operator at growing sizes of state.

    python benchmarks/micro_join.py [--rows 100000 1000000 10000000] [--ticks 300] [--cases inner left]

Half of the rows and half of the changes are on either side of the join. Times are milliseconds of one tick, commit included.
On a busy machine the CPU time says more than the wall clock.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.delta import Delta, concat
from penstock.data.tick import Tick
from penstock.operators.arrange import Arrange
from penstock.operators.base import Operator
from penstock.operators.join import Join
from penstock.operators.output import Output
from penstock.operators.semijoin import SemiJoin
from penstock.operators.source import Source
from penstock.state.arrangement import Arrangement
from penstock.state.limits import LIMITS

TICK = Tick(1, 0)
Ids = npt.NDArray[np.int64]
TYPES = (pa.int64(), pa.int64(), pa.float64())
TEXT_TYPES = (*TYPES, pa.large_string())


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured: a name, the columns of a row, and the operators over two arrangements."""

    name: str
    types: Sequence[pa.DataType]
    make: Callable[[Arrangement, Arrangement], Operator]


CASES = {
    "inner": Case("inner", TYPES, lambda left, right: Join("inner", left, right)),
    "inner-text": Case("inner-text", TEXT_TYPES, lambda left, right: Join("inner", left, right)),
    "left": Case("left", TYPES, lambda left, right: Join("left", left, right)),
    "semi": Case("semi", TYPES, lambda left, right: SemiJoin("semi", left, right)),
}


def rows(ids: Ids, weights: Ids, types: Sequence[pa.DataType]) -> Delta:
    """The row of each id: (key, id, amount[, text]); the key is the id scattered over the same range."""
    columns = [pa.array(ids * 7), pa.array(ids), pa.array(ids * 0.25)]
    if len(types) == 4:
        text = np.char.add("customer number ", ids.astype(str))
        columns.append(pa.array(text, pa.large_string()))
    return Delta(tuple(columns), weights)


class Feed:
    """A side of the join: which ids are there, and the next change."""

    def __init__(self, count: int, types: Sequence[pa.DataType], seed: int) -> None:
        self._types, self._next = types, count
        self._alive = np.arange(count)
        self._random = np.random.default_rng(seed)

    def load(self) -> Delta:
        step = 1_000_000
        parts = [self._alive[at : at + step] for at in range(0, len(self._alive), step)]
        return concat([rows(part, np.ones(len(part), np.int64), self._types) for part in parts])

    def change(self, count: int) -> Delta:
        gone, fresh = count // 5, count - count // 5
        at = self._random.choice(len(self._alive), gone, replace=False)
        new = np.arange(self._next, self._next + fresh)
        ids = np.concatenate([self._alive[at], new])
        # Fresh rows take the places of dead ones, so that the cost of the feed itself does not grow.
        self._alive[at] = new[:gone]
        self._next += fresh
        return rows(ids, np.repeat([-1, 1], [gone, fresh]), self._types)


def percentiles(seconds: Sequence[float]) -> str:
    return " / ".join(f"{value * 1e3:6.2f}" for value in np.percentile(seconds, [50, 95, 99]))


def measure(case: Case, count: int, ticks: int, *, profile: bool) -> None:
    left, right = (Arrangement(case.types, (0,)) for _ in range(2))
    arranged = [Arrange(left), Arrange(right)]
    operator = case.make(left, right)
    feeds = [Feed(count // 2, case.types, seed) for seed in (1, 2)]

    def tick(deltas: Sequence[Delta]) -> Delta:
        for arrange, delta in zip(arranged, deltas, strict=True):
            arrange.step([delta], TICK)
        result = operator.step(deltas, TICK)
        for part in (*arranged, operator):
            part.commit()
            part.maintain(LIMITS.fuel)
        return result

    loads = [feed.load() for feed in feeds]
    started = time.perf_counter()
    tick(loads)
    loading = time.perf_counter() - started
    del loads
    gc.collect()
    gc.freeze()
    wall, cpu = [], []
    profiler = cProfile.Profile()
    for _ in range(ticks):
        deltas = [feed.change(500) for feed in feeds]
        if profile:
            profiler.enable()
        clock, processor = time.perf_counter(), time.process_time()
        tick(deltas)
        wall.append(time.perf_counter() - clock)
        cpu.append(time.process_time() - processor)
        profiler.disable()
    memory = (left.memory() + right.memory()) / count
    print(
        f"{case.name:11} {count:>10,} rows  wall {percentiles(wall)}  cpu {percentiles(cpu)}  "
        f"load {count / loading / 1e6:.1f}M rows/s  {memory:.0f} B/row"
    )
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def measure_source(count: int, ticks: int) -> None:
    """A source that checks its retractions, into a materialised view keyed for look-ups."""
    source = Source("s", ("k", "id", "amount"), TYPES)
    output = Output("v", ("k", "id", "amount"), Arrangement(TYPES, (0,)))
    feed = Feed(count, TYPES, 1)

    def tick(delta: Delta) -> None:
        output.step([source.step([delta], TICK)], TICK)
        source.commit()
        source.maintain(LIMITS.fuel)
        output.commit()
        output.maintain(LIMITS.fuel)

    tick(feed.load())
    gc.collect()
    cpu, found = [], []
    for _ in range(ticks):
        delta = feed.change(1_000)
        started = time.process_time()
        tick(delta)
        cpu.append(time.process_time() - started)
        keys = pa.array(np.random.default_rng(1).integers(0, count, 100) * 7)
        started = time.process_time()
        output.lookup([0], [keys])
        found.append(time.process_time() - started)
    print(f"source+view {count:>10,} rows  cpu {percentiles(cpu)}  100 look-ups cpu {percentiles(found)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--ticks", type=int, default=300)
    parser.add_argument("--cases", nargs="+", default=[*CASES, "source"], choices=[*CASES, "source"])
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    print("p50 / p95 / p99 in ms")
    for name in options.cases:
        for count in options.rows:
            if name == "source":
                measure_source(count, options.ticks)
            else:
                measure(CASES[name], count, options.ticks, profile=options.profile)


if __name__ == "__main__":
    main()
