"""ASOF joins recomputed with nested loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twin.join import as_key
from twin.rows import Multiset, Row, add


def _rank(row: Row) -> tuple[Any, ...]:
    """Whole rows in ascending order, NULL first; for columns of integers and text."""
    return tuple((value is not None, value if value is not None else 0) for value in row)


def match(
    left: Row,
    right: Multiset,
    *,
    keys: Sequence[tuple[int, int]],
    times: tuple[int, int],
    direction: str,
    tolerance: int | None,
) -> Row | None:
    """The right row that a left row has."""
    time = left[times[0]]
    if time is None or any(left[a] is None for a, _ in keys):
        return None
    found = []
    for row in right:
        if row[times[1]] is None or any(row[b] is None or as_key(left[a]) != as_key(row[b]) for a, b in keys):
            continue
        ahead = row[times[1]] - time
        if (direction == "backward" and ahead > 0) or (direction == "forward" and ahead < 0):
            continue
        if tolerance is not None and abs(ahead) > tolerance:
            continue
        found.append((abs(ahead), ahead > 0, _rank(row), row))
    return min(found)[3] if found else None


def asof(left: Multiset, right: Multiset, *, width: int, outer: bool, **options: Any) -> Multiset:
    """The join of two multisets of canonical rows."""
    rows: list[tuple[Row, int]] = []
    for row, count in left.items():
        found = match(row, right, **options)
        if found is not None or outer:
            rows.append(((*row, *(found if found is not None else (None,) * width)), count))
    return add(rows)
