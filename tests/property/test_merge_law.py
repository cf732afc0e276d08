"""The law of merging: parts that have taken in some rows each, merged, give what one gives that has taken in all."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.delta import Delta, concat
from penstock.functions import aggregates
from penstock.functions.aggregates import AGGREGATES
from penstock.functions.aggregates.base import Function, Parts, Rows, Selection
from penstock.functions.aggregates.distinct import DistinctRows
from penstock.functions.aggregates.pivot import PivotPart
from penstock.functions.aggregates.result import shown
from penstock.plan.node import AggregateCall
from penstock.state.state import Composite
from twin.replay import random_ticks
from twin.rigs import CALLS, COUNTED, OPTIONS, TYPES

GROUPS = 5
MORE = (
    *COUNTED,
    AggregateCall("Sum", (1,), "double", distinct=True),
    AggregateCall("Average", (3,), "decimal(24,6)", options=OPTIONS),
    AggregateCall("Skewness", (1,), "double"),
    AggregateCall("CovSample", (1, 1), "double"),
    AggregateCall("First", (2,), "string"),
    AggregateCall("MinBy", (1, 2), "double"),
    AggregateCall("Count", (0, 2), "bigint", distinct=True, filter=4),
)


class Accumulators:
    """The parts of one call over some groups."""

    def __init__(self, call: AggregateCall) -> None:
        self.parts = Parts(TYPES)
        self.function: Function = AGGREGATES.load(call.function)(call, self.parts)
        self.distinct = {
            chosen: DistinctRows(self.parts.kinds(chosen))
            for chosen, _ in self.parts.all()
            if chosen.distinct
        }
        for _, part in self.parts.all():
            part.reserve(GROUPS)

    def add(self, delta: Delta, groups: np.ndarray) -> None:
        every = np.arange(GROUPS)
        selected: dict[Selection, Rows] = {}
        for chosen, part in self.parts.all():
            if chosen not in selected:
                rows = _selected(chosen, delta, every, groups)
                selected[chosen] = self.distinct[chosen].change(rows) if chosen.distinct else rows
            part.update(selected[chosen])
        self._commit()

    def merge(self, other: Accumulators, slots: np.ndarray, others: np.ndarray) -> None:
        changes = {
            chosen: rows.change(other.distinct[chosen].entries(slots, others))
            for chosen, rows in self.distinct.items()
        }
        for (chosen, part), (_, theirs) in zip(self.parts.all(), other.parts.all(), strict=True):
            if chosen.distinct:
                part.update(changes[chosen])
            else:
                part.merge(theirs, slots, others)
        self.results()
        self._commit()

    def results(self) -> list[Any]:
        return [repr(value) for value in shown(self.function.result(np.arange(GROUPS))).to_pylist()]

    def _commit(self) -> None:
        self.results()
        for _, part in self.parts.all():
            part.commit()
        for distinct in self.distinct.values():
            distinct.commit()


def _selected(chosen: Selection, delta: Delta, every: np.ndarray, groups: np.ndarray) -> Rows:
    passes = np.ones(len(delta), np.bool_)
    if chosen.filter is not None:
        passes &= delta.columns[chosen.filter].fill_null(False).to_numpy(zero_copy_only=False)
    columns = [delta.columns[index] for index in chosen.args]
    for index in chosen.required:
        passes &= columns[index].is_valid().to_numpy(zero_copy_only=False)
    places = pa.array(np.flatnonzero(passes))
    return Rows(
        every, groups[passes], delta.weights[passes], tuple(column.take(places) for column in columns)
    )


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize(
    "call", [*CALLS, *MORE], ids=lambda call: f"{call.function} {call.args} {call.distinct}"
)
def test_merged_parts_are_those_of_all_rows(call: AggregateCall, seed: int) -> None:
    delta = concat([left for left, _ in random_ticks(seed, ticks=6)])
    # A retraction belongs to the group of its row.
    rows = list(zip(*(map(repr, column.to_pylist()) for column in delta.columns), strict=True))
    groups = np.array([hash_of(row) % GROUPS for row in rows])
    shards = np.array([hash_of(row) // GROUPS % 3 for row in rows])
    whole = Accumulators(call)
    whole.add(delta, groups)
    moved = np.arange(GROUPS)[::-1].copy()  # a shard may have its groups at other slots
    merged = Accumulators(call)
    for shard in range(3):
        part = Accumulators(call)
        chosen = np.flatnonzero(shards == shard)
        part.add(delta.take(chosen), moved[groups[chosen]])
        merged.merge(part, np.arange(GROUPS), moved)
    assert merged.results() == whole.results()


def hash_of(row: tuple[str, ...]) -> int:
    return sum(ord(letter) * (place + 7) for place, letter in enumerate("|".join(row)))


# Parts that are held to the law elsewhere, and why.
ELSEWHERE = {
    PivotPart: "two rows of one pivot value are refused: tests/unit/functions/test_pivot.py has rows that are not"
}


def test_every_kind_of_part_is_tested() -> None:
    for module in pkgutil.iter_modules(aggregates.__path__, f"{aggregates.__name__}."):
        importlib.import_module(module.name)
    tested = {type(part) for call in (*CALLS, *MORE) for _, part in Accumulators(call).parts.all()}
    parts = {
        kind
        for kind in below(Composite)
        if kind.__module__.startswith(aggregates.__name__) and hasattr(kind, "merge")
    }
    assert parts - tested == ELSEWHERE.keys()
    assert tested <= parts


def below(kind: type[Any]) -> Iterator[type[Any]]:
    """All classes that are made of one."""
    for child in kind.__subclasses__():
        yield child
        yield from below(child)
