"""Kernel rows as users see them: Arrow tables with names and plain types."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.data.batch import DeltaBatch
from penstock.data.delta import Delta
from penstock.data.ordering import sort_rows
from penstock.data.schema import to_arrow_type
from penstock.plan.node import Field, SortKey


def to_table(rows: Delta, fields: Sequence[Field], *, order: Sequence[SortKey] = ()) -> pa.Table:
    """Return rows as a table, each as often as its weight says, sorted when there is an order."""
    if order:
        rows = rows.take(sort_rows(rows.columns, order))
    if (rows.weights != 1).any():
        rows = rows.take(np.repeat(np.arange(len(rows)), rows.weights))
    return _named(rows, fields)


def to_batch(change: Delta, fields: Sequence[Field]) -> DeltaBatch:
    """Return a change as the public kind of delta."""
    return DeltaBatch(_named(change, fields), change.weights)


def _named(rows: Delta, fields: Sequence[Field]) -> pa.Table:
    columns = []
    for column, field in zip(rows.columns, fields, strict=True):
        kind = to_arrow_type(field.type)
        # Text and bytes beyond 2 GiB keep their 64-bit offsets.
        columns.append(column if column.type == kind or column.nbytes >= 2**31 else column.cast(kind))
    schema = pa.schema(
        [
            pa.field(field.name, column.type, field.nullable)
            for field, column in zip(fields, columns, strict=True)
        ]
    )
    return pa.Table.from_arrays(columns, schema=schema)
