"""`DeltaBatch`: named rows with weights, what users feed to a flow and what a watch gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, Weights
from penstock.data.operation import WEIGHT
from penstock.data.rows import to_arrow
from penstock.errors import DataError, suggest

if TYPE_CHECKING:
    import polars

INSERT_OPS = frozenset(
    {"c", "r", "i", "u", "create", "read", "insert", "update", "+i", "+u", "update_postimage"}
)
DELETE_OPS = frozenset({"d", "delete", "-d"})
SKIPPED_OPS = frozenset({"-u", "update_preimage"})


class DeltaBatch:
    """Arrow columns plus `_weight`: +n inserts a row n times, -n retracts it n times.

    >>> delta = DeltaBatch.inserts([{"id": 1, "amount": 5}]) + DeltaBatch.deletes([{"id": 2, "amount": 7}])
    >>> delta.to_arrow().to_pylist()
    [{'id': 1, 'amount': 5, '_weight': 1}, {'id': 2, 'amount': 7, '_weight': -1}]

    `keys` marks a batch whose rows are changes by key: a positive row replaces the one with its key, a negative row
    retracts it and needs no other column.
    """

    __slots__ = ("keys", "table", "weights")

    def __init__(self, table: pa.Table, weights: Weights, *, keys: tuple[str, ...] = ()) -> None:
        self.table = table
        self.weights = weights
        self.keys = keys

    @classmethod
    def inserts(cls, rows: Any) -> DeltaBatch:
        """Rows to insert, once each."""
        return cls._uniform(rows, 1)

    @classmethod
    def deletes(cls, rows: Any) -> DeltaBatch:
        """Rows to retract, once each."""
        return cls._uniform(rows, -1)

    @classmethod
    def updates(cls, old: Any, new: Any) -> DeltaBatch:
        """Rows to retract and the rows that take their place, pair by pair."""
        before, after = cls.deletes(old), cls.inserts(new)
        if len(before) != len(after):
            raise DataError(
                f"an update needs as many new rows as old ones, got {len(before)} old and {len(after)} new",
                code="DELTA_UPDATE_LENGTH",
                hint="use DeltaBatch.deletes(old) + DeltaBatch.inserts(new) for different numbers of rows",
            )
        return before + after

    @classmethod
    def upserts(cls, rows: Any, *, keys: Sequence[str]) -> DeltaBatch:
        """Rows that replace the ones with the same key, or are inserted when there is none."""
        batch = cls.inserts(rows)
        return cls(batch.table, batch.weights, keys=_checked_keys(keys, batch.table))

    @classmethod
    def weighted(cls, rows: Any) -> DeltaBatch:
        """Rows that carry their weight in a column named `_weight`."""
        table = to_arrow(rows)
        names = table.schema.names
        if WEIGHT not in names:
            raise DataError(
                f"the rows have no column '{WEIGHT}'",
                code="DELTA_WEIGHT_MISSING",
                hint=suggest(WEIGHT, names, what="column"),
            )
        column = table.column(names.index(WEIGHT))
        if column.null_count:
            raise DataError(
                f"'{WEIGHT}' is NULL in {column.null_count} of {len(column)} rows",
                code="DELTA_WEIGHT_NULL",
                hint="every row needs a weight: +1 inserts, -1 retracts",
            )
        if not pa.types.is_integer(column.type):
            raise DataError(
                f"'{WEIGHT}' must be an integer, got {column.type}",
                code="DELTA_WEIGHT_TYPE",
                hint="cast it to BIGINT",
            )
        weights = (column if column.type == pa.int64() else column.cast(pa.int64())).to_numpy()
        present = weights != 0
        unweighted = table.remove_column(names.index(WEIGHT))
        if present.all():
            return cls(unweighted, np.ascontiguousarray(weights))
        return cls(unweighted.filter(pa.array(present)), weights[present])

    @classmethod
    def from_cdc(cls, rows: Any, *, op: str = "op", keys: Sequence[str]) -> DeltaBatch:
        """Rows of a change stream, with the operation in column `op`; the last one of a key wins.

        Taken are the words of Debezium (`c r u d`), of penstock's pipelines (`i u d`), of Delta and Iceberg changelogs
        (`insert`, `update_postimage`, `delete`; pre-images are dropped) and of Flink (`+I -U +U -D`).
        """
        table = to_arrow(rows)
        if op not in table.column_names:
            raise DataError(
                f"the rows have no column '{op}'",
                code="DELTA_CDC_OP",
                hint=suggest(op, table.column_names, what="column"),
            )
        words = [None if word is None else str(word).lower() for word in table.column(op).to_pylist()]
        unknown = sorted({str(word) for word in words if word not in INSERT_OPS | DELETE_OPS | SKIPPED_OPS})
        if unknown:
            raise DataError(
                f"unknown operation in column '{op}': {', '.join(unknown[:5])}",
                code="DELTA_CDC_OP",
                hint=f"known are {', '.join(sorted(INSERT_OPS | DELETE_OPS | SKIPPED_OPS))}",
            )
        positions = [position for position, word in enumerate(words) if word not in SKIPPED_OPS]
        table = table.drop_columns([op]).take(pa.array(positions, pa.int64()))
        weights = np.array([-1 if words[position] in DELETE_OPS else 1 for position in positions], np.int64)
        return cls(table, weights, keys=_checked_keys(keys, table))

    @classmethod
    def _uniform(cls, rows: Any, weight: int) -> DeltaBatch:
        table = to_arrow(rows)
        if WEIGHT in table.column_names:
            raise DataError(
                f"the rows already have a column '{WEIGHT}'",
                code="DELTA_WEIGHT_PRESENT",
                hint="use DeltaBatch.weighted(rows)",
            )
        return cls(table, np.full(table.num_rows, weight, np.int64))

    def __len__(self) -> int:
        return len(self.weights)

    def __add__(self, other: DeltaBatch) -> DeltaBatch:
        if self.keys != other.keys:
            raise DataError(
                "a batch of changes by key and one of whole rows, or of other keys, cannot be added",
                code="DELTA_KEYS_DIFFER",
                hint="feed them one after the other: flow.feed(source, a); flow.feed(source, b); flow.step()",
            )
        if set(self.table.column_names) != set(other.table.column_names):
            raise DataError(
                f"the columns differ: {', '.join(self.table.column_names)} and {', '.join(other.table.column_names)}",
                code="DELTA_COLUMNS_DIFFER",
            )
        aligned = other.table.select(self.table.column_names)
        try:
            table = pa.concat_tables([self.table, aligned], promote_options="permissive")
        except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
            raise DataError(f"the column types differ: {error}", code="DELTA_COLUMNS_DIFFER") from error
        return DeltaBatch(table, np.concatenate([self.weights, other.weights]), keys=self.keys)

    def __neg__(self) -> DeltaBatch:
        return DeltaBatch(self.table, -self.weights, keys=self.keys)

    def __sub__(self, other: DeltaBatch) -> DeltaBatch:
        return self + (-other)

    def __repr__(self) -> str:
        inserted = int(self.weights[self.weights > 0].sum())
        retracted = int(-self.weights[self.weights < 0].sum())
        return f"DeltaBatch(+{inserted} -{retracted}, columns: {', '.join(self.table.column_names)})"

    def consolidate(self) -> DeltaBatch:
        """Return the same change with equal rows summed up and those of weight zero left out."""
        if self.keys:
            raise DataError(
                "a batch of changes by key has an order and cannot be consolidated",
                code="DELTA_KEYS_CONSOLIDATE",
            )
        delta = consolidate(Delta(tuple(contiguous(column) for column in self.table.columns), self.weights))
        return DeltaBatch(pa.table(list(delta.columns), schema=self.table.schema), delta.weights)

    def to_arrow(self) -> pa.Table:
        """Return the rows with their weights in the last column, `_weight`."""
        field = pa.field(WEIGHT, pa.int64(), nullable=False)
        return self.table.append_column(field, pa.array(self.weights))

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries, with `_weight`."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a Polars frame, with `_weight`."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def contiguous(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _checked_keys(keys: Sequence[str], table: pa.Table) -> tuple[str, ...]:
    names = (keys,) if isinstance(keys, str) else tuple(keys)
    if not names:
        raise DataError("no key columns were given", code="DELTA_KEYS_MISSING", hint='write keys=["id"]')
    for name in names:
        if name not in table.column_names:
            raise DataError(
                f"no column '{name}' for the key",
                code="DELTA_KEYS_MISSING",
                hint=suggest(name, table.column_names, what="column"),
            )
        if pc.any(pc.is_null(table.column(name))).as_py():
            raise DataError(f"key column '{name}' has NULLs", code="DELTA_KEYS_NULL")
    return names
