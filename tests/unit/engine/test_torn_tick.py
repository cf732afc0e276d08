"""A tick happens or it does not: faults at every call of every operator, in the summary, and behind the commit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import penstock as ps
from penstock.circuit.circuit import Circuit
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.engine import tick as ticks
from penstock.engine.registration import Prepared, install
from penstock.operators.base import Operator
from penstock.plan import node as plan
from penstock.plan.node import Field

FIELDS = (Field("k", "bigint"), Field("v", "bigint"))
ROWS = plan.Scan(FIELDS, "rows", (0, 1))
NAMES = plan.Scan(FIELDS, "names", (0, 1))
SUM = plan.AggregateCall("Sum", (1,), "bigint", options=(("evalMode", "ANSI"),))
LARGEST = plan.AggregateCall("Max", (1,), "bigint")
RANK = plan.WindowCall("Rank", (), "int", plan.Frame("rows", None, 0))
ORDER = (plan.SortKey(1, True, False),)
VIEWS: dict[str, plan.Node] = {
    "totals": plan.Aggregate((*FIELDS, Field("m", "bigint")), ROWS, (0,), (SUM, LARGEST)),
    "joined": plan.Join((*FIELDS, *FIELDS), ROWS, NAMES, "full", (0,), (0,), (False,)),
    "top": plan.TopK(FIELDS, ROWS, (0,), ORDER, 2),
    "ranked": plan.Window((*FIELDS, Field("r", "int")), ROWS, (0,), ORDER, (RANK,)),
    "count": plan.Aggregate(
        (Field("n", "bigint"),),
        plan.Scan(FIELDS, "totals", (0, 1)),
        (),
        (plan.AggregateCall("Count", (), "bigint"),),
    ),
}


class Injected(RuntimeError):
    """The fault."""


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


@pytest.fixture
def flow() -> ps.IncrementalFlow:
    made = ps.IncrementalFlow(clock=lambda: 7)
    made.register_source("rows", "k BIGINT, v BIGINT", dedup=True, on_missing_delete="quarantine")
    made.register_source("names", "k BIGINT, v BIGINT", primary_key="k")
    for name, root in VIEWS.items():
        install(made._graph, Prepared(plan.View(name, "", root), no_fragment), 0)
    made.tick("names", [{"k": key, "v": key} for key in range(3)])
    made.tick("rows", [{"k": number % 4, "v": number} for number in range(20)], ordinal=1)
    return made


def everything(flow: ps.IncrementalFlow) -> Any:
    """All that a tick may change."""
    rows = {name: sorted(map(str, flow.snapshot(name).to_pylist())) for name in (*VIEWS, "rows", "names")}
    return rows, json.dumps(flow._graph.state.to_dict()), flow.lookup("totals", k=1).to_pylist()


CHANGE = ps.DeltaBatch.weighted(
    [
        {"k": 1, "v": 100, "_weight": 1},
        {"k": 0, "v": 0, "_weight": -1},
        {"k": 9, "v": 9, "_weight": 1},
        {"k": 9, "v": 77, "_weight": -1},
    ]
)


def feed(flow: ps.IncrementalFlow) -> ps.StepSummary:
    flow.feed("names", [{"k": 1, "v": 11}, {"k": 9, "v": 99}])
    return flow.tick("rows", CHANGE, ordinal=2)


class Failing(Operator):
    """An operator whose step fails before or after it has done its work, once."""

    def __init__(self, operator: Operator, *, late: bool) -> None:
        self._operator = operator
        self._late = late

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        if self._late:
            self._operator.step(inputs, tick)
        raise Injected

    def commit(self) -> None:
        self._operator.commit()

    def rollback(self) -> None:
        self._operator.rollback()

    def memory(self) -> int:
        return self._operator.memory()


@contextmanager
def failing(flow: ps.IncrementalFlow, number: int, *, late: bool) -> Iterator[None]:
    circuit: Circuit = flow._graph.kernel._circuit
    vertex = list(circuit.vertices.values())[number]
    operator = vertex.operator
    vertex.operator = Failing(operator, late=late)
    try:
        yield
    finally:
        vertex.operator = operator


def operators(flow: ps.IncrementalFlow) -> int:
    return len(flow._graph.kernel._circuit.vertices)


@pytest.mark.parametrize("late", [False, True], ids=["before its work", "after its work"])
def test_a_fault_in_any_operator_leaves_nothing_stepped(flow: ps.IncrementalFlow, late: bool) -> None:
    flow.lookup("totals", k=1)
    before = everything(flow)
    for number in range(operators(flow)):
        with failing(flow, number, late=late):
            with pytest.raises(ps.InternalError) as caught:
                feed(flow)
            assert isinstance(caught.value.__cause__, Injected)
            assert everything(flow) == before, number
    summary = feed(flow)
    assert (summary.tick, summary.rows_in) == (3, 6)
    assert flow.lookup("totals", k=9).to_pylist() == [{"k": 9, "v": 9, "m": 9}]
    assert flow.quarantined("rows")["v"].to_pylist() == [77]
    assert flow.source_info("rows").ordinal == 2


@pytest.mark.parametrize("function", ["_summary", "_memory"])
@pytest.mark.parametrize(
    ("error", "raised"), [(Injected, ps.InternalError), (KeyboardInterrupt, KeyboardInterrupt)]
)
def test_a_fault_behind_the_step_leaves_nothing_stepped(
    flow: ps.IncrementalFlow,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    error: type[BaseException],
    raised: type[BaseException],
) -> None:
    before = everything(flow)
    with monkeypatch.context() as patch:
        patch.setattr(ticks, function, lambda *_: (_ for _ in ()).throw(error()))
        with pytest.raises(raised):
            feed(flow)
    assert everything(flow) == before
    assert feed(flow).tick == 3


def test_a_fault_in_maintenance_does_not_undo_the_tick(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        flow._graph.kernel, "maintain", lambda rows: (_ for _ in ()).throw(MemoryError("full"))
    )
    assert feed(flow).tick == 3
    assert flow.lookup("totals", k=9).num_rows == 1
    assert "state could not be merged after tick 3" in caplog.text


def test_an_interrupt_while_a_tick_is_made_final_comes_behind_it(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever operator it meets: the tick has happened, watches have it, and the next one goes on."""
    circuit: Circuit = flow._graph.kernel._circuit
    watch = flow.watch_output("totals")
    for number, vertex in enumerate(list(circuit.vertices.values())):
        interrupts = [KeyboardInterrupt()]
        commit = vertex.operator.commit

        def interrupted(commit: Any = commit, interrupts: list[Any] = interrupts) -> None:
            if interrupts:
                raise interrupts.pop()
            commit()

        with monkeypatch.context() as patch:
            patch.setattr(vertex.operator, "commit", interrupted)
            flow.feed("names", [{"k": 1, "v": 100 + number}])
            rows = [{"k": 1, "v": 1_000 + number}, {"k": 1_000 + number, "v": 0}]
            with pytest.raises(KeyboardInterrupt):
                flow.tick("rows", rows, ordinal=10 + number)
        assert watch.recv(timeout=0) is not None
        assert flow.source_info("rows").ordinal == 10 + number
        assert flow.lookup("totals", k=1)["m"].to_pylist() == [1_000 + number]
    assert flow.snapshot("rows").num_rows == 20 + 2 * (operators(flow) - 1), (
        "all but the index of the look-up"
    )


def test_a_commit_that_cannot_be_finished_is_raised_by_every_later_tick(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    circuit: Circuit = flow._graph.kernel._circuit
    operator = list(circuit.vertices.values())[3].operator
    monkeypatch.setattr(operator, "commit", lambda: (_ for _ in ()).throw(MemoryError()))
    for _ in range(2):
        with pytest.raises(ps.StateError) as caught:
            feed(flow)
        assert caught.value.code == "FLOW_TORN"


def test_a_fault_while_a_view_is_filled_leaves_no_view(flow: ps.IncrementalFlow) -> None:
    before, count = everything(flow), operators(flow)
    overflow = plan.Aggregate((Field("s", "bigint"),), plan.Scan(FIELDS, "huge", (0, 1)), (), (SUM,))
    flow.register_source("huge", "k BIGINT, v BIGINT")
    flow.tick("huge", [{"k": 1, "v": 2**62}, {"k": 2, "v": 2**62}])
    with pytest.raises(ps.DataError):
        install(flow._graph, Prepared(plan.View("overflow", "", overflow), no_fragment), 0)
    assert "overflow" not in flow._graph.views
    assert operators(flow) == count + 1
    flow.drop_source("huge")
    assert everything(flow)[0] == before[0]
