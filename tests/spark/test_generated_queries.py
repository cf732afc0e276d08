"""Generated queries under generated deltas: after every tick the snapshot is what Spark computes from all rows.

Every run generates other queries; the head of the run and a failure tell the seed. A failure writes its smallest form to
`tests/golden/regressions/failed.json`; the cases in that folder are run in every run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings

import penstock as ps
from golden import canonical, drive, regression
from golden.case import Area
from golden.generate import Example, examples
from golden.generated_tables import ddl
from golden.recording import Answers
from golden.spark_answer import ask
from golden.spark_answer import settings as spark_settings
from seed import FRESH

UNHURRIED = settings(
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)


@pytest.mark.parametrize("path", regression.regressions(), ids=lambda path: path.stem)
def test_case_that_failed_once_is_right(session: ps.Session, path: Path) -> None:
    _check(session, regression.load(path))


@seed(FRESH)
@settings(UNHURRIED, max_examples=20)
@given(example=examples())
@pytest.mark.timeout(1200)  # a failure is made smaller for five minutes
def test_generated_view_is_right_after_every_tick(session: ps.Session, example: Example) -> None:
    _check_generated(session, example)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@seed(FRESH)
@settings(UNHURRIED, max_examples=1_500)
@given(example=examples(depth=4, count=6))
def test_many_generated_views(session: ps.Session, example: Example) -> None:
    _check_generated(session, example)


def _check_generated(session: ps.Session, example: Example) -> None:
    generated = regression.area(ddl(example.tables), example.query, example.ticks)
    note(f"seed {FRESH}, the case is in {regression.FAILED}:\n{regression.text(generated)}")
    try:
        _check(session, generated)
    except Exception:
        regression.keep(generated)
        raise


def _check(session: ps.Session, generated: Area) -> None:
    """Drive a view as it is and one that is recomputed, and ask Spark after every tick."""
    (case,) = generated.cases
    schemas = {name: generated.schema(name) for name in generated.tables}
    with spark_settings(session.spark, generated.conf):
        expected = ask(session.spark, generated, case)
        flows = [_flow(session, generated, diff_based=diff_based) for diff_based in (False, True)]
        for number, answer in enumerate(expected.ticks):
            assert answer.error is None, f"a generated query must not fail: {answer.error}"
            changes = []
            for flow, watched in flows:
                if number:
                    changes.append(watched.check(drive.step(flow, case.ticks[number - 1], schemas)))
                _compare(flow, expected, number)
            assert all(change == changes[0] for change in changes), f"tick {number} recomputed"
        for _, watched in flows:
            watched.close()


def _compare(flow: ps.IncrementalFlow, expected: Answers, number: int) -> None:
    table = flow.snapshot("view")
    assert canonical.schema(table.schema) == expected.schema
    assert canonical.rows(table) == list(expected.ticks[number].rows), f"after tick {number}"


def _flow(
    session: ps.Session, generated: Area, *, diff_based: bool
) -> tuple[ps.IncrementalFlow, drive.Watched]:
    flow = drive.open_flow(session, generated.tables)
    drive.register(flow, generated.cases[0])
    if diff_based:
        flow.force_diff_based()
    return flow, drive.Watched(flow, "view")
