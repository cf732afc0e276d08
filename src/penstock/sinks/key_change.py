"""What changes of a view do to the row of each key: -old +new of one key is an update.

A view with a key has at most one row per key, so that every key of a change has at most one row that goes and one
that comes. Anything else shows that the columns are no key of the view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.batch import DeltaBatch
from penstock.errors import DataError, PenstockError
from penstock.sinks.view_sink import Change

if TYPE_CHECKING:
    import polars
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class KeyChange:
    """Rows by what happens to their keys; `replaced` are the old rows of `updated`, in the same order."""

    inserted: pa.Table
    replaced: pa.Table
    updated: pa.Table
    deleted: pa.Table

    @property
    def rows(self) -> int:
        """How many keys change."""
        return int(self.inserted.num_rows + self.updated.num_rows + self.deleted.num_rows)


def summed(changes: Sequence[Change]) -> DeltaBatch:
    """The change that several do together; at least one is needed."""
    batches = [change.rows for change in changes]
    return batches[0] if len(batches) == 1 else reduce(add, batches).consolidate()


def by_key(change: DeltaBatch, keys: Sequence[str], *, where: str) -> KeyChange:
    """Sort a consolidated change by keys; DataError when they are no key of the view."""
    import polars as pl

    table, weights = change.table, change.weights
    _refuse_null(table, keys, where)
    groups = (
        _keys(table, keys)
        .with_columns(pl.Series("w", weights), pl.int_range(pl.len()).alias("at"))
        .group_by(list(map(str, range(len(keys)))), maintain_order=True)
        .agg(
            pl.col("w").filter(pl.col("w") > 0).sum().alias("comes"),
            pl.col("w").filter(pl.col("w") < 0).sum().alias("goes"),
            pl.col("at").filter(pl.col("w") > 0).first().alias("new"),
            pl.col("at").filter(pl.col("w") < 0).first().alias("old"),
        )
    )
    wrong = groups.filter((pl.col("comes") > 1) | (pl.col("goes") < -1))
    if len(wrong):
        at = wrong["new"][0] if wrong["new"][0] is not None else wrong["old"][0]
        raise not_unique(keys, _key_of(table, keys, at), where=where)
    both = groups.filter(pl.col("new").is_not_null() & pl.col("old").is_not_null())
    return KeyChange(
        inserted=_rows(table, groups.filter(pl.col("old").is_null())["new"]),
        replaced=_rows(table, both["old"]),
        updated=_rows(table, both["new"]),
        deleted=_rows(table, groups.filter(pl.col("new").is_null())["old"]),
    )


def require_unique(rows: pa.Table, keys: Sequence[str], *, where: str) -> None:
    """DataError when two rows of a view have one key, or a key is NULL."""
    _refuse_null(rows, keys, where)
    frame = _keys(rows, keys)
    repeated = frame.is_duplicated()
    if repeated.any():
        at = int(repeated.arg_max() or 0)
        raise not_unique(keys, _key_of(rows, keys, at), where=where)


def not_unique(keys: Sequence[str], value: str, *, where: str) -> PenstockError:
    """Return the error for two rows of one key."""
    return DataError(
        f"the view has several rows with the key {value}: ({', '.join(keys)}) does not tell its rows apart",
        code="FLOW_SINK_KEY",
        where=where,
        hint="give all columns that do, such as those of GROUP BY, in key=[...]",
    )


def _refuse_null(table: pa.Table, keys: Sequence[str], where: str) -> None:
    for key in keys:
        if table.column(key).null_count:
            raise DataError(
                f"the key column '{key}' is NULL in a row of the view",
                code="FLOW_SINK_KEY",
                where=where,
                hint=f"leave such rows out of the view (WHERE {key} IS NOT NULL), or give the NULL a value with coalesce",
            )


def _keys(table: pa.Table, keys: Sequence[str]) -> polars.DataFrame:
    """The key columns under the names 0, 1, ..., which no others can have."""
    import polars as pl

    frame = pl.from_arrow(table.select(list(keys)).rename_columns(list(map(str, range(len(keys))))))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _rows(table: pa.Table, positions: polars.Series) -> pa.Table:
    return table.take(positions.to_numpy().astype(np.int64))


def _key_of(table: pa.Table, keys: Sequence[str], at: int) -> str:
    row: dict[str, Any] = table.select(list(keys)).slice(at, 1).to_pylist()[0]
    return ", ".join(f"{name}={value!r}" for name, value in row.items())
