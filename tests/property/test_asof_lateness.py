"""ASOF joins of sources with a lateness: the answers of a flow without one over the rows that are in time, in a bounded state."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.operators import asof as asof_operator
from penstock.operators.asof import Asof
from seed import SEED
from twin.rows import small_state

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DELAYS = {"trades": timedelta(minutes=2), "quotes": timedelta(minutes=5)}
DIRECTIONS = ("backward", "forward", "nearest")
SHAPES: dict[str, dict[str, Any]] = {
    f"{direction} {tolerance} {how} {by}": {
        "direction": direction,
        "tolerance": tolerance,
        "how": how,
        "by": by,
    }
    for direction, (tolerance, how, by) in product(
        DIRECTIONS,
        [(None, "left", "k"), (None, "inner", ()), ("3 minutes", "left", "k"), ("0 seconds", "inner", "k")],
    )
}


def asof_flow(*, shapes: Any = SHAPES, late: bool = True, **options: Any) -> ps.IncrementalFlow:
    """Trades and quotes, which may be late, and their joins."""
    flow = ps.IncrementalFlow(clock=lambda: 0, **options)
    for name, delay in DELAYS.items():
        lateness = {"lateness": {"column": "ts", "delay": delay}, "retain": "open"} if late else {}
        flow.register_source(name, "k BIGINT, ts TIMESTAMP, v BIGINT", **lateness)
    for name in shapes:
        flow.register_asof_view(
            name,
            left="trades",
            right="quotes",
            left_time="ts",
            right_time="ts",
            columns={"quoted": "ts", "quote": "v"},
            **SHAPES[name],
        )
    return flow


def feed(flow: ps.IncrementalFlow, change: dict[str, list[dict[str, Any]]]) -> ps.StepSummary:
    for source, rows in change.items():
        flow.feed(source, ps.DeltaBatch.weighted(rows))
    return flow.step()


def answers(flow: ps.IncrementalFlow, shapes: Any = SHAPES) -> dict[str, Counter[str]]:
    return {name: Counter(map(str, flow.snapshot(name).to_pylist())) for name in shapes}


def joins(flow: ps.IncrementalFlow) -> list[Asof]:
    vertices = flow._graph.kernel._circuit.vertices.values()  # type: ignore[attr-defined]
    return [vertex.operator for vertex in vertices if isinstance(vertex.operator, Asof)]


class Schedule:
    """Changes of both sources, each tick of them split by what is in time."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._now = BEGIN
        self._latest: dict[str, datetime] = {}
        self._present: dict[str, list[dict[str, Any]]] = {name: [] for name in DELAYS}

    def tick(self) -> tuple[dict[str, list[dict[str, Any]]], dict[str, list[dict[str, Any]]]]:
        """All rows of a tick, and those that are in time."""
        self._now += timedelta(seconds=self._chance.choice([0, 30, 60, 120, 600]))
        sources = [name for name in DELAYS if self._chance.random() < 0.85]
        change = {name: rows for name in sources if (rows := self._rows(name))}
        in_time = {
            name: [row for row in rows if self._is_in_time(name, row)] for name, rows in change.items()
        }
        for name, rows in in_time.items():
            for row in rows:
                if row["ts"] is not None:
                    self._latest[name] = max(row["ts"], self._latest.get(name, row["ts"]))
                if row["_weight"] > 0:
                    self._present[name].append(row)
                else:
                    self._present[name].remove({**row, "_weight": 1})
        return change, {name: rows for name, rows in in_time.items() if rows}

    def _is_in_time(self, name: str, row: dict[str, Any]) -> bool:
        latest = self._latest.get(name)
        return row["ts"] is None or latest is None or row["ts"] >= latest - DELAYS[name]

    def _rows(self, name: str) -> list[dict[str, Any]]:
        chance = self._chance
        rows = [
            {
                "k": chance.choice([None, 0, 0, 0, 1, 1, 2]),
                "ts": None
                if chance.random() < 0.05
                else self._now - timedelta(seconds=30 * chance.randrange(14)),
                "v": chance.randrange(3),
                "_weight": 1,
            }
            for _ in range(chance.randrange(6))
        ]
        present = self._present[name]
        taken = chance.sample(present, min(len(present), chance.randrange(3)))
        return [*rows, *({**row, "_weight": -1} for row in taken)]


@pytest.mark.parametrize(
    "number", [*range(2), *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 100))]
)
def test_answers_are_those_of_the_rows_that_are_in_time(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if number % 2:
        # Rows go a few at a time, so that some are there long behind the bound.
        monkeypatch.setattr(asof_operator, "_FORGOTTEN_AT_LEAST", 1)
        monkeypatch.setattr(asof_operator, "_FORGOTTEN_PER_ROW", 1)
    schedule = Schedule(SEED + number)
    late = 0
    with small_state():
        flow, plain = asof_flow(), asof_flow(late=False)
        for at in range(40):
            change, in_time = schedule.tick()
            summary, expected = feed(flow, change), feed(plain, in_time)
            too_late = sum(map(len, change.values())) - sum(map(len, in_time.values()))
            assert summary.late == too_late
            late += too_late
            for name in SHAPES:
                steps = [one.views[name] for one in (summary, expected)]
                assert (steps[0].inserted, steps[0].retracted) == (steps[1].inserted, steps[1].retracted), (
                    f"{name}, tick {at}"
                )
            if at % 15 == 14:
                flow.checkpoint(tmp_path / "checkpoint")
                flow = ps.IncrementalFlow.load(tmp_path / "checkpoint", clock=lambda: 0)
            if at % 8 == 7:
                assert answers(flow) == answers(plain), f"tick {at}"
        assert late
        kept = [sum(join._left.count + join._right.count for join in joins(one)) for one in (flow, plain)]
        assert kept[0] < kept[1]


def quoted(start: int, end: int, keys: Any) -> list[dict[str, Any]]:
    return [
        {"k": key, "ts": BEGIN + timedelta(minutes=minute), "v": minute, "_weight": 1}
        for minute in range(start, end)
        for key in keys(minute)
    ]


def sizes(flow: ps.IncrementalFlow) -> list[tuple[int, int]]:
    """Of each join its rows, and its groups."""
    return [
        (
            join._left.count + join._right.count,
            0 if join._groups is None else join._groups.size,
        )
        for join in joins(flow)
    ]


def grown(shapes: list[str], keys: Any) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The largest sizes of joins in an early and in a late part of many ticks."""
    history = []
    with small_state():
        flow = asof_flow(shapes=shapes)
        for start in range(0, 600, 4):
            feed(flow, {name: quoted(start, start + 4, keys) for name in DELAYS})
            history.append(sizes(flow))
    return tuple(  # type: ignore[return-value]
        [tuple(map(max, zip(*(tick[at] for tick in part), strict=True))) for at in range(len(shapes))]
        for part in (history[20:50], history[-30:])
    )


def test_the_state_does_not_grow_with_time() -> None:
    early, late = grown(list(SHAPES), lambda _: (0, 1))
    assert all(now <= then for now, then in zip(late, early, strict=True)), (early, late)
    assert all(0 < rows < 100 for rows, _ in late)


def test_keys_that_do_not_come_back_leave() -> None:
    # Backward and nearest, without a tolerance, the last right row of each key stays: one to come may have it.
    gone = [name for name in SHAPES if name.startswith("forward") or "None" not in name]
    early, late = grown(gone, lambda minute: (minute // 3,))
    assert all(now <= then for now, then in zip(late, early, strict=True)), (early, late)
    assert all(0 < rows < 100 for rows, _ in late)
