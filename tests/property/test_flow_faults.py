"""Faults at every call of a tick of a flow: nothing has happened, or all of it has.

A watch has the change or is closed with the error.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest

import penstock as ps
from penstock.engine.registration import Prepared, install
from penstock.plan import node as plan
from penstock.plan.node import Field
from seed import SEED
from twin.faults import Fault, broken_at
from twin.rigs import image_bits

ROW = (Field("k", "bigint"), Field("v", "bigint"), Field("ts", "timestamp"))
ROWS = plan.Scan(ROW[:2], "rows", (0, 1))
SUM = plan.AggregateCall("Sum", (1,), "bigint", options=(("evalMode", "ANSI"),))
COUNT = plan.AggregateCall("Count", (), "bigint")
TOTALS = (Field("k", "bigint"), Field("total", "bigint"))
VIEWS = {
    "totals": plan.Aggregate(TOTALS, ROWS, (0,), (SUM,)),
    "keys": plan.Aggregate((Field("n", "bigint"),), plan.Scan(TOTALS, "totals", (0, 1)), (), (COUNT,)),
}


def row(key: int, value: int, *, minute: int = 30, weight: int = 1) -> dict[str, Any]:
    at = datetime(2024, 3, 1, 12, tzinfo=UTC) + timedelta(minutes=minute)
    return {"k": key, "v": value, "ts": at, "_weight": weight}


# An insert, a retraction, one of a row that is not there, and a row that comes too late.
CHANGE = ps.DeltaBatch.weighted(
    [row(1, 100), row(0, 0, weight=-1), row(9, 77, weight=-1), row(2, 2, minute=0), row(5, 5, minute=40)]
)
INSERTS = ps.DeltaBatch.weighted([row(1, 1), row(7, 7, minute=0)])

REFUSED = ps.DeltaBatch.weighted([row(1, 2**63 - 1, minute=31)])  # the total overflows
SPREAD = 11  # of the faults in a running flow
# A generator is closed while it fails.
UNRAISABLE = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


class Subject:
    """A flow with views, look-ups and watches, and some rows."""

    def __init__(self) -> None:
        self.flow = ps.IncrementalFlow(clock=lambda: 7)
        self.flow.register_source(
            "rows",
            "k BIGINT, v BIGINT, ts TIMESTAMP",
            dedup=True,
            on_missing_delete="quarantine",
            lateness=("ts", "10 minutes"),
        )
        for name, root in VIEWS.items():
            install(self.flow._graph, Prepared(plan.View(name, "", root), no_fragment), 0)
        first = [row(number % 3, number) for number in range(6)]
        self.flow.tick("rows", ps.DeltaBatch.weighted(first), ordinal=1)
        self.contents()
        self.watches = {name: self.flow.watch_output(name, snapshot=True) for name in VIEWS}
        self._watched: dict[str, Counter[str]] = {name: Counter() for name in VIEWS}
        self.follow()

    def contents(self) -> Any:
        """All that users see."""
        names = (*VIEWS, "rows")
        rows = {name: sorted(map(str, self.flow.snapshot(name).to_pylist())) for name in names}
        state = json.dumps(self.flow._graph.state.to_dict())
        return rows, state, self.flow.lookup("totals", k=1).to_pylist(), self.flow.waiting_rows()

    def state(self) -> Any:
        """All that is kept."""
        kernel = self.flow._graph.kernel
        return self.contents(), {key: image_bits(image) for key, image in kernel.save().items()}

    def follow(self) -> None:
        """Read the watches that have not failed."""
        for name, watch in self.watches.items():
            with contextlib.suppress(Fault):
                while (change := watch.recv(timeout=0)) is not None:
                    for changed in change.to_pylist():
                        weight = changed.pop("_weight")
                        self._watched[name][str(changed)] += weight

    def watched(self) -> dict[str, list[str]]:
        """The rows of all changes that the watches gave, without those that have failed."""
        self.follow()
        rows = {name: sorted(rows.elements()) for name, rows in self._watched.items()}
        return {name: rows[name] for name, watch in self.watches.items() if not watch.closed}


def tick(flow: ps.IncrementalFlow) -> None:
    flow.tick_epoch("rows", CHANGE, query="q", epoch=0)


@UNRAISABLE
def test_a_fault_at_every_call_of_a_tick() -> None:
    subject = Subject()
    before = subject.state()
    tick(subject.flow)
    after = subject.contents()
    undone = done = 0
    subject = Subject()
    for call in count(1):
        broken = broken_at(call, partial(tick, subject.flow))
        contents = subject.contents()
        assert contents in (before[0], after), f"call {call}"
        for name, rows in subject.watched().items():
            assert rows == contents[0][name], f"call {call}"
        if contents == before[0]:
            undone += 1
            if undone % 16 == 0:
                assert subject.state() == before, f"call {call}, or one of the 16 faults before"
            assert not any(watch.closed for watch in subject.watches.values()), f"call {call}"
            continue
        done += 1
        if not broken:
            break
        tick(subject.flow)
        assert subject.contents() == after, f"call {call}, and a replay"
        subject = Subject()
    assert undone > 1_000
    assert done > 100


def running() -> Subject:
    """A flow that steps in the background, with a batch that goes in and one that is refused."""
    subject = Subject()
    subject.flow.run(every="1 hour")
    subject.flow.feed("rows", INSERTS, ordinal=2)
    subject.flow.feed("rows", REFUSED, ordinal=3)
    return subject


def outcome(subject: Subject) -> Any:
    """What became of all that was fed, however many ticks it took."""
    subject.flow.stop()
    rows, _, found, waiting = subject.contents()
    state = subject.flow._graph.state.to_dict()["sources"]
    return rows, found, waiting, state, subject.watched()


def break_running_steps(calls: Iterable[int]) -> None:
    """Let a step of a running flow fail at each of these calls, step again, and look at what became of the rows."""
    subject = running()
    subject.flow.step()
    expected = outcome(subject)
    for call in calls:
        subject = running()
        broken = broken_at(call, subject.flow.step)
        if subject.flow.waiting_rows():
            subject.flow.step()
        *result, watched = outcome(subject)
        assert result == list(expected[:-1]), f"call {call}"
        assert watched.items() <= expected[-1].items(), f"call {call}"
        if not broken:
            return


@UNRAISABLE
def test_a_fault_in_a_step_of_a_running_flow_loses_nothing_and_repeats_nothing() -> None:
    break_running_steps(count(1 + SEED % SPREAD, SPREAD))


@pytest.mark.soak
@UNRAISABLE
def test_a_fault_at_every_call_of_a_step_of_a_running_flow() -> None:
    break_running_steps(count(1))
