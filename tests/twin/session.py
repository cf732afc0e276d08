"""Session windows recomputed: the rows of each key in order, one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from twin.join import as_key
from twin.rows import Multiset, Row, add


def session_window(rows: Multiset, *, keys: Sequence[int], start: int, end: int) -> Multiset:
    """Canonical rows with the start of their session behind their columns."""
    groups: defaultdict[tuple[Any, ...], list[tuple[Row, int]]] = defaultdict(list)
    result: list[tuple[Row, int]] = []
    for row, count in rows.items():
        if row[start] is None or row[end] is None:
            result.append(((*row, None), count))
        else:
            groups[tuple(as_key(row[key]) for key in keys)].append((row, count))
    for members in groups.values():
        began = reach = None
        for row, count in sorted(members, key=lambda member: member[0][start]):
            if reach is None or row[start] > reach:
                began, reach = row[start], row[start]
            reach = max(reach, row[end])
            result.append(((*row, began), count))
    return add(result)
