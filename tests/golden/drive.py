"""A flow driven tick by tick, with everything that must hold after every tick checked on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

import penstock as ps

from . import canonical
from .case import Case, Tick, weighted
from .recording import Tiers, tiers_of


@dataclass(slots=True)
class Watched:
    """One view of a flow: the sum of what its watch gave so far must be what its snapshot shows."""

    flow: ps.IncrementalFlow
    view: str
    watch: ps.Watch = field(init=False)
    total: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        self.total = canonical.multiset(canonical.rows(self.flow.snapshot(self.view)))
        self.watch = self.flow.watch_output(self.view)

    def check(self, summary: ps.StepSummary) -> Counter[str]:
        """Return the change of this tick, after checking it against the snapshot and the summary."""
        batch = self.watch.recv(timeout=0)
        change: Counter[str] = Counter()
        if batch is not None:
            table = batch.to_arrow()
            change = canonical.weights(table)
            assert len(change) == table.num_rows, f"{self.view}: a delta has a row twice: {table.to_pylist()}"
            assert 0 not in change.values(), f"{self.view}: a delta has a row of weight 0"
        assert self.watch.recv(timeout=0) is None, f"{self.view}: two deltas in one tick"
        self.total.update(change)
        snapshot = canonical.multiset(canonical.rows(self.flow.snapshot(self.view)))
        total = {row: count for row, count in self.total.items() if count}
        assert total == snapshot, f"{self.view}: the sum of deltas is not the snapshot"
        step = summary.views[self.view]
        assert step.inserted == sum(weight for weight in change.values() if weight > 0)
        assert step.retracted == -sum(weight for weight in change.values() if weight < 0)
        assert not (step.skipped and change)
        return change

    def close(self) -> None:
        self.watch.close()


def open_flow(session: ps.Session, tables: Mapping[str, str]) -> ps.IncrementalFlow:
    """Return a flow with the given sources, by their DDL."""
    flow = ps.IncrementalFlow(session)
    for name, ddl in tables.items():
        flow.register_source(name, ddl)
    return flow


def register(flow: ps.IncrementalFlow, case: Case) -> dict[str, Tiers]:
    """Register the views of a case; return the tiers that each runs in."""
    queries = {**dict(case.views), case.name: case.sql}
    return {name: tiers_of(flow.register_view(name, query)) for name, query in queries.items()}


def step(flow: ps.IncrementalFlow, tick: Tick, schemas: Mapping[str, pa.Schema]) -> ps.StepSummary:
    """Feed the changes of one tick and step."""
    for name, changes in tick.items():
        flow.feed(name, ps.DeltaBatch.weighted(weighted(changes, schemas[name])))
    return flow.step()
