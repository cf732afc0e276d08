"""Rows of joins, top-k and windows that nothing can reach any more are freed, and nobody can tell from the answers."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.circuit.in_process import InProcess
from penstock.circuit.sharded import ShardedKernel
from penstock.operators.asof import Asof
from penstock.operators.closing import Closing
from penstock.operators.open_rows import ArrangeOpen
from penstock.operators.session import SessionWindow
from seed import SEED
from twin.event_joins import FREEING, JOINS, KEEPING, add_join, joins_flow
from twin.events import BEGIN, Events, answers, nothing_closes
from twin.faults import broken_at
from twin.rows import small_state
from twin.scratch import tiny_budget


def operators(flow: ps.IncrementalFlow, kind: type) -> list[Any]:
    vertices = flow._graph.kernel._circuit.vertices.values()  # type: ignore[attr-defined]
    return [vertex.operator for vertex in vertices if isinstance(vertex.operator, kind)]


def free_all(flow: ps.IncrementalFlow) -> None:
    """Let every row go now that may go, as merges do it sooner or later."""
    for operator in operators(flow, ArrangeOpen):
        operator.arrangement._spine.compact()
        if operator.arrangement._counts is not None:
            operator.arrangement._counts._spine.compact()


def feed(flow: ps.IncrementalFlow, change: dict[str, list[dict[str, Any]]]) -> ps.StepSummary:
    """One tick over both sources."""
    for source, rows in change.items():
        flow.feed(source, ps.DeltaBatch.weighted(rows))
    return flow.step()


class Changes:
    """Ticks over two sources whose times stay near each other, but for one that pauses now and then."""

    def __init__(self, seed: int) -> None:
        self.events, self.others = (
            Events(seed, steps=(0, 20, 60, 200)),
            Events(seed + 1, steps=(0, 20, 60, 200)),
        )
        self._ticks = 0

    def tick(self) -> dict[str, list[dict[str, Any]]]:
        self._ticks += 1
        change = {"events": self.events.tick(), "others": self.others.tick()}
        if self._ticks % 7 == 0:
            del change["events" if self._ticks % 2 else "others"]
        return {source: rows for source, rows in change.items() if rows}


@pytest.mark.parametrize(
    ("number", "ticks"),
    [*((n, 15) for n in range(2)), *(pytest.param(n, 25, marks=pytest.mark.soak) for n in range(100))],
)
def test_a_flow_that_frees_rows_answers_as_one_that_does_not(number: int, ticks: int, tmp_path: Path) -> None:
    changes = Changes(SEED + number)
    retain: Any = ["open", "all", "used"][number % 3]
    # Half of the views; one of them that needs another has it before.
    names = [
        name for at, name in enumerate(JOINS) if at % 2 == number % 2 or name in ("near inner", "windows")
    ]
    with small_state():
        budget = tiny_budget(tmp_path / "scratch") if number % 2 else None
        freeing = joins_flow(budget, views=names, retain=retain)
        with nothing_closes():
            keeping = joins_flow(views=names)
        assert operators(freeing, ArrangeOpen)
        assert not operators(keeping, ArrangeOpen)
        assert not operators(keeping, Closing)
        for at in range(ticks):
            change = changes.tick()
            summaries = [feed(flow, change) for flow in (freeing, keeping)]
            assert summaries[0].late == summaries[1].late
            if at % 3 == 0:
                free_all(freeing)
            for name in names:
                steps = [summary.views[name] for summary in summaries]
                assert (steps[0].inserted, steps[0].retracted) == (steps[1].inserted, steps[1].retracted), (
                    name
                )
            if at % 10 == 9:
                freeing.checkpoint(tmp_path / "checkpoint")
                freeing = ps.IncrementalFlow.load(tmp_path / "checkpoint", clock=lambda: 0)
            if at % 5 == 4:
                expected = answers(keeping, names)
                for name, rows in answers(freeing, names).items():
                    assert rows == expected[name], f"{name}, tick {at}"


@pytest.mark.parametrize(
    ("number", "ticks"),
    [*((n, 10) for n in range(2)), *(pytest.param(n, 20, marks=pytest.mark.soak) for n in range(2))],
)
def test_shards_free_rows_and_answer_as_one_process(number: int, ticks: int) -> None:
    changes = Changes(SEED + number)
    retain: Any = ["open", "all"][number % 2]
    with small_state():
        in_shards = joins_flow(retain=retain, kernel=ShardedKernel(InProcess(3)))
        alone = joins_flow(retain=retain)
        for at in range(ticks):
            change = changes.tick()
            summaries = [feed(flow, change) for flow in (in_shards, alone)]
            assert summaries[0].late == summaries[1].late
            if at % 5 == 4:
                expected = answers(alone, JOINS)
                for name, rows in answers(in_shards, JOINS).items():
                    assert rows == expected[name], f"{name}, tick {at}"


def state_rows(flow: ps.IncrementalFlow) -> int:
    """The entries of all arrangements of open rows, with those of counts, and the groups that have not closed."""
    arranged = 0
    for operator in operators(flow, ArrangeOpen):
        arrangement = operator.arrangement
        arranged += arrangement.before().entries
        if arrangement._counts is not None:
            arranged += arrangement._counts._spine.before().entries
    grouped = [
        len(one.groups.contents()) for operator in operators(flow, Closing) for one in operator._groups._open
    ]
    sessions = [operator._rows.count for operator in operators(flow, SessionWindow)]
    nearest = [operator._left.count + operator._right.count for operator in operators(flow, Asof)]
    return arranged + sum(grouped) + sum(sessions) + sum(nearest)


BOUNDED = [
    *("near inner", "near full", "minute full", "minute anti", "minute near left", "apart anti"),
    *("without keys", "same", "top", "all ranked", "windows", "sessions of all", "rows of sessions"),
    *("asof", "asof forward", "asof forward near", "of asof forward"),
    *("asof nearest", "asof nearest near", "of asof nearest"),
]


@pytest.mark.parametrize(
    ("names", "minutes"),
    [(BOUNDED, 320), *(pytest.param([name], 4_000, marks=pytest.mark.soak) for name in BOUNDED)],
)
def test_the_state_of_views_does_not_grow_with_time(names: list[str], minutes: int) -> None:
    def rows_of(start: int, end: int) -> list[dict[str, Any]]:
        return [
            {"k": user, "ts": BEGIN + timedelta(minutes=minute), "v": minute, "x": 0.1, "_weight": 1}
            for minute in range(start, end)
            for user in range(2)
        ]

    with small_state():
        flow = joins_flow(views=names, retain="open")
        sizes = []
        for start in range(0, minutes, 4):
            feed(flow, dict.fromkeys(("events", "others"), rows_of(start, start + 4)))
            sizes.append(state_rows(flow))
        early, late = max(sizes[20:50]), max(sizes[-30:])
        assert 0 < early < 300 * len(names)
        assert late <= early * 1.3
        with nothing_closes():
            keeping = joins_flow(views=names)
        feed(keeping, dict.fromkeys(("events", "others"), rows_of(0, minutes)))
        assert answers(flow, names) == answers(keeping, names)


def test_a_view_that_is_registered_later_has_all_rows() -> None:
    changes = Changes(SEED)
    names = ["near inner", "near full", "minute anti", "top", "windows", "of windows"]
    with small_state():
        whole, flow = joins_flow(views=names), joins_flow(views=[])
        for at in range(30):
            change = changes.tick()
            for one in (whole, flow):
                feed(one, change)
            if at in (10, 20, 29):
                for name in names[: 6 if at == 29 else at // 5]:
                    add_join(flow, name)
        assert answers(flow, names) == answers(whole, names)


def test_a_tick_that_is_rejected_moves_nothing() -> None:
    changes = Changes(SEED)
    names = ["near inner", "near left", "minute full", "windows", "top"]
    with small_state():
        flow, twin = (joins_flow(views=names, retain="open") for _ in range(2))
        for _ in range(25):
            change = changes.tick()
            huge = {"k": 0, "ts": None, "v": 2**63 - 1, "x": 0.1, "_weight": 1}
            with pytest.raises(ps.DataError):
                # Twice the largest number in one window without a time.
                feed(flow, {**change, "events": [*change.get("events", []), huge, huge]})
            for one in (flow, twin):
                feed(one, change)
            assert state_rows(flow) == state_rows(twin)
        assert answers(flow, names) == answers(twin, names)


def test_the_rows_behind_those_that_are_shown_are_known() -> None:
    changes = Changes(SEED)
    names = ["near inner", "near left", "windows"]
    with small_state():
        flow = joins_flow(views=names)
        with nothing_closes():
            keeping = joins_flow(views=names)
        for _ in range(20):
            change = changes.tick()
            for one in (flow, keeping):
                feed(one, change)
        for name in names:
            for row in flow.snapshot(name).to_pylist()[::3]:
                whole = [one.why(name, row) for one in (flow, keeping)]
                assert sorted(map(str, whole[0]["events"].to_pylist())) == sorted(
                    map(str, whole[1]["events"].to_pylist())
                )


def test_explain_says_what_is_freed_and_what_is_not() -> None:
    flow = joins_flow()
    states = {name: next(line.state for line in flow.explain(name).operators if line.state) for name in JOINS}
    assert {state for name, state in states.items() if name in FREEING} == {
        "frees rows behind the watermark",
        "frees partitions behind the watermark",
        "frees groups behind the watermark",
        "frees groups of sessions behind the watermark",
        "frees sessions behind the watermark",
        "frees rows behind the watermark, but for the last right one of each key",
        "frees rows behind the watermark, but for left ones that no right one follows yet",
        "frees rows behind the watermark, but for the last right one of each key and left ones behind it",
    }
    assert states["pairs"].startswith("keeps its rows: no condition bounds")
    assert states["before"].startswith("frees rows of the right input behind the watermark")
    assert states["before left"].startswith("keeps its rows")
    assert states["behind"].startswith("frees rows of the left input behind the watermark")
    assert set(KEEPING) == {"pairs", "before", "before left", "behind"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("step", [8_009, pytest.param(4_001, marks=pytest.mark.soak)])
def test_a_fault_at_a_call_of_a_tick_loses_nothing(step: int) -> None:
    names = [
        "near left",
        "minute anti",
        "top",
        "sessions of all",
        "asof",
        "asof forward",
        "asof nearest near",
    ]
    random_changes = Changes(SEED)
    changes = [random_changes.tick() for _ in range(10)]
    clean, expected = joins_flow(views=names, retain="open"), []
    for change in changes:
        feed(clean, change)
        expected.append(answers(clean, names))
    for call in range(1 + SEED % step, 200_000, step):
        flow = joins_flow(views=names, retain="open")
        hit = False
        for at, change in enumerate(changes):
            ticks = flow._graph.state.ticks
            hit |= broken_at(call, partial(feed, flow, change))
            if flow._graph.state.ticks == ticks:
                flow._runner.pending.clear()
                feed(flow, change)
            assert answers(flow, names) == expected[at], f"call {call}, tick {at}"
        if not hit:
            break
    else:
        raise AssertionError("a tick makes more calls than that")
