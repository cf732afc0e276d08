"""Every function of Spark's registry in a view answers as Spark's batch query does, or is refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from sweep import probe
from sweep.call import load
from sweep.outcome import Outcome
from sweep.page import page, undecided
from sweep.run import FULL, QUICK, run

pytestmark = pytest.mark.timeout(3600)  # all calls are compared in the fixture of the first test
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "functions.md"


@pytest.fixture(scope="module")
def outcomes(session: ps.Session) -> list[Outcome]:
    return list(run(session, QUICK))


def test_the_calls_are_those_of_the_registry(session: ps.Session) -> None:
    known = set(load(most=1, most_examples=1))
    assert known == set(probe.registry(session.spark)), "run tools/sweep_functions.py --probe"


def test_every_answer_is_that_of_spark(session: ps.Session, outcomes: list[Outcome]) -> None:
    wrong = [str(outcome) for outcome in outcomes if outcome.verdict == "WRONG"]
    assert wrong == []
    assert list(undecided(outcomes, probe.registry(session.spark))) == []
    unreasoned = [str(outcome) for outcome in outcomes if outcome.verdict == "refused" and not outcome.reason]
    assert unreasoned == []


def test_the_page_is_current(outcomes: list[Outcome]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(outcomes), "run tools/sweep_functions.py"


@pytest.mark.soak
def test_every_answer_to_more_calls_is_that_of_spark(session: ps.Session) -> None:
    wrong = [str(outcome) for outcome in run(session, FULL) if outcome.verdict == "WRONG"]
    assert wrong == []
