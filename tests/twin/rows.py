"""Multisets of rows as dictionaries, and Hypothesis strategies for deltas."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from penstock.data.delta import Delta
from penstock.state.limits import LIMITS, Limits

Row = tuple[Any, ...]
Multiset = dict[Row, int]

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bigint": (pa.int64(), st.integers(-2, 2)),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, math.nan, 1.5])),
    "string": (pa.large_string(), st.sampled_from(["", "a", "ab", "a longer text, over two words"])),
    "bool": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(20, 2), st.sampled_from([Decimal("1.00"), Decimal("-1.00"), Decimal("7.25")])),
    "list": (pa.large_list(pa.float64()), st.lists(st.sampled_from([0.0, -0.0, math.nan, None]), max_size=3)),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.large_string())]),
        st.fixed_dictionaries({"a": st.sampled_from([None, 1]), "b": st.sampled_from([None, "x"])}),
    ),
    "map": (
        pa.map_(pa.int64(), pa.large_list(pa.float64())),
        st.dictionaries(st.integers(0, 2), st.sampled_from([None, [], [1.0, math.nan]]), max_size=3).map(
            lambda value: list(value.items())
        ),
    ),
    "void": (pa.null(), st.none()),
}

# All bits of the hash; so few that most hashes meet; none at all.
MASKS = [0xFFFFFFFFFFFFFFFF, 0xC000000000000001, 0]


def examples(count: int) -> settings:
    """So many examples, however slow: a busy machine must not fail a test for the time it takes."""
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def canonical(value: Any, as_rows: bool = True) -> Any:
    """A Python value that is equal exactly when two values are: as rows (two zeros) or as keys (one zero)."""
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return "-0.0" if as_rows and value == 0 and math.copysign(1, value) < 0 else value + 0.0
    if isinstance(value, dict):
        return tuple((name, canonical(item, as_rows)) for name, item in value.items())
    if isinstance(value, list):
        items = tuple(canonical(item, as_rows) for item in value)
        return frozenset(items) if value and isinstance(value[0], tuple) else items
    if isinstance(value, tuple):
        return tuple(canonical(item, as_rows) for item in value)
    return value


def pairs(delta: Delta) -> Iterator[tuple[Row, int]]:
    """The rows of a delta, as Python values, with their weights."""
    if not delta.columns:
        return (((), int(weight)) for weight in delta.weights)
    rows = zip(*(column.to_pylist() for column in delta.columns), strict=True)
    return zip(rows, (int(weight) for weight in delta.weights), strict=True)


def add(*parts: Iterable[tuple[Row, int]]) -> Multiset:
    """The sum of weighted rows in canonical form, without zeros."""
    counts: Counter[Row] = Counter()
    for part in parts:
        for row, weight in part:
            counts[tuple(canonical(value) for value in row)] += weight
    return {row: weight for row, weight in counts.items() if weight}


def multiset(*deltas: Delta) -> Multiset:
    """The sum of deltas as a dictionary."""
    return add(*(pairs(delta) for delta in deltas))


def retracted(deltas: Iterable[Delta]) -> Delta:
    """What takes back all rows that these deltas have left."""
    counts: Counter[str] = Counter()
    rows = {}
    types: list[pa.DataType] = []
    for delta in deltas:
        types = [column.type for column in delta.columns]
        for row, weight in pairs(delta):
            counts[repr(row)] += weight
            rows[repr(row)] = row
    return delta_of(((rows[text], -weight) for text, weight in counts.items() if weight), types)


def delta_of(rows: Iterable[tuple[Row, int]], types: Sequence[pa.DataType]) -> Delta:
    """Weighted Python rows as a delta."""
    listed = list(rows)
    columns = tuple(pa.array([row[at] for row, _ in listed], kind) for at, kind in enumerate(types))
    return Delta(columns, np.array([weight for _, weight in listed], np.int64))


def types_of(names: Sequence[str]) -> tuple[pa.DataType, ...]:
    return tuple(KINDS[name][0] for name in names)


@st.composite
def deltas(draw: st.DrawFn, names: Sequence[str], *, most: int = 12, nulls: bool = True) -> Delta:
    """Any delta of the given kinds of columns; weights from -2 to 2, rows often the same."""
    values = (st.none() | KINDS[name][1] if nulls else KINDS[name][1] for name in names)
    rows = draw(st.lists(st.tuples(st.tuples(*values), st.integers(-2, 2)), max_size=most))
    return delta_of(rows, types_of(names))


@st.composite
def histories(
    draw: st.DrawFn,
    names: Sequence[str],
    *,
    ticks: int = 5,
    most: int = 8,
    rows: st.SearchStrategy[Row] | None = None,
) -> list[Delta]:
    """A sequence of deltas that never retracts a row that is not there; `rows` are what to draw from, if not any rows."""
    values = st.tuples(*(st.none() | KINDS[name][1] for name in names)) if rows is None else rows
    present: list[Row] = []
    found = []
    for _ in range(draw(st.integers(1, ticks))):
        changes: list[tuple[Row, int]] = [
            (row, draw(st.integers(1, 2))) for row in draw(st.lists(values, max_size=most))
        ]
        present.extend(row for row, weight in changes for _ in range(weight))
        for _ in range(min(draw(st.integers(0, most)), len(present))):
            gone = present.pop(draw(st.integers(0, len(present) - 1)))
            changes.append((gone, -1))
        found.append(delta_of(draw(st.permutations(changes)), types_of(names)))
    return found


@contextmanager
def small_state() -> Iterator[None]:
    """Sizes so small that a few rows make runs, open merges and offset tables."""
    before = replace(LIMITS)
    _set(
        Limits(
            fan_in=3,
            small=3,
            at_once=6,
            fuel=2,
            paid_chunk=2,
            merge_chunk=4,
            least_chunk=1,
            table_from=6,
            fold_from=2,
            spare=2,
        )
    )
    try:
        yield
    finally:
        _set(before)


def _set(limits: Limits) -> None:
    for field in fields(Limits):
        setattr(LIMITS, field.name, getattr(limits, field.name))
