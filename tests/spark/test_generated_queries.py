"""Generated queries under generated deltas: after every tick the snapshot is what Spark computes from all rows."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings

import penstock as ps
from golden import canonical, drive
from golden.case import Area, Case
from golden.generate import Example, examples
from golden.generated_tables import ddl
from golden.spark_answer import ask
from golden.spark_answer import settings as spark_settings

UNHURRIED = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # shrinking asks Spark hundreds of questions
    report_multiple_bugs=False,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)


@settings(UNHURRIED, max_examples=25)
@given(example=examples())
@pytest.mark.timeout(600)
def test_generated_view_is_right_after_every_tick(session: ps.Session, example: Example) -> None:
    _check(session, example)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@settings(UNHURRIED, max_examples=1_500, derandomize=False, print_blob=True)
@given(example=examples(depth=4, count=6))
def test_many_generated_views(session: ps.Session, example: Example) -> None:
    _check(session, example)


# This rule makes Spark itself lose the ORDER BY of a limit below a correlated subquery.
SANE = {
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughLimitAndOffset"
}


def _check(session: ps.Session, example: Example) -> None:
    note(example.query)
    tables = ddl(example.tables)
    case = Case("generated", "view", example.query, example.ticks)
    area = Area("generated", tables, SANE, (case,))
    schemas = {name: area.schema(name) for name in tables}
    with spark_settings(session.spark, SANE):
        expected = ask(session.spark, area, case)
        flows = [_flow(session, tables, example.query, diff_based=diff_based) for diff_based in (False, True)]
        for number, answer in enumerate(expected.ticks):
            assert answer.error is None, f"a generated query must not fail: {answer.error}"
            changes = []
            for flow, watched in flows:
                if number:
                    changes.append(watched.check(drive.step(flow, example.ticks[number - 1], schemas)))
                table = flow.snapshot("view")
                assert canonical.schema(table.schema) == expected.schema
                assert canonical.rows(table) == list(answer.rows), f"after tick {number}"
            assert all(change == changes[0] for change in changes), f"tick {number} recomputed"
        for _, watched in flows:
            watched.close()


def _flow(
    session: ps.Session, tables: dict[str, str], query: str, *, diff_based: bool
) -> tuple[ps.IncrementalFlow, drive.Watched]:
    flow = drive.open_flow(session, tables)
    flow.register_view("view", query)
    if diff_based:
        flow.force_diff_based()
    return flow, drive.Watched(flow, "view")
