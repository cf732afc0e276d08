"""A state is found by its name whatever the order in which views, rows and look-ups came, and so is a flow's answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.circuit.local import LocalKernel
from penstock.circuit.state_key import StateKey
from penstock.data.consolidate import consolidate
from penstock.engine.registration import Prepared, install
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Literal
from penstock.plan.node import Field
from penstock.state.arrangement import Arrangement
from penstock.state.spine import Spine

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
                # Values go down, so that it ends.
                Call("LessThan", (Column(3, "bigint"), V), "boolean", True),
            ),
            (K, Column(3, "bigint")),
        ),
    ),
}
LOOKUPS = [
    ("rows", "k"),
    ("rows", "v"),
    ("names", "name"),
    ("totals", "k"),
    ("named", "name"),
    ("large", "v"),
]
Action = tuple[str, Any]
CHANGE = st.lists(
    st.tuples(st.integers(-1, 3), st.integers(-2, 3), st.integers(0, 1), st.booleans()), max_size=5
)


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


class Subject:
    """A flow to which things happen in some order; the changes always come in theirs."""

    def __init__(self, changes: list[list[tuple[int, int, int, bool]]]) -> None:
        self.flow = ps.IncrementalFlow(clock=lambda: 0)
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
        install(self.flow._graph, Prepared(plan.View(name, "", VIEWS[name]), no_fragment), 0)

    def tick(self) -> None:
        change = self._changes.pop(0)
        rows = [{"k": k, "v": v, "w": w, "_weight": -1 if gone else 1} for k, v, w, gone in change]
        named = [{"k": abs(k), "name": f"n{v}"} for k, v, _, gone in change if not gone]
        if rows:
            self.flow.feed("rows", ps.DeltaBatch.weighted(rows))
        if named:
            self.flow.feed("names", named)
        self.flow.step()

    def answers(self) -> dict[str, Counter[str]]:
        return {
            name: Counter(map(str, self.flow.snapshot(name).to_pylist()))
            for name in (*VIEWS, "rows", "names")
        }


def content(state: Any) -> Counter[tuple[Any, ...]] | None:
    """The rows of a state that holds rows; operators that hold something else are judged by the answers."""
    if not isinstance(state, Arrangement | Spine):
        return None
    rows = consolidate(state.before().rows())
    keys = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return Counter(dict(zip(keys, rows.weights.tolist(), strict=True)))


def contents(kernel: LocalKernel) -> dict[StateKey, Any]:
    """What every state holds; states of the same name must hold the same."""
    found: dict[StateKey, Any] = {}
    for key, state in kernel.named_states():
        held = content(state)
        assert found.setdefault(key, held) == held, f"two states {key} differ"
    return found


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_any_order_gives_the_same_states_and_answers(data: st.DataObject) -> None:
    changes = data.draw(st.lists(CHANGE, min_size=1, max_size=4))
    actions: list[Action] = [("tick", None) for _ in changes]
    actions += [("view", name) for name in VIEWS]
    actions += [("lookup", what) for what in LOOKUPS]
    actions += [("drop", name) for name in data.draw(st.lists(st.sampled_from([*VIEWS]), max_size=3))]
    subjects = [Subject(changes) for _ in range(2)]
    for subject in subjects:
        for action in data.draw(st.permutations(actions)):
            subject.do(action)
        for name in VIEWS:
            subject.add(name)
    one, other = (contents(subject.kernel) for subject in subjects)
    for key in one.keys() & other.keys():
        assert one[key] == other[key], key
    assert subjects[0].answers() == subjects[1].answers()
    rebuilt = ps.IncrementalFlow.from_definition(subjects[0].flow.definition())._graph.kernel
    assert isinstance(rebuilt, LocalKernel)
    sources = {key for key in rebuilt.states() if key in empty_flow().states()}
    assert sources <= one.keys(), "what cannot be computed from anything else is always there"
    for key in rebuilt.states().keys() - one.keys():
        # An index, or the rows of a view or of a join, which `fill` makes again of what is below.
        assert key.role == "rows"
        assert key not in sources


def empty_flow() -> LocalKernel:
    """The two sources alone."""
    return Subject([]).kernel


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_that_comes_last_has_the_states_of_one_that_came_first(name: str) -> None:
    """Also for one view alone: which key a source is sorted by, and what is shared, is not in the names."""
    changes = [[(1, 2, 0, False), (1, 3, 1, False), (2, 2, 0, False)], [(1, 2, 0, True), (2, 3, 0, False)]]
    first, last = Subject(changes), Subject(changes)
    first.add(name)
    for subject in (first, last):
        subject.tick()
        subject.tick()
    last.add(name)
    assert contents(first.kernel) == contents(last.kernel)
