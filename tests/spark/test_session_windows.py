"""Session windows against Spark: a grid of gaps, keys, grouping sets, calls, filters and what is above, under random ticks."""

from __future__ import annotations

from random import Random

import pytest

import penstock as ps
from golden import canonical, drive, regression, session_queries
from golden.case import Area, Case
from golden.spark_answer import ask, settings
from seed import FRESH


def test_views_are_right_after_every_tick(session: ps.Session) -> None:
    _check(session, Random(FRESH), queries=16, ticks=5)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("number", range(20))
def test_many_views_are_right_after_every_tick(session: ps.Session, number: int) -> None:
    _check(session, Random(f"{FRESH} {number}"), queries=60, ticks=10)


def _check(session: ps.Session, chance: Random, *, queries: int, ticks: int) -> None:
    """Drive views in one flow, and the same views in one that recomputes them; after every tick both show what Spark answers."""
    steps = session_queries.ticks(chance, ticks)
    texts = dict.fromkeys(session_queries.some(chance, queries))
    cases = [Case("sessions", f"v{number}", text, steps) for number, text in enumerate(texts)]
    area = Area("sessions", session_queries.TABLES, {}, tuple(cases))
    with settings(session.spark, area.conf):
        expected = {case.name: ask(session.spark, area, case) for case in cases}
        flows = [_flow(session, area, diff_based=diff_based) for diff_based in (False, True)]
        schemas = {name: area.schema(name) for name in area.tables}
        for number in range(ticks + 1):
            changes = []
            for flow, watched in flows:
                if number:
                    summary = drive.step(flow, steps[number - 1], schemas)
                    changes.append({name: view.check(summary) for name, view in watched.items()})
                for case in cases:
                    _compare(flow, area, case, list(expected[case.name].ticks[number].rows), number)
            assert all(change == changes[0] for change in changes), f"tick {number} recomputed"


def _compare(
    flow: ps.IncrementalFlow, area: Area, case: Case, expected: list[canonical.Canonical], number: int
) -> None:
    rows = canonical.rows(flow.snapshot(case.name))
    if rows != expected:
        regression.keep(regression.area(dict(area.tables), case.sql, case.ticks[:number]))
    assert rows == expected, f"seed {FRESH}, after tick {number}: {case.sql}"


def _flow(
    session: ps.Session, area: Area, *, diff_based: bool
) -> tuple[ps.IncrementalFlow, dict[str, drive.Watched]]:
    flow = drive.open_flow(session, area.tables)
    for case in area.cases:
        drive.register(flow, case)
    if diff_based:
        flow.force_diff_based()
    return flow, {case.name: drive.Watched(flow, case.name) for case in area.cases}
