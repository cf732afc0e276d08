"""Views of the kernel under random ticks, each compared with Spark's answer after every tick."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import penstock as ps
from seed import SEED

from . import canonical, drive
from .case import Area, Case, Tick
from .spark_answer import ask_all, settings

MakeRow = Callable[[Random], tuple[Any, ...]]


def check(
    session: ps.Session, tables: Mapping[str, str], queries: Sequence[str], row: MakeRow, *, ticks: int = 5
) -> None:
    """Drive views over one table in one flow; every operator is of tier kernel, and every snapshot is Spark's answer."""
    (table,) = tables
    steps = _ticks(Random(SEED), table, row, ticks)
    cases = [Case("ticking", f"v{number}", text, steps) for number, text in enumerate(queries)]
    area = Area("ticking", tables, {}, tuple(cases))
    with settings(session.spark, area.conf):
        expected = ask_all(session.spark, area)
        flow = drive.open_flow(session, area.tables)
        for case in cases:
            tiers = drive.register(flow, case)[case.name]
            assert all(tier.endswith(": kernel") for tier in tiers), (case.sql, tiers)
        watched = {case.name: drive.Watched(flow, case.name) for case in cases}
        for number in range(ticks + 1):
            if number:
                summary = drive.step(flow, steps[number - 1], {table: area.schema(table)})
                for view in watched.values():
                    view.check(summary)
            for case in cases:
                rows = canonical.rows(flow.snapshot(case.name))
                wanted = list(expected[case.name].ticks[number].rows)
                assert rows == wanted, f"seed {SEED}, after tick {number}: {case.sql}"


def _ticks(chance: Random, table: str, row: MakeRow, count: int) -> tuple[Tick, ...]:
    """Inserts, and deletes of rows that are there; all rows go now and then."""
    held: list[tuple[Any, ...]] = []
    steps = []
    for _ in range(count):
        leaving = len(held) if chance.random() < 0.15 else min(len(held), chance.randint(0, 6))
        changes = [(-1, held.pop(chance.randrange(len(held)))) for _ in range(leaving)]
        for _ in range(chance.randint(0, 12)):
            fresh = row(chance)
            held.append(fresh)
            changes.append((1, fresh))
        steps.append({table: tuple(changes)})
    return tuple(steps)
