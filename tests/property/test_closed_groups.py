"""Groups behind the watermark are freed, and nobody can tell from the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.operators.closing import ClosingAggregate
from seed import SEED
from twin.events import CLOSING, VIEWS, Events, add_view, answers, event_flow, nothing_closes
from twin.rows import small_state
from twin.scratch import tiny_budget


def closing_operators(flow: ps.IncrementalFlow) -> list[ClosingAggregate]:
    vertices = flow._graph.kernel._circuit.vertices.values()  # type: ignore[attr-defined]
    return [vertex.operator for vertex in vertices if isinstance(vertex.operator, ClosingAggregate)]


def finished(flow: ps.IncrementalFlow) -> list[int]:
    """How many groups each operator has finished."""
    return [operator._groups._finished.count for operator in closing_operators(flow)]


def remembered(flow: ps.IncrementalFlow) -> Any:
    return flow._graph.state.to_dict()


@pytest.mark.parametrize(
    "number", [*range(2), *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 100))]
)
def test_a_flow_that_frees_closed_groups_answers_as_one_that_does_not(number: int, tmp_path: Path) -> None:
    events = Events(SEED + number)
    with small_state():
        freeing = event_flow(tiny_budget(tmp_path / "scratch") if number % 2 else None)
        with nothing_closes():
            keeping = event_flow()
        assert len(closing_operators(freeing)) == len(CLOSING)
        assert not closing_operators(keeping)
        for at in range(40):
            rows = ps.DeltaBatch.weighted(
                events.tick() or [{"k": 0, "ts": None, "v": 0, "x": 0.1, "_weight": 1}]
            )
            changes = [flow.tick("events", rows) for flow in (freeing, keeping)]
            assert changes[0].rows_out == changes[1].rows_out
            assert changes[0].late == changes[1].late
            if at % 15 == 14:
                freeing.checkpoint(tmp_path / "checkpoint")
                freeing = ps.IncrementalFlow.load(tmp_path / "checkpoint", clock=lambda: 0)
            if at % 5 == 4:
                assert answers(freeing) == answers(keeping), f"tick {at}"
                assert remembered(freeing) == remembered(keeping)
        assert answers(freeing) == answers(keeping)
        assert all(count > 0 for count in finished(freeing))


def test_a_tick_that_is_rejected_changes_no_generation() -> None:
    events = Events(SEED)
    flow, twin = (event_flow(views=["per_window", "sliding"]) for _ in range(2))
    for _ in range(30):
        rows = ps.DeltaBatch.weighted([*events.tick(), {"k": 0, "ts": None, "v": 1, "x": 0.1, "_weight": 1}])
        with pytest.raises(ps.DataError):
            too_much = {"k": 0, "ts": None, "v": 2**63 - 1, "x": 0.1, "_weight": 2}
            flow.tick("events", ps.DeltaBatch.weighted([*rows.to_pylist(), too_much]))
        for one in (flow, twin):
            one.tick("events", rows)
        saved = [one._graph.kernel.save() for one in (flow, twin)]
        assert [image.values for image in saved[0].values()] == [image.values for image in saved[1].values()]
    assert answers(flow, ["per_window", "sliding"]) == answers(twin, ["per_window", "sliding"])


def test_a_view_that_is_registered_later_has_all_groups() -> None:
    events = Events(SEED)
    flow = event_flow(views=["per_window"])
    whole = event_flow()
    for _ in range(30):
        rows = ps.DeltaBatch.weighted([*events.tick(), {"k": 0, "ts": None, "v": 1, "x": 0.1, "_weight": 1}])
        for one in (flow, whole):
            one.tick("events", rows)
    for name in VIEWS:
        add_view(flow, name)
    assert answers(flow) == answers(whole)
