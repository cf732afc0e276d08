"""Rows on their way into the views of a pipeline: those that come in an epoch, and those of before as rows of other columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.batch import DeltaBatch
from penstock.data.column_view import null_mask
from penstock.data.delta import Delta, empty
from penstock.data.operation import DELETE, INSERT, OPERATION, OPERATIONS, UPDATE
from penstock.data.types import kernel_type
from penstock.errors import DataError, suggest
from penstock.pipeline.view_node import ARRIVAL

if TYPE_CHECKING:
    from penstock.pipeline.stage_plan import StageInput
    from penstock.pipeline.stage_store import SavedRows
    from penstock.plan.node import Fields

_ROWS_OF_EPOCH = 2**32  # `_arrival` is the number of the epoch, and the position in it


def change_of(declared: StageInput, table: pa.Table, epoch: int) -> DeltaBatch:
    """The rows of an input as a change."""
    if declared.weights:
        return DeltaBatch.weighted(table)
    if declared.log:
        numbers = pa.array(np.arange(table.num_rows, dtype=np.int64) + epoch * _ROWS_OF_EPOCH)
        return DeltaBatch(table.append_column(ARRIVAL, numbers), np.ones(table.num_rows, np.int64))
    if not declared.operations:
        return DeltaBatch.inserts(table)
    return _by_operation(table, declared)


def aligned(rows: SavedRows, fields: Fields, keys: Sequence[int]) -> Delta:
    """Rows as rows of other columns: those that are gone are left out, and new ones are NULL. No rows when they lack
    a column of the key."""
    types = [kernel_type(field.type) for field in fields]
    at = {name: position for position, (name, _) in enumerate(rows.columns)}
    kinds = dict(rows.columns)
    if any(kinds.get(fields[key].name) != fields[key].type for key in keys) or not at:
        return empty(types)
    count = len(rows.delta)
    columns = []
    for field, kind in zip(fields, types, strict=True):
        position = at.get(field.name)
        column = None if position is None else rows.delta.columns[position]
        if column is None or (column.type != kind and not _widens(column.type, kind)):
            columns.append(pa.nulls(count, kind))
        else:
            columns.append(column if column.type == kind else column.cast(kind))
    return Delta(tuple(columns), rows.delta.weights)


def without_null_keys(rows: Delta, keys: Sequence[int]) -> Delta:
    """The rows without NULL in their key: an epoch that has others fails, and no sink has any of these."""
    for key in keys:
        nulls = null_mask(rows.columns[key])
        if nulls is not None and nulls.any():
            rows = rows.take(np.flatnonzero(~nulls))
    return rows


def _widens(kind: pa.DataType, into: pa.DataType) -> bool:
    integers = pa.types.is_integer(kind) and pa.types.is_integer(into)
    floats = pa.types.is_floating(kind) and pa.types.is_floating(into)
    return bool((integers or floats) and kind.bit_width <= into.bit_width)


def _by_operation(table: pa.Table, declared: StageInput) -> DeltaBatch:
    """Rows with `_op` as a change: upserts and deletes by key, or inserts alone without one."""
    where = f"input '{declared.name}'"
    if OPERATION not in table.column_names:
        raise DataError(
            f"the rows have no column '{OPERATION}'",
            code="VIEW_OPERATION",
            where=where,
            hint=suggest(OPERATION, table.column_names, what="column"),
        )
    words = table.column(OPERATION)
    rows = table.drop_columns([OPERATION])
    if not table.num_rows:
        return DeltaBatch.inserts(rows)
    is_operation = pc.is_in(words, pa.array(OPERATIONS, words.type))
    if not pc.all(is_operation).as_py():
        wrong = words.filter(pc.invert(is_operation))[0].as_py()
        raise DataError(
            f"{OPERATION} is {wrong!r} in a row, and neither 'i', 'u' nor 'd'",
            code="VIEW_OPERATION",
            where=where,
        )
    if declared.keys:
        deleted = pc.equal(words, DELETE).to_numpy()
        return DeltaBatch(rows, np.where(deleted, -1, 1).astype(np.int64))
    inserts = pc.equal(words, INSERT)
    if not pc.all(inserts).as_py():
        operation = words.filter(pc.invert(inserts))[0].as_py()
        what = "an update" if operation == UPDATE else "a delete"
        raise DataError(
            f"{what} came ({OPERATION} = '{operation}'), and the rows have no primary key by which it finds its row",
            code="VIEW_OPERATION",
            where=where,
            hint=f"give '{declared.name}' a primary_key",
        )
    return DeltaBatch(rows, np.ones(rows.num_rows, np.int64))
