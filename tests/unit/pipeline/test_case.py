"""How a test of a pipeline says what is different."""

from __future__ import annotations

from penstock.pipeline.case import Difference


def test_rows_of_one_key_are_shown_together() -> None:
    difference = Difference("totals", ({"k": 1, "n": 2},), ({"k": 1, "n": 3},), ("k",))
    assert difference.lines() == ["~ k=1: n: expected 2, got 3"]


def test_rows_without_a_partner_are_missing_or_too_many() -> None:
    difference = Difference("totals", ({"k": 1, "n": None},), ({"k": 2, "n": "é"},), ("k",))
    assert difference.lines() == ["- {k: 1, n: null}", '+ {k: 2, n: "é"}']


def test_without_a_key_nothing_is_paired() -> None:
    difference = Difference("totals", ({"n": 2},), ({"n": 3},))
    assert difference.lines() == ["- {n: 2}", "+ {n: 3}"]
