"""The bookkeeping of sources in plain Python: which rows a table holds after which ticks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .case import Row, Tick

State = Mapping[str, Mapping[str, tuple[Row, int]]]


class MissingRow(Exception):
    """A tick retracts a row that is not there."""


def start(tables: Iterable[str]) -> State:
    """Return empty tables."""
    return {name: {} for name in tables}


def apply(state: State, tick: Tick) -> State:
    """Return the tables after a tick; the given ones do not change."""
    after = dict(state)
    for name, changes in tick.items():
        rows = dict(after[name])
        for weight, row in changes:
            # repr tells -0.0 from 0.0 and makes NaN equal to itself, which Python's == does not.
            _, count = rows.get(repr(row), (row, 0))
            rows[repr(row)] = (row, count + weight)
        if any(count < 0 for _, count in rows.values()):
            raise MissingRow(name)
        after[name] = {key: (row, count) for key, (row, count) in rows.items() if count}
    return after


def rows(state: State, table: str) -> list[Row]:
    """Return the rows of a table, each as often as it is there."""
    return [row for row, count in state[table].values() for _ in range(count)]
