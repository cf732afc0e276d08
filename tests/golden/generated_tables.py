"""Tables for Hypothesis: schemas of all kinds of columns, and ticks of inserts, deletes and updates that hurt.

Kinds of columns: `i` INT, `l` BIGINT, `s` STRING, `d` DOUBLE, `b` BOOLEAN, `n` DECIMAL(9,2), `t` DATE, `z` TIMESTAMP. Values are few
and small, so that keys meet, nothing overflows, and doubles are quarters, whose sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from .case import Change, Tick

Columns = tuple[tuple[str, str], ...]
Schemas = Mapping[str, Columns]

TYPES = {
    "i": "INT",
    "l": "BIGINT",
    "s": "STRING",
    "d": "DOUBLE",
    "b": "BOOLEAN",
    "n": "DECIMAL(9,2)",
    "t": "DATE",
    "z": "TIMESTAMP",
}
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.sampled_from([None, 0, 1, 2, 3, -1]),
    "s": st.sampled_from([None, "", "x", "y", "ü"]),
    "l": st.sampled_from([None, 0, 1, 5, -7, 9007199254740993]),
    "d": st.sampled_from([None, 0.0, 0.25, 1.5, -2.75, float("nan")]),
    "b": st.sampled_from([None, True, False]),
    "n": st.sampled_from([None, *(Decimal(text) for text in ("0.00", "1.50", "-2.25", "1234567.89"))]),
    "t": st.sampled_from([None, date(2024, 2, 29), date(2024, 3, 1), date(1969, 12, 31)]),
    "z": st.sampled_from(
        [
            None,
            datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
            datetime(2024, 3, 1, tzinfo=UTC),
            datetime(1969, 12, 31, 12, tzinfo=UTC),
        ]
    ),
}
_MOST_COLUMNS = 5


@st.composite
def schemas(draw: st.DrawFn) -> Schemas:
    """Return three tables; the first two have an INT and a STRING at least, so that most queries find something to join."""
    kinds = st.lists(st.sampled_from(sorted(TYPES)), max_size=_MOST_COLUMNS - 2)
    found = {}
    for name, least in (("a", "is"), ("b", "is"), ("c", "i")):
        columns = [*least, *draw(kinds)]
        found[name] = tuple((f"{kind}{index}", kind) for index, kind in enumerate(columns))
    return found


def ddl(tables: Schemas) -> dict[str, str]:
    """Return the tables as Spark declares them."""
    return {
        name: ", ".join(f"{column} {TYPES[kind]}" for column, kind in columns)
        for name, columns in tables.items()
    }


@st.composite
def ticks(draw: st.DrawFn, tables: Schemas, count: int) -> tuple[Tick, ...]:
    """Return ticks of inserts, deletes and updates that never retract a row that is not there."""
    present: dict[str, list[tuple[Any, ...]]] = {name: [] for name in tables}
    found = []
    for _ in range(count):
        tick: dict[str, tuple[Change, ...]] = {}
        for name in draw(st.lists(st.sampled_from(sorted(tables)), min_size=1, max_size=3, unique=True)):
            changes = _retractions(draw, present[name]) + _insertions(draw, tables[name])
            for weight, row in changes:
                if weight > 0:
                    present[name].extend([row] * weight)
            tick[name] = tuple(changes)
        found.append(tick)
    return tuple(found)


def _insertions(draw: st.DrawFn, columns: Columns) -> list[Change]:
    row = st.tuples(*(_VALUES[kind] for _, kind in columns))
    return draw(st.lists(st.tuples(st.sampled_from([1, 1, 1, 2, 3]), row), max_size=6))


def _retractions(draw: st.DrawFn, present: list[tuple[Any, ...]]) -> list[Change]:
    mode = draw(st.sampled_from(["some", "some", "all", "none"]))
    count = {"all": len(present), "none": 0}.get(mode, min(len(present), draw(st.integers(0, 3))))
    return [
        (-1, present.pop(draw(st.integers(0, len(present) - 1)) if mode == "some" else 0))
        for _ in range(count)
    ]
