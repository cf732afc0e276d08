"""Kernel rows as users see them: Arrow tables with names and plain types."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.data.batch import DeltaBatch
from penstock.data.delta import Delta
from penstock.data.ordering import sort_rows
from penstock.data.schema import to_arrow_field
from penstock.data.user_types import to_user
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
    columns, named = [], []
    for column, field in zip(rows.columns, fields, strict=True):
        # Text and bytes beyond 2 GiB keep their 64-bit offsets.
        shown = column if column.nbytes >= 2**31 else to_user(column, field.type)
        columns.append(shown)
        declared = to_arrow_field(field.name, field.type, field.nullable)
        # Types that are equal may still have other metadata inside.
        named.append(declared if declared.type == shown.type else declared.with_type(shown.type))
    return pa.Table.from_arrays(columns, schema=pa.schema(named))
