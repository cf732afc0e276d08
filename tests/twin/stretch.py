"""A durable flow beside the same flow in memory, with sources of every kind and rows that come, change and go in random ticks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.engine.registration import Prepared
from penstock.engine.summary import StepSummary
from penstock.engine.vector import VectorViewSpec
from penstock.plan import node as plan
from penstock.plan.node import Field
from twin.durable import answers, opened, state
from twin.failing import FAILING, READS
from twin.flows import VIEWS, no_fragment

MARKS = (Field("k", "bigint"), Field("x", "double"))
POINTS = plan.Scan(MARKS, "marks", (0, 1))
NUMBERS = plan.Aggregate(
    (*MARKS, Field("average", "double"), Field("largest", "double")),
    POINTS,
    (0,),
    (
        plan.AggregateCall("Sum", (1,), "double", options=(("evalMode", "ANSI"),)),
        plan.AggregateCall("Average", (1,), "double", options=(("evalMode", "ANSI"),)),
        plan.AggregateCall("Max", (1,), "double"),
    ),
)
NEVER = 10**9


class Pair:
    """Both flows; whatever happens to one happens to the other."""

    def __init__(self, seed: int, path: Path, *, special: bool) -> None:
        """`special` adds sources and views whose ticks are never stepped together with others."""
        self.rng = random.Random(seed)
        self._path = path
        self._special = special
        self._ordinal = 0
        self.memory, self.durable = opened(), opened(path, checkpoint_every=NEVER)
        for flow in self.flows:
            flow.register_source("rows", "k BIGINT, v BIGINT, w BIGINT")
            flow.register_source("names", "k BIGINT, name STRING", primary_key="k")
            flow.register_source("marks", "k BIGINT, x DOUBLE")
            flow.register_source("vectors", "id BIGINT, vec ARRAY<FLOAT>", primary_key="id")
            if special:
                flow.register_source("doubtful", "k BIGINT", on_missing_delete="quarantine")
                flow.register_source("once", "k BIGINT", dedup=True)

    @property
    def flows(self) -> tuple[ps.IncrementalFlow, ps.IncrementalFlow]:
        return self.memory, self.durable

    def add_views(self) -> None:
        """Register some views that are not there yet."""
        names = self.rng.sample([*VIEWS, "numbers", "latest", "similar"], self.rng.randint(1, 6))
        if self._special and self.rng.random() < 0.5:
            names += self.rng.sample([*FAILING], 2)
        for name in names:
            for flow in self.flows:
                self._add(flow, name)

    def _add(self, flow: ps.IncrementalFlow, name: str) -> None:
        if name in flow._graph.views:
            return
        for below in READS.get(name, ()):
            self._add(flow, below)
        running = flow._graph.views.keys() - flow._graph.state.suspended.keys()
        if not running.issuperset(READS.get(name, ())):
            return
        if name == "latest":
            flow.register_asof_view(
                name, left="rows", right="marks", by="k", left_time="v", right_time="k", columns=["x"]
            )
        elif name == "similar":
            spec = VectorViewSpec(source="vectors", id="id", embedding="vec", query=[1.0, 0.5], k=3)
            flow.register_vector_view(name, spec)
        elif name in FAILING:
            try:
                flow._install(Prepared(plan.View(name, "", FAILING[name]), no_fragment), "suspend")
            except (ps.DataError, ps.StateError):
                assert name not in flow._graph.views
        else:
            root = NUMBERS if name == "numbers" else VIEWS[name]
            flow._install(Prepared(plan.View(name, "", root), no_fragment), "reject")

    def tick(self) -> None:
        """One tick over some sources, or none; both flows say the same of it."""
        fed: list[tuple[str, Any, int | None]] = []
        for source in self.rng.sample(list(self.memory._graph.sources), self.rng.choice([0, 1, 1, 2, 3])):
            batches = self._batches(source)
            self._ordinal += 1
            fed += [(source, batch, self._ordinal * 10 + at) for at, batch in enumerate(batches)]
        summaries: list[StepSummary | str] = []
        for flow in self.flows:
            for source, batch, ordinal in fed:
                flow.feed(source, batch, ordinal=ordinal)
            try:
                summaries.append(flow.step())
            except ps.DataError as error:
                summaries.append(str(error))
        self._same(*summaries)

    @staticmethod
    def _same(one: StepSummary | str, other: StepSummary | str) -> None:
        if isinstance(one, str) or isinstance(other, str):
            assert one == other
            return
        assert (one.tick, one.rows_in, one.rows_out) == (other.tick, other.rows_in, other.rows_out)
        for name, step in one.views.items():
            twin = other.views[name]
            assert (step.inserted, step.retracted) == (twin.inserted, twin.retracted), name
            assert (step.skipped, step.suspended) == (twin.skipped, twin.suspended), name

    def _batches(self, source: str) -> Sequence[ps.DeltaBatch]:
        rng, present = self.rng, self.memory.snapshot(source).to_pylist()
        gone = rng.sample(present, min(len(present), rng.choice([0, 0, 1, 2])))
        match source:
            case "rows":
                new = [self._row() for _ in range(rng.randint(0, 4))]
                return [*([ps.DeltaBatch.deletes(gone)] if gone else []), *_inserts(new)]
            case "names":
                return self._named(gone)
            case "vectors":
                new = [self._vector() for _ in range(rng.randint(0, 3))]
                removed = [{"id": row["id"]} for row in gone]
                return [*([ps.DeltaBatch.deletes(removed)] if removed else []), *_inserts(new)]
            case "marks":
                return self._marks(gone)
            case "doubtful":
                rows = [{"k": rng.randint(0, 3), "_weight": rng.choice([1, 1, -1])} for _ in range(3)]
                return [ps.DeltaBatch.weighted(rows)]
            case _:
                return _inserts([{"k": rng.randint(0, 3)}])

    def _row(self) -> dict[str, Any]:
        rng = self.rng
        return {"k": rng.randint(0, 3), "v": rng.randint(-2, 3), "w": rng.randint(0, 1)}

    def _vector(self) -> dict[str, Any]:
        rng = self.rng
        return {"id": rng.randint(0, 5), "vec": [rng.choice([0.0, 0.5, 1.0]), rng.choice([0.25, 1.5])]}

    def _named(self, gone: Sequence[dict[str, Any]]) -> Sequence[ps.DeltaBatch]:
        """Rows by primary key in every order: alone, replaced by others, twice, retracted by key, and retracted behind an insert."""
        rng = self.rng
        new = [{"k": rng.randint(0, 4), "name": f"n{rng.randint(0, 2)}"} for _ in range(rng.randint(0, 3))]
        events = [{**row, "_weight": 1} for row in new]
        events += [{"k": row["k"], "name": rng.choice([row["name"], "other"]), "_weight": -1} for row in gone]
        if rng.random() < 0.3:
            rng.shuffle(events)
        if not new and gone and rng.random() < 0.5:
            return [ps.DeltaBatch.deletes([{"k": row["k"]} for row in gone])]
        return [ps.DeltaBatch.weighted(events)] if events else []

    def _marks(self, gone: Sequence[dict[str, Any]]) -> Sequence[ps.DeltaBatch]:
        """Plain rows, changes by key, and both in one tick."""
        rng = self.rng
        values = [0.1, 0.2, 0.3, 1e17, -1e17, 1e-9]
        new = [{"k": rng.randint(0, 3), "x": rng.choice(values)} for _ in range(rng.randint(1, 3))]
        upserts = ps.DeltaBatch.upserts(new, keys=["k"])
        plain = [ps.DeltaBatch.deletes(gone)] if gone else [ps.DeltaBatch.inserts(new)]
        choice = rng.random()
        return [upserts] if choice < 0.5 else plain if choice < 0.9 else [*plain, upserts]

    def drop_view(self) -> None:
        """Drop a view that no other reads."""
        graph = self.memory._graph
        names = [name for name in graph.views if not graph.readers(name)]
        if names:
            name = self.rng.choice(names)
            for flow in self.flows:
                flow.drop_view(name)

    def reopen(self) -> None:
        """Close the durable flow and open it again: both are the same."""
        self.durable.close()
        self.durable = opened(self._path, checkpoint_every=NEVER)
        self.compare()

    def compare(self) -> None:
        """Both flows have the same rows and remember the same."""
        assert answers(self.durable) == answers(self.memory)
        assert state(self.durable) == state(self.memory)


def _inserts(rows: Sequence[dict[str, Any]]) -> list[ps.DeltaBatch]:
    return [ps.DeltaBatch.inserts(rows)] if rows else []
