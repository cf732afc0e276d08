"""Rows that a system refuses: which they were stays what it was when the epoch comes again."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.plugin import TransientValues
from penstock.sinks.postgres.client import cuts
from penstock.sinks.refused import RefusedRows


def rows_of(values: TransientValues | None) -> RefusedRows:
    return RefusedRows(None, values)  # type: ignore[arg-type]


def test_what_was_kept_is_there_when_the_epoch_comes_again() -> None:
    values = TransientValues()
    refused = rows_of(values)
    refused.begin(3)
    refused.add("too long", '{"a":1}')
    refused.add("too long", '{"a":1}')
    refused.keep()
    again = rows_of(values)
    again.begin(3)
    assert (again.count(), again.inputs()) == (2, {'{"a":1}': 2})
    again.finalize(3)
    again.begin(4)
    assert again.count() == 0
    later = rows_of(values)
    later.begin(3)
    assert later.count() == 0


def test_a_sink_that_has_stored_nothing_looks_anew() -> None:
    values = TransientValues()
    refused = rows_of(values)
    refused.begin(3)
    refused.add("not there yet", "{}")
    refused.keep()
    again = rows_of(values)
    again.begin(3)
    again.restart()
    again.keep()  # nothing is refused any more: the note of before is gone
    last = rows_of(values)
    last.begin(3)
    assert last.count() == 0


def test_an_epoch_without_refused_rows_leaves_no_note() -> None:
    values = TransientValues()
    refused = rows_of(values)
    refused.begin(0)
    refused.keep()
    assert values.get("refused") is None
    nowhere = rows_of(None)
    nowhere.begin(0)
    nowhere.add("no", "{}")
    nowhere.keep()
    nowhere.finalize(0)
    assert nowhere.count() == 1


@pytest.mark.parametrize(
    ("context", "rows", "expected"),
    [
        ("COPY t, line 3, column a", 10, [2, 3]),
        ("COPY t, line 1", 10, [1]),
        ("COPY t, line 10", 10, [9]),
        ("COPY t, line 12", 10, [9]),
        (None, 10, [5]),
        ("SQL statement", 2, [1]),
    ],
)
def test_where_rows_are_cut(context: str | None, rows: int, expected: list[int]) -> None:
    class Diagnostics:
        pass

    class Refusal(Exception):
        diag: Any = Diagnostics()

    Refusal.diag.context = context
    assert cuts(Refusal(), rows) == expected  # type: ignore[arg-type]
