"""Flows over plans that were made by hand: every kind of view, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import penstock as ps
from penstock.circuit.local import LocalKernel
from penstock.circuit.state_key import StateKey
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.engine.flow_state import FlowState
from penstock.engine.registration import Prepared, install
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Literal
from penstock.plan.node import Field
from penstock.state.state import Image

FIELDS = (Field("k", "bigint"), Field("v", "bigint"), Field("w", "bigint"))
NAMED = (Field("k", "bigint"), Field("name", "string"))
K, V = Column(0, "bigint"), Column(1, "bigint")
ROWS = plan.Scan(FIELDS, "rows", (0, 1, 2))
PAIR = plan.Scan(FIELDS[:2], "rows", (0, 1))
NAMES = plan.Scan(NAMED, "names", (0, 1))
SUM = plan.AggregateCall("Sum", (1,), "bigint", options=(("evalMode", "ANSI"),))
LARGE = plan.Filter(FIELDS[:2], PAIR, Call("GreaterThan", (V, Literal(1, "bigint")), "boolean", True))
TOTALS = plan.Aggregate(FIELDS[:2], PAIR, (0,), (SUM,))
RANK = plan.WindowCall("Rank", (), "int", plan.Frame("rows", None, 0))


def join(kind: Any, left: plan.Node, key: int = 0) -> plan.Node:
    fields = left.fields if kind in ("semi", "anti") else (*left.fields, *NAMED)
    return plan.Join(fields, left, NAMES, kind, (key,), (0,), (False,))


def view_scan(name: str, fields: plan.Fields) -> plan.Scan:
    return plan.Scan(fields, name, tuple(range(len(fields))))


VIEWS: dict[str, plan.Node] = {
    "large": LARGE,
    "totals": TOTALS,
    "named": join("inner", PAIR),
    "by_v": join("left", PAIR, 1),
    "large_named": join("left", LARGE),
    "unnamed": join("anti", LARGE),
    "large_totals": plan.Aggregate(FIELDS[:2], LARGE, (0,), (SUM,)),
    "top": plan.TopK(FIELDS, ROWS, (0,), (plan.SortKey(1, True, False),), 2),
    "ranked": plan.Window((*FIELDS, Field("r", "int")), ROWS, (0,), (plan.SortKey(1, True, False),), (RANK,)),
    "twice": plan.Union(FIELDS[:2], (LARGE, PAIR)),
    "total_names": join("inner", view_scan("totals", FIELDS[:2])),
    "top_total": plan.TopK(
        FIELDS[:2], view_scan("totals", FIELDS[:2]), (), (plan.SortKey(1, True, False),), 1
    ),
    "walked": plan.Recursive(
        FIELDS[:2],
        "walk",
        LARGE,
        plan.Filter(
            FIELDS[:2],
            plan.Project(
                FIELDS[:2],
                plan.Join(
                    (*FIELDS[:2], *FIELDS[:2]),
                    plan.Scan(FIELDS[:2], "walk", (0, 1)),
                    PAIR,
                    "inner",
                    (1,),
                    (0,),
                    (False,),
                ),
                (K, Column(3, "bigint")),
            ),
            Call("LessThan", (V, Literal(0, "bigint")), "boolean", True),
        ),
    ),
}
NOW = Call("Cast", (Call("CurrentTimestamp", (), "timestamp"),), "bigint", options=(("timeZoneId", "UTC"),))
# What the other tests of whole flows do not need.
MORE_VIEWS: dict[str, plan.Node] = {
    "last_names": plan.Asof((*FIELDS, *FIELDS[:2]), ROWS, PAIR, (2,), (0,), 1, 1, "backward", None, True),
    "sessions": plan.SessionWindow((*FIELDS, Field("s", "bigint")), ROWS, (0,), start=1, end=1),
    "not_in": plan.Join(FIELDS[:2], PAIR, NAMES, "anti", (1,), (0,), (False,), None, True),
    "all_named": join("full", PAIR),
    "until_now": plan.Filter(FIELDS[:2], PAIR, Call("LessThanOrEqual", (V, NOW), "boolean", True)),
    "first": plan.TopK(FIELDS, ROWS, (), (plan.SortKey(2), plan.SortKey(1, True, False)), 2, 1),
}
ALL_VIEWS = VIEWS | MORE_VIEWS
LOOKUPS = [
    ("rows", "k"),
    ("rows", "v"),
    ("names", "name"),
    ("totals", "k"),
    ("named", "name"),
    ("large", "v"),
]
Action = tuple[str, Any]
Change = list[tuple[int, int, int, bool]]


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


class Subject:
    """A flow to which things happen in some order; the changes always come in theirs."""

    def __init__(
        self,
        changes: list[Change],
        images: Mapping[StateKey, Image] | None = None,
        state: FlowState | None = None,
    ) -> None:
        self.flow = ps.IncrementalFlow(clock=lambda: 0)
        self.kernel.load(images or {})
        self.flow._graph.state = state or FlowState()
        self.flow.register_source("rows", "k BIGINT, v BIGINT, w BIGINT", on_missing_delete="quarantine")
        self.flow.register_source("names", "k BIGINT, name STRING", primary_key="k")
        self._changes = list(changes)

    @property
    def kernel(self) -> LocalKernel:
        kernel = self.flow._graph.kernel
        assert isinstance(kernel, LocalKernel)
        return kernel

    def do(self, action: Action) -> None:
        kind, what = action
        if kind == "view":
            self.add(what)
        elif kind == "tick":
            self.tick()
        elif kind == "lookup" and what[0] in (*self.flow._graph.views, "rows", "names"):
            self.flow.lookup(what[0], **{what[1]: "n1" if what[1] == "name" else 1})
        elif kind == "drop":
            self.add(what)
            if not self.flow._graph.readers(what):
                self.flow.drop_view(what)

    def add(self, name: str) -> None:
        if name in self.flow._graph.views:
            return
        if name in ("total_names", "top_total"):
            self.add("totals")
        view = plan.View(name, "", ALL_VIEWS[name], uses_time=name == "until_now")
        install(self.flow._graph, Prepared(view, no_fragment), 0)

    def tick(self) -> None:
        change = self._changes.pop(0)
        rows = [{"k": k, "v": v, "w": w, "_weight": -1 if gone else 1} for k, v, w, gone in change]
        named = [{"k": abs(k), "name": f"n{v}"} for k, v, _, gone in change if not gone]
        if rows:
            self.flow.feed("rows", ps.DeltaBatch.weighted(rows))
        if named:
            self.flow.feed("names", named)
        self.flow.step()

    def emitted(self) -> list[Delta]:
        """Run a tick, and give what all relations change by, as the kernel gives it."""
        outputs = self.emitted_by_name()
        return [outputs[name] for name in sorted(outputs)]

    def emitted_by_name(self) -> dict[str, Delta]:
        """The same, by the name of the relation."""
        outputs: dict[str, Delta] = {}
        step = self.kernel.step

        def listened(changes: Mapping[str, Delta], tick: Tick, **options: Any) -> Any:
            stepped = step(changes, tick, **options)
            outputs.update(stepped.outputs)
            return stepped

        self.kernel.step = listened  # type: ignore[method-assign]
        try:
            self.tick()
        finally:
            del self.kernel.step
        return outputs

    def answers(self) -> dict[str, Counter[str]]:
        return {
            name: Counter(map(str, self.flow.snapshot(name).to_pylist()))
            for name in (*self.flow._graph.views, "rows", "names")
        }
