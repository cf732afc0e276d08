"""What waits for a sink: no tick is lost unseen, and no more is kept than is needed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.delta import Delta
from penstock.engine import backlog as module
from penstock.engine.backlog import Backlog


def _change(value: int, weight: int = 1, rows: int = 1) -> Delta:
    return Delta((pa.array([value + at for at in range(rows)]),), np.full(rows, weight, np.int64))


def _backlog(*, replaceable: bool = True) -> Backlog:
    made = Backlog(0, replaceable=replaceable)
    made.begin()
    assert made.align(0)
    return made


def _ticks(backlog: Backlog) -> list[tuple[int, int]]:
    return [(waiting.first, waiting.last) for waiting in backlog.waiting()]


def test_ticks_wait_until_they_are_acknowledged() -> None:
    backlog = _backlog()
    for tick in (1, 2, 3):
        backlog.pass_tick(tick, _change(tick) if tick != 2 else None)
        backlog.pass_tick(tick, _change(tick))
    assert (_ticks(backlog), backlog.lag) == ([(1, 1), (3, 3)], 3)
    assert len(backlog.take()) == 2
    backlog.pass_tick(4, _change(4))
    backlog.acknowledge(3)
    assert (_ticks(backlog), backlog.lag, backlog.mark) == ([(4, 4)], 1, 3)


def test_a_tick_that_is_missing_leaves_the_sink_out_of_line_whatever_it_acknowledges() -> None:
    backlog = _backlog()
    backlog.pass_tick(1, _change(1))
    backlog.take()
    backlog.pass_tick(3, _change(3))
    backlog.acknowledge(1)
    assert not backlog.in_line
    assert not backlog.align(1)
    backlog.restart(3)
    backlog.pass_tick(4, _change(4))
    backlog.acknowledge(3)
    assert backlog.in_line
    assert _ticks(backlog) == [(4, 4)]


@pytest.mark.parametrize(("mark", "fits"), [(0, True), (2, True), (4, True), (5, False)])
def test_a_mark_fits_where_the_changes_behind_it_are_there(mark: int, fits: bool) -> None:
    backlog = _backlog()
    for tick in (1, 2, 3, 4):
        backlog.pass_tick(tick, _change(tick))
    assert backlog.align(mark) is fits


def test_a_mark_inside_a_sum_and_one_before_the_first_change_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_CHANGES", 2)
    backlog = _backlog()
    for tick in (1, 2, 3):
        backlog.pass_tick(tick, _change(7, 1 if tick == 1 else -1 if tick == 2 else 1))
    assert _ticks(backlog) == [(1, 3)]
    assert backlog.waiting()[0].change.weights.tolist() == [1]
    assert not backlog.align(2)
    assert backlog.align(3)
    assert not backlog.align(2)


def test_what_was_taken_or_may_be_stored_is_not_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CHANGES", 2)
    backlog = _backlog()
    for tick in (1, 2):
        backlog.pass_tick(tick, _change(tick))
    backlog.take()
    for tick in (3, 4, 5):
        backlog.pass_tick(tick, _change(tick))
    assert _ticks(backlog) == [(1, 1), (2, 2), (3, 5)]
    backlog.give_back()
    for tick in (6, 7):
        backlog.pass_tick(tick, _change(tick))
    assert _ticks(backlog) == [(1, 1), (2, 2), (3, 7)]
    assert backlog.align(2)


@pytest.mark.parametrize("replaceable", [True, False])
def test_many_bytes_are_forgotten_only_where_all_rows_can_be_written_anew(
    replaceable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1_000)
    backlog = _backlog(replaceable=replaceable)
    for tick in range(1, 6):
        backlog.pass_tick(tick, _change(tick * 100, rows=30))
    assert backlog.in_line is not replaceable
    assert sum(len(waiting.change) for waiting in backlog.waiting()) == (60 if replaceable else 150)
