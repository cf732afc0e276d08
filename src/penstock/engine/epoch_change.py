"""What happens to rows by their keys, in whole columns: the last row of each key on the way in, `i`, `u` and `d` on
the way out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.arrays import Positions
from penstock.data.collation import normaliser
from penstock.data.column_view import null_mask
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.data.equality import group_rows
from penstock.data.hashing import hash_rows
from penstock.data.operation import DELETE, INSERT, UPDATE
from penstock.errors import DataError, PenstockError
from penstock.plan.node import Fields

_OPERATIONS = pa.array([INSERT, UPDATE, DELETE], pa.large_string())
_I, _U, _D = range(3)
Codes = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """At most one row for each key, with what happened to it: a number of `i`, `u` and `d`."""

    rows: Sequence[pa.Array]
    codes: Codes

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def operations(self) -> pa.Array:
        """The operation of each row, `i`, `u` or `d`."""
        return _OPERATIONS.take(pa.array(self.codes))


def last_of_keys(change: Delta, keys: Sequence[int], fields: Fields) -> Delta:
    """Return the last row of every key, in the order of the rows."""
    if len(change) < 2:
        return change
    order, starts = _grouped(change, keys, fields)
    if len(starts) == len(order):
        return change
    last = np.maximum.reduceat(order, starts)
    return change.take(np.sort(last))


def keyed(change: Delta, keys: Sequence[int], fields: Fields, *, view: str) -> KeyedRows:
    """Sort a consolidated change by keys: -old +new of one is a `u` with the new row, and a `d` has the old one.

    DataError when several rows of one key come or go, or a key that comes is NULL.
    """
    if not len(change):
        return KeyedRows(change.columns, np.zeros(0, np.int8))
    refuse_null(change, keys, fields, view=view)
    order, starts = _grouped(change, keys, fields)
    weights = change.weights[order]
    comes = np.add.reduceat(np.maximum(weights, 0), starts)
    goes = np.add.reduceat(np.minimum(weights, 0), starts)
    wrong = np.flatnonzero((comes > 1) | (goes < -1))
    if len(wrong):
        raise not_unique(change, int(order[starts[wrong[0]]]), keys, fields, view=view)
    new = np.maximum.reduceat(np.where(weights > 0, order, -1), starts)
    old = np.maximum.reduceat(np.where(weights < 0, order, -1), starts)
    codes = np.where(new < 0, _D, np.where(old < 0, _I, _U)).astype(np.int8)
    shown = np.where(new < 0, old, new)
    in_order = np.argsort(shown, kind="stable")
    return KeyedRows(change.take(shown[in_order]).columns, codes[in_order])


def merged(parts: Sequence[KeyedRows], keys: Sequence[int], fields: Fields) -> KeyedRows:
    """Return several changes that lead to the same rows as one: of each key, what the first of them says."""
    parts = [part for part in parts if len(part)] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    sizes = [len(part) for part in parts]
    rows = concat(
        [Delta(tuple(part.rows), np.ones(size, np.int64)) for part, size in zip(parts, sizes, strict=True)]
    )
    codes = np.concatenate([part.codes for part in parts])
    order, starts = _grouped(rows, keys, fields)
    first = np.sort(np.minimum.reduceat(order, starts))
    return KeyedRows(rows.take(first).columns, codes[first])


def require_unique(rows: Delta, keys: Sequence[int], fields: Fields, *, view: str) -> None:
    """DataError when two of these rows have one key, or a key is NULL."""
    rows = consolidate(rows)
    if not len(rows):
        return
    refuse_null(rows, keys, fields, view=view)
    order, starts = _grouped(rows, keys, fields)
    wrong = np.flatnonzero(np.add.reduceat(rows.weights[order], starts) > 1)
    if len(wrong):
        raise not_unique(rows, int(order[starts[wrong[0]]]), keys, fields, view=view)


def refuse_null(rows: Delta, keys: Sequence[int], fields: Fields, *, view: str) -> None:
    """DataError when a key column of a row that comes is NULL."""
    coming = rows.weights > 0
    for key in keys:
        nulls = null_mask(rows.columns[key])
        if nulls is not None and (nulls & coming).any():
            name = fields[key].name
            raise DataError(
                f"the key column '{name}' is NULL in a row of the view '{view}'",
                code="VIEW_KEY",
                where=f"view '{view}'",
                hint=f"leave such rows out (WHERE {name} IS NOT NULL), or give the NULL a value with coalesce",
            )


def not_unique(rows: Delta, at: int, keys: Sequence[int], fields: Fields, *, view: str) -> PenstockError:
    """Return the error for two rows of the key that the row at a position has."""
    names = [fields[key].name for key in keys]
    value = ", ".join(
        f"{name}={rows.columns[key][at].as_py()!r}" for name, key in zip(names, keys, strict=True)
    )
    return DataError(
        f"the view '{view}' has several rows with the key {value}: ({', '.join(names)}) does not tell its rows apart",
        code="VIEW_KEY",
        where=f"view '{view}'",
        hint="give all columns that do, such as those of GROUP BY, in primary_key",
    )


def _grouped(rows: Delta, keys: Sequence[int], fields: Fields) -> tuple[Positions, Positions]:
    columns = []
    for key in keys:
        of_text = normaliser(fields[key].type)
        column = rows.columns[key]
        columns.append(column if of_text is None else of_text(column))
    return group_rows(hash_rows(columns), columns)
