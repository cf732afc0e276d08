"""Every golden case through a flow: after each tick the answer is the one that was recorded from Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

import penstock as ps
from golden import canonical, drive
from golden.case import Area, Case, area_names, load
from golden.codes import CODES
from golden.recording import Answer, Recording, recorded
from golden.spark_answer import settings

AREAS = {name: load(name) for name in area_names()}
RECORDED = {name: recorded(name) for name in AREAS}
CASES = [case for area in AREAS.values() for case in area.cases]
SMOKE = {"joins-full_residual", "group_by-sum_overflow_rejects_the_tick", "windows-top_two_per_group"}
# A tick that one view refuses is refused for all views of its flow.
ALONE = SMOKE | {
    case.id for case in CASES if any(tick.error for tick in RECORDED[case.area][case.name].answers.ticks)
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.id, marks=[pytest.mark.smoke] if case.id in SMOKE else []) for case in CASES],
)
def test_flow_gives_the_answer_of_spark_after_every_tick(
    session: ps.Session, together: Together, case: Case
) -> None:
    area, expected = AREAS[case.area], RECORDED[case.area][case.name]
    if case.id not in ALONE:
        together.check(case)
        return
    with settings(session.spark, area.conf):
        _play(session, area, case, expected)


def _every_ninth(first: int) -> list[Any]:
    """Every ninth case, half of them in the soak runs only."""
    return [
        pytest.param(case, id=case.id, marks=[pytest.mark.soak] if number % 2 else [])
        for number, case in enumerate(CASES[first::9])
    ]


@pytest.mark.parametrize("case", _every_ninth(0))
def test_recomputing_every_view_gives_the_same_deltas(session: ps.Session, case: Case) -> None:
    area, expected = AREAS[case.area], RECORDED[case.area][case.name]
    with settings(session.spark, area.conf):
        assert _play(session, area, case, expected) == _play(session, area, case, expected, diff_based=True)


@pytest.mark.parametrize("case", _every_ninth(4))
def test_view_registered_on_a_flow_with_rows_is_filled(session: ps.Session, case: Case) -> None:
    area, expected = AREAS[case.area], RECORDED[case.area][case.name]
    schemas = {table: area.schema(table) for table in area.tables}
    with settings(session.spark, area.conf):
        flow = drive.open_flow(session, area.tables)
        middle = next(
            (number for number, tick in enumerate(expected.answers.ticks) if tick.error),
            (len(case.ticks) + 1) // 2,
        )
        ticks = list(enumerate(case.ticks, start=1))
        for number, tick in ticks:
            if number == middle:
                _register(flow, case, expected)
                if number > 1:
                    _compare(flow, case, expected, number - 1)
            if expected.answers.ticks[number].error is None:
                drive.step(flow, tick, schemas)
                if number >= middle:
                    _compare(flow, case, expected, number)


@dataclass(slots=True)
class Together:
    """All views of an area in one flow, played once: they share sources, arrangements and ticks, and leave each other alone."""

    session: ps.Session
    wrong_by_area: dict[str, dict[str, Exception]] = field(default_factory=dict)

    def check(self, case: Case) -> None:
        """Raise what was wrong with one case."""
        if case.area not in self.wrong_by_area:
            area = AREAS[case.area]
            with settings(self.session.spark, area.conf):
                self.wrong_by_area[case.area] = self._play(area)
        if case.name in self.wrong_by_area[case.area]:
            raise self.wrong_by_area[case.area][case.name]

    def _play(self, area: Area) -> dict[str, Exception]:
        flow = drive.open_flow(self.session, area.tables)
        schemas = {table: area.schema(table) for table in area.tables}
        wrong: dict[str, Exception] = {}
        watched: dict[str, drive.Watched] = {}
        cases = {case.name: case for case in area.cases if case.id not in ALONE}
        assert len({id(case.ticks) for case in cases.values()}) <= 1, (
            f"{area.name}: cases with ticks of their own"
        )
        for name, case in cases.items():
            try:
                _register(flow, case, RECORDED[area.name][name])
                watched[name] = drive.Watched(flow, name)
                _compare(flow, case, RECORDED[area.name][name], 0)
            except (AssertionError, ps.PenstockError) as error:
                wrong[name] = error
        for number, tick in enumerate(next(iter(cases.values())).ticks if cases else (), start=1):
            summary = drive.step(flow, tick, schemas)
            for name in watched.keys() - wrong.keys():
                try:
                    watched[name].check(summary)
                    _compare(flow, cases[name], RECORDED[area.name][name], number)
                except AssertionError as error:
                    wrong[name] = error
        return wrong


@pytest.fixture(scope="module")
def together(session: ps.Session) -> Together:
    """The areas that were played so far."""
    return Together(session)


def _play(
    session: ps.Session, area: Area, case: Case, expected: Recording, *, diff_based: bool = False
) -> list[Counter[str]]:
    """Run a case from empty tables to its last tick; return the changes of its view."""
    flow = drive.open_flow(session, area.tables)
    schemas = {table: area.schema(table) for table in area.tables}
    _register(flow, case, expected)
    if diff_based:
        flow.force_diff_based()
    watched = drive.Watched(flow, case.name)
    _compare(flow, case, expected, 0)
    changes = []
    for number, tick in enumerate(case.ticks, start=1):
        error = expected.answers.ticks[number].error
        if error is not None:
            for _ in range(2):  # a tick that was refused can be fed again
                with pytest.raises(ps.DataError) as caught:
                    drive.step(flow, tick, schemas)
                assert caught.value.code == CODES[error]
                assert (caught.value.where or "").startswith(("source '", f"view '{case.name}', "))
            changes.append(watched.check(flow.step()))
            assert not changes[-1], f"{case.id}: a rejected tick changed the view"
        else:
            changes.append(watched.check(drive.step(flow, tick, schemas)))
        _compare(flow, case, expected, number)
    watched.close()
    return changes


def _register(flow: ps.IncrementalFlow, case: Case, expected: Recording) -> None:
    tiers = drive.register(flow, case)
    changed = [
        f"view '{name}' has {', '.join(tiers[name])}; recorded: {', '.join(expected.tiers.get(name, ()))}"
        for name in tiers
        if tiers[name] != expected.tiers.get(name)
    ]
    assert not changed, (
        f"{case.id} runs in other tiers: {changed}. On purpose? Then `make tiers` records them"
    )
    assert tiers.keys() == expected.tiers.keys()


def _compare(flow: ps.IncrementalFlow, case: Case, expected: Recording, number: int) -> None:
    table = flow.snapshot(case.name)
    schema = expected.answers.schema
    assert canonical.schema(table.schema) == schema
    answer = _last(expected.answers.ticks, number)
    loose = tuple(index for index, (name, _) in enumerate(schema) if name in case.tolerance)
    got = canonical.through_json(canonical.rows(table, ordered=case.order))
    assert canonical.close(got, list(answer.rows), loose), (
        f"{case.id} after tick {number}:\n  {case.sql}\n  flow:  {got}\n  Spark: {list(answer.rows)}"
    )


def _last(answers: tuple[Answer, ...], number: int) -> Answer:
    """The answer after a tick: a tick that failed leaves the one before."""
    return next(tick for tick in reversed(answers[: number + 1]) if tick.error is None)
