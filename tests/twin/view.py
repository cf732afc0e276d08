"""A view as a counter of rows, which deltas change."""

from __future__ import annotations

from collections import Counter

from penstock.data.delta import Delta


def apply(view: Counter[str], delta: Delta) -> None:
    """Change a view by a delta; rows are the texts of Python tuples."""
    columns = (column.to_pylist() for column in delta.columns)
    for weight, *values in zip(delta.weights.tolist(), *columns, strict=True):
        row = repr(tuple(values))
        view[row] += weight
        if view[row] == 0:
            del view[row]
