"""Random flows that go on as themselves and as what their full checkpoints give, side by side."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.data.consolidate import consolidate
from penstock.engine.graph import OnError
from penstock.engine.registration import Prepared
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Expression, Literal
from penstock.plan.node import Field
from twin.durable import random_change, state
from twin.flows import FIELDS, PAIR, VIEWS, V, join, no_fragment, view_scan

EVENTS = (Field("at", "timestamp"), Field("k", "bigint"), Field("note", "string"))
RECENT = Call(
    "GreaterThan",
    (Column(0, "timestamp"), Call("CurrentTimestamp", (), "timestamp", False)),
    "boolean",
    True,
)
QUOTIENT = (FIELDS[0], Field("d", "double"))


def _inverse(of: Expression) -> Expression:
    number = Call("Cast", (of,), "double", True)
    return Call("Divide", (Literal(1.0, "double"), number), "double", True, (("evalMode", "ANSI"),))


ALL_VIEWS: dict[str, plan.Node] = {
    **VIEWS,
    # Fails where v is 0, and is suspended then, with the view that reads it.
    "inverse": plan.Project(QUOTIENT, PAIR, (Column(0, "bigint"), _inverse(V))),
    "inverse_named": join("left", view_scan("inverse", QUOTIENT)),
    "recent": plan.Filter(EVENTS[:2], plan.Scan(EVENTS[:2], "events", (0, 1)), RECENT),
}
READS = {"total_names": "totals", "top_total": "totals", "inverse_named": "inverse"}


class FullSchedule:
    """Ticks, registrations, drops and resumptions of one seed; full checkpoints are loaded, and go on beside the flow."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._rng = random.Random(seed)
        self._folder = folder
        self._now = 0
        self._ordinal = 0
        self._is_used = self._rng.random() < 0.4
        self.flow = ps.IncrementalFlow(clock=lambda: self._now)
        self.copies: list[ps.IncrementalFlow] = []
        self._declare()

    def _declare(self) -> None:
        retain = "used" if self._is_used else "all"
        key = self._rng.choice([None, ["k", "v"]])
        self.flow.register_source(
            "rows",
            "k BIGINT, v BIGINT, w BIGINT",
            on_missing_delete="quarantine",
            retain=retain,
            primary_key=key,
        )
        self.flow.register_source("names", "k BIGINT, name STRING COLLATE UTF8_LCASE", primary_key="k")
        late = {"column": "at", "delay": 2}
        self.flow.register_source(
            "events", "at TIMESTAMP, k BIGINT, note STRING", dedup=True, lateness=late, retain=retain
        )
        if self._is_used:
            for name in self._rng.sample(list(ALL_VIEWS), 6):
                self._add(name)

    def run(self, steps: int) -> None:
        """Do something so many times, with a full checkpoint now and then; the flows are the same after each step."""
        for _ in range(steps):
            self._act()
            self.compare()
        self._tick()
        self._copy()
        for _ in range(3):
            self._tick()
            self.compare()

    def _flows(self) -> list[ps.IncrementalFlow]:
        return [self.flow, *self.copies]

    def _act(self) -> None:
        choice = self._rng.random()
        if choice < 0.25 and not self._is_used:
            self._add(self._rng.choice(list(ALL_VIEWS)))
        elif choice < 0.3:
            self._drop()
        elif choice < 0.4:
            self._resume()
        elif choice < 0.42:
            for flow in self._flows():
                flow.force_diff_based()
        elif choice < 0.6:
            # Views on the time have the time of the flow in the copy, which a registration moves as well.
            self._tick()
            self._copy()
        else:
            self._tick()

    def _add(self, name: str) -> None:
        if name in self.flow._graph.views or READS.get(name) in self.flow._graph.state.suspended:
            return
        if name in READS:
            self._add(READS[name])
        if READS.get(name, name) not in self.flow._graph.views and name in READS:
            return
        on_error: OnError = "suspend" if name.startswith("inverse") else "reject"
        view = plan.View(name, "", ALL_VIEWS[name], uses_time=name == "recent")
        failures = [self._install(flow, view, on_error) for flow in self._flows()]
        assert len(set(failures)) == 1

    def _install(self, flow: ps.IncrementalFlow, view: plan.View, on_error: OnError) -> str | None:
        try:
            flow._install(Prepared(view, no_fragment), on_error)
        except (ps.DataError, ps.StateError) as error:
            return error.code
        return None

    def _drop(self) -> None:
        graph = self.flow._graph
        free = [name for name in graph.views if not graph.readers(name)]
        if free:
            name = self._rng.choice(free)
            for flow in self._flows():
                flow.drop_view(name)

    def _resume(self) -> None:
        for name, stopped in list(self.flow._graph.state.suspended.items()):
            if stopped.because is None:
                codes = {self._resumed(flow, name) for flow in self._flows()}
                assert len(codes) == 1

    def _resumed(self, flow: ps.IncrementalFlow, name: str) -> str | None:
        try:
            flow.resume_view(name)
        except ps.DataError as error:
            return error.code
        return None

    def _tick(self) -> None:
        self._now += self._rng.randint(0, 3_000)
        change = random_change(self._rng)
        self._ordinal += self._rng.randint(0, 1)
        rows = [{"k": k, "v": v, "w": w, "_weight": -1 if gone else 1} for k, v, w, gone in change]
        names = [{"k": k, "name": "nN"[w] + str(v)} for k, v, w, gone in change if not gone]
        events = [{"at": self._now + 1_000 * v, "k": k, "note": f"n{w}"} for k, v, w, _ in change[:1]]
        for flow in self._flows():
            if rows:
                flow.feed("rows", ps.DeltaBatch.weighted(rows), ordinal=self._ordinal)
            if names:
                flow.feed("names", names)
            flow.feed("events", _timed(events))
            flow.step()

    def _copy(self) -> None:
        """Load a full checkpoint, or restore it over a flow that has something else."""
        # One folder for all, so that a full checkpoint takes the place of the one before.
        self._rng.choice(self._flows()).checkpoint_full(self._folder)
        if self._rng.random() < 0.5:
            copy = ps.IncrementalFlow.load(self._folder, clock=lambda: self._now)
        else:
            copy = ps.IncrementalFlow(clock=lambda: self._now)
            copy.register_source("others", "k BIGINT")
            copy.tick("others", [{"k": 1}])
            copy.restore(self._folder)
        self.copies = [*self.copies[-1:], copy]
        self.compare()

    def compare(self) -> None:
        """All flows have the same rows, and remember the same."""
        expected, remembered = contents(self.flow), state(self.flow)
        for copy in self.copies:
            assert contents(copy) == expected
            assert state(copy) == remembered


def _timed(events: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("note", pa.string())])
    return pa.Table.from_pylist(events, schema=schema)


def contents(flow: ps.IncrementalFlow) -> dict[str, Any]:
    """What every source stores, and what every view shows."""
    kernel = flow._graph.kernel
    stored: dict[str, Any] = {}
    for name in flow._graph.sources:
        rows = consolidate(kernel.stored(name)())
        values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        stored[name] = Counter(dict(zip(map(str, values), rows.weights.tolist(), strict=True)))
    for name in flow._graph.views:
        stored[name] = Counter(map(str, flow.snapshot(name).to_pylist()))
    return stored
