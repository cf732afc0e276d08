"""How a test of a pipeline says what is different."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import DataError
from penstock.pipeline import case
from penstock.pipeline.case import Difference
from pipeline_text import check_text


def test_rows_of_one_key_are_shown_together() -> None:
    difference = Difference("totals", ({"k": 1, "n": 2},), ({"k": 1, "n": 3},), ("k",))
    assert difference.lines() == ["~ k=1: n: expected 2, got 3"]


def test_rows_without_a_partner_are_missing_or_too_many() -> None:
    difference = Difference("totals", ({"k": 1, "n": None},), ({"k": 2, "n": "é"},), ("k",))
    assert difference.lines() == ["- {k: 1, n: null}", '+ {k: 2, n: "é"}']


def test_without_a_key_nothing_is_paired() -> None:
    difference = Difference("totals", ({"n": 2},), ({"n": 3},))
    assert difference.lines() == ["- {n: 2}", "+ {n: 3}"]


def test_an_error_of_a_test_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise DataError("the value 'hunter2' is no number", hint="hunter2 is text")

    monkeypatch.setattr(case, "_run", fail)
    text = "name: ${S}\nsources: {a: {type: rate}}\nsinks: {o: {type: print, from: a}}\ntests: [{name: t, given: {}, expect: {a: []}}]"
    spec = check_text(text, environ={"S": "hunter2"}).spec
    [outcome] = case.run_tests(None, spec)  # type: ignore[arg-type]
    assert str(outcome.error) == "the value '***' is no number\n  hint: *** is text"
