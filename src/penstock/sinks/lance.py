"""The rows of a view as a LanceDB table, whose vectors applications search: changed by key, with the tick as its mark.

LanceDB commits one table at a time, so rows and mark are two commits, and a row that came in one tick and went in the
next would stay if changes were handed over again as their sum. A third one makes that safe: the mark says first that
a tick is pending. Steps of a change:

1. the mark has the tick as pending;
2. rows are inserted, updated and deleted, in one commit;
3. the mark is the tick, and nothing is pending.

When something is pending as the table is opened, nobody knows whether step 2 has happened: there is no mark, and the
caller replaces all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.batch import DeltaBatch
from penstock.errors import ConfigError, DataError
from penstock.sinks.require import require_package

if TYPE_CHECKING:
    from lancedb.db import DBConnection
    from lancedb.table import Table

MARKS = "penstock_marks"
OPTIMIZE_EVERY = (
    100  # changes after which small files are put together, and vectors that came get into the index
)
KEEP_VERSIONS = timedelta(hours=1)  # how long readers may go on with an old version
_MARK = pa.schema({"sink": pa.string(), "tick": pa.int64(), "pending": pa.int64()})
_KEY_TYPES = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string(), pa.large_string())


class LanceTable:
    """A table with the rows of a view; `key` is one column that tells them apart, `embedding` the column that is searched.

    The table is made when it is not there. `dimensions` are those of the vectors: LanceDB searches only vectors of a
    declared length.
    """

    def __init__(
        self, uri: str, table: str, *, sink: str, schema: pa.Schema, key: str, embedding: str, dimensions: int
    ) -> None:
        require_package("lancedb", extra="lance")
        self._place = f"LanceDB table {table} in {uri}"
        self._sink, self._key, self._embedding, self._dimensions = sink, key, embedding, dimensions
        self._uri, self._name = uri, table
        self._schema = pa.schema([self._declared(field) for field in schema])
        if schema.field(key).type not in _KEY_TYPES:
            raise ConfigError(
                f"the key '{key}' is {schema.field(key).type}; LanceDB's rows are found by whole numbers or text",
                code="SINK_TYPE",
                where=self._place,
                hint="cast it in the view",
            )
        self._changes = 0
        self._database: DBConnection | None = None
        self._rows: Table | None = None
        self._marks: Table | None = None

    def open(self) -> int | None:
        """Connect and return the mark; None when there is none, and `replace` must come before `apply`."""
        import lancedb

        self._database = lancedb.connect(self._uri)
        self._rows = self._table(self._name, self._schema)
        self._marks = self._table(MARKS, _MARK)
        if self._rows.schema.names != self._schema.names:
            raise DataError(
                f"the table has the columns {', '.join(self._rows.schema.names)}, and the view {', '.join(self._schema.names)}",
                code="SINK_TYPE",
                where=self._place,
                hint="write to another table, or drop this one",
            )
        return self.mark()

    def mark(self) -> int | None:
        """The last tick whose rows are all there; None when that is not known."""
        assert self._marks is not None, "the table was not opened"
        rows = [row for row in self._marks.to_arrow().to_pylist() if row["sink"] == self._sink]
        return rows[0]["tick"] if rows and rows[0]["pending"] is None else None

    def replace(self, rows: pa.Table, tick: int) -> None:
        """Be these rows, which the view had after a tick. An index on the vectors stays."""
        assert self._rows is not None, "the table was not opened"
        rows = self._conformed(rows)
        self._move_mark(None, pending=tick)
        self._merge().when_not_matched_by_source_delete().execute(rows)
        self._move_mark(tick)

    def apply(self, changes: DeltaBatch, tick: int) -> None:
        """Store what ticks up to this one have changed, as one change, and move the mark."""
        table, weights = changes.table, pa.array(changes.weights)
        fresh = self._conformed(table.filter(pc.greater(weights, 0)))
        keys = fresh.column(self._key)
        gone = table.filter(pc.less(weights, 0)).column(self._key)
        gone = gone.filter(
            pc.invert(pc.is_in(gone.cast(keys.type), value_set=keys.combine_chunks()))
        ).to_pylist()
        self._move_mark(self.mark(), pending=tick)
        merge = self._merge()
        if gone:
            merge = merge.when_not_matched_by_source_delete(f"{_name(self._key)} IN ({_values(gone)})")
        merge.execute(fresh)
        self._move_mark(tick)
        self._changes += 1
        if self._changes % OPTIMIZE_EVERY == 0:
            self.optimize()

    def count_rows(self) -> int:
        """How many rows there are, whoever has stored them."""
        assert self._rows is not None, "the table was not opened"
        return int(self._rows.count_rows())

    def is_known(self) -> bool:
        """Whether this sink has begun to write."""
        assert self._marks is not None, "the table was not opened"
        return self._sink in self._marks.to_arrow().column("sink").to_pylist()

    def forget(self) -> None:
        """Take out the mark; the rows stay."""
        assert self._marks is not None, "the table was not opened"
        self._marks.delete(f"sink = {_values([self._sink])}")

    def optimize(self) -> None:
        """Put small files together, bring an index up to date, and remove versions that nobody reads any more."""
        for table in (self._rows, self._marks):
            assert table is not None, "the table was not opened"
            table.optimize(cleanup_older_than=KEEP_VERSIONS)

    def close(self) -> None:
        """Let go of the tables; `open` may come again."""
        self._rows = self._marks = self._database = None

    def _table(self, name: str, schema: pa.Schema) -> Table:
        assert self._database is not None
        try:
            return self._database.open_table(name)
        except ValueError:  # this is how LanceDB says that there is none
            return self._database.create_table(name, schema=schema)

    def _merge(self) -> Any:
        assert self._rows is not None, "the table was not opened"
        return self._rows.merge_insert(self._key).when_matched_update_all().when_not_matched_insert_all()

    def _move_mark(self, tick: int | None, *, pending: int | None = None) -> None:
        assert self._marks is not None, "the table was not opened"
        row = pa.Table.from_pylist([{"sink": self._sink, "tick": tick, "pending": pending}], _MARK)
        merge = self._marks.merge_insert("sink").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(row)

    def _declared(self, field: pa.Field) -> pa.Field:
        if field.name != self._embedding:
            return field
        if not hasattr(field.type, "value_type") or not pa.types.is_floating(field.type.value_type):
            raise ConfigError(
                f"the embedding '{field.name}' is {field.type}, not a list of floating numbers",
                code="SINK_TYPE",
                where=self._place,
                hint="cast it in the view, to ARRAY<FLOAT>",
            )
        return field.with_type(pa.list_(field.type.value_type, self._dimensions))

    def _conformed(self, rows: pa.Table) -> pa.Table:
        """The rows with the types of the table."""
        lengths = pc.list_value_length(rows.column(self._embedding))
        wrong = rows.filter(pc.not_equal(lengths, self._dimensions))
        if wrong.num_rows:
            raise DataError(
                f"the vector '{self._embedding}' of the row with {self._key} = {wrong.column(self._key)[0].as_py()!r} "
                f"has not {self._dimensions} dimensions",
                code="DATA_VECTOR_DIMENSION",
                where=self._place,
                hint="leave such rows out of the view",
            )
        return rows.select(self._schema.names).cast(self._schema)


def _name(column: str) -> str:
    return f"`{column}`"


def _values(keys: Sequence[Any]) -> str:
    return ", ".join("'" + key.replace("'", "''") + "'" if isinstance(key, str) else str(key) for key in keys)
