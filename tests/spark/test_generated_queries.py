"""Generated queries under generated deltas: after every tick the snapshot is what Spark computes from all rows."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, note, settings

import penstock as ps
from golden import canonical, drive
from golden.case import Area, Case, Tick
from golden.generate import TABLES, queries, ticks
from golden.spark_answer import ask
from golden.spark_answer import settings as spark_settings

pytestmark = pytest.mark.soak  # minutes of planning on two cores

UNHURRIED = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)


@settings(UNHURRIED, max_examples=25)
@given(query=queries(), deltas=ticks())
@pytest.mark.timeout(600)
def test_generated_view_is_right_after_every_tick(
    session: ps.Session, query: str, deltas: tuple[Tick, ...]
) -> None:
    _check(session, query, deltas)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@settings(UNHURRIED, max_examples=1_500, derandomize=False, print_blob=True)
@given(query=queries(depth=4), deltas=ticks(count=6))
def test_many_generated_views(session: ps.Session, query: str, deltas: tuple[Tick, ...]) -> None:
    _check(session, query, deltas)


def _check(session: ps.Session, query: str, deltas: tuple[Tick, ...]) -> None:
    note(query)
    case = Case("generated", "view", query, deltas)
    area = Area("generated", TABLES, {}, (case,))
    with spark_settings(session.spark, {}):
        expected = ask(session.spark, area, case)
        flow = drive.open_flow(session, TABLES)
        flow.register_view("view", query)
        watched = drive.Watched(flow, "view")
        schemas = {name: area.schema(name) for name in TABLES}
        for number, answer in enumerate(expected.ticks):
            assert answer.error is None, f"a generated query must not fail: {answer.error}"
            if number:
                watched.check(drive.step(flow, deltas[number - 1], schemas))
            table = flow.snapshot("view")
            assert canonical.schema(table.schema) == expected.schema
            assert canonical.rows(table) == list(answer.rows), f"after tick {number}"
        watched.close()
