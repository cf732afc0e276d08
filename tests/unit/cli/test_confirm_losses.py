"""Rows that a changed pipeline would lose: a terminal is asked, everybody else is refused, `--yes` goes on."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.pipeline import confirm_losses
from penstock.errors import StateError
from penstock.pipeline import changes
from penstock.pipeline.changes import NodeChange

PLAN: Any = SimpleNamespace(is_lasting=True, spec=SimpleNamespace(name="shop", path="shop.yaml"), groups=())
SESSION: Any = SimpleNamespace(queries=SimpleNamespace(existing_backend=lambda: None))
LOST = NodeChange("orders", "rows", "changed", "emptied", "its key was (id) and is none", loses_rows=True)


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> list[NodeChange]:
    """What has changed."""
    found = [NodeChange("totals", "view", "changed", "rebuilt", "its query has changed"), LOST]
    monkeypatch.setattr(changes, "changes", lambda *_: found)
    return found


def _answer(monkeypatch: pytest.MonkeyPatch, answer: bool) -> list[str]:
    asked: list[str] = []

    def confirm(text: str, *, err: bool) -> bool:
        assert err, "stdout has the rows"
        asked.append(text)
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", confirm)
    return asked


def test_who_cannot_be_asked_is_refused() -> None:
    with pytest.raises(StateError, match=r"shop.*orders .its key was .id. and is none") as caught:
        confirm_losses(SESSION, PLAN, yes=False)
    assert (caught.value.code, caught.value.where) == ("PIPELINE_STATE_LOSS", "shop.yaml")
    assert "--yes" in (caught.value.hint or "")


def test_yes_goes_on() -> None:
    confirm_losses(SESSION, PLAN, yes=True)


def test_what_loses_nothing_goes_on(found: list[NodeChange]) -> None:
    found.remove(LOST)
    confirm_losses(SESSION, PLAN, yes=False)


@pytest.mark.parametrize("answer", [True, False])
def test_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    asked = _answer(monkeypatch, answer)
    if answer:
        confirm_losses(SESSION, PLAN, yes=False)
    else:
        with pytest.raises(StateError, match="rows would be lost"):
            confirm_losses(SESSION, PLAN, yes=False)
    [question] = asked
    assert "orders (its key was (id) and is none)" in question
