"""Every function of Spark's registry in a view answers as Spark's batch query does, or is refused with a reason."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

import penstock as ps
from seed import SEED
from sweep import probe
from sweep.call import load
from sweep.outcome import Outcome
from sweep.page import line, page, undecided
from sweep.run import FULL, QUICK, run

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "functions.md"
# All functions take a quarter of an hour: they are compared by `make soak` and `make functions`.
SAMPLE = 25


def _text() -> str:
    return PAGE.read_text(encoding="utf-8")


def _require_right(outcomes: list[Outcome]) -> None:
    assert [str(outcome) for outcome in outcomes if outcome.verdict == "WRONG"] == []
    assert [str(one) for one in outcomes if one.verdict == "refused" and not one.reason] == []


def test_the_calls_are_those_of_the_registry(session: ps.Session) -> None:
    known = set(load(most=1, most_examples=1))
    assert known == set(probe.registry(session.spark)), "run tools/sweep_functions.py --probe"


def test_every_function_of_the_registry_is_right_or_refused_with_a_reason(session: ps.Session) -> None:
    answers = dict(re.findall(r"^\| `(.+?)` \| .+ \| (.+) \|$", _text(), re.MULTILINE))
    shown = {name.replace("|", "\\|") for name in probe.registry(session.spark)}
    assert set(answers) == shown, "run tools/sweep_functions.py"
    neither = re.compile(r"(right|by order|refused|raises)\b")
    assert {name: answer for name, answer in answers.items() if not neither.match(answer)} == {}


@pytest.mark.timeout(900)  # hundreds of queries, which a busy machine takes its time for
def test_some_functions_answer_as_spark_and_as_the_page_says(session: ps.Session) -> None:
    names = Random(SEED).sample(sorted(probe.registry(session.spark)), SAMPLE)
    outcomes = list(run(session, QUICK, names))
    _require_right(outcomes)
    assert list(undecided(outcomes, names)) == []
    lines = [line(name, [one for one in outcomes if one.call.function == name]) for name in names]
    assert [text for text in lines if text not in _text().splitlines()] == [], "run tools/sweep_functions.py"


@pytest.mark.soak
def test_every_answer_is_that_of_spark_and_the_page_is_current(session: ps.Session) -> None:
    outcomes = list(run(session, QUICK))
    _require_right(outcomes)
    assert list(undecided(outcomes, probe.registry(session.spark))) == []
    assert _text() == page(outcomes), "run tools/sweep_functions.py"


@pytest.mark.soak
def test_every_answer_to_more_calls_is_that_of_spark(session: ps.Session) -> None:
    _require_right(list(run(session, FULL)))
