"""A table of ClickHouse, read once, in ranges of its key side by side."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.data.schema import to_arrow_schema
from penstock.errors import ConnectorError
from penstock.sources import fixed_ranges
from penstock.sources.base import Source, SourceContext, SourceFrame
from penstock.sources.clickhouse import table as tables
from penstock.sources.clickhouse.client import ClickHouseAddress, ClickHouseClient, ClickHouseError, passing
from penstock.sources.clickhouse.column import ReadColumn, read_column
from penstock.sources.clickhouse.options import ClickHouseOptions
from penstock.sources.clickhouse.table import Table
from penstock.spark.errors.flow_table import encoded
from penstock.spark.micro_batch.frames import as_struct

if TYPE_CHECKING:
    import pyarrow as pa

ARROW = {
    "output_format_arrow_string_as_string": "1",
    "output_format_arrow_low_cardinality_as_dictionary": "0",
    "output_format_arrow_fixed_string_as_fixed_byte_array": "0",
    "output_format_arrow_compression_method": "none",
}
ATTEMPTS, FIRST_PAUSE = 6, 0.25
"""How often a task asks a server that does not answer, and the first pause in between, which doubles."""


class ClickHouseSource(Source):
    """The rows that a table has at the first start."""

    Options = ClickHouseOptions
    location: ClassVar[str | None] = "table"

    options: ClickHouseOptions

    @property
    def kind(self) -> str:
        return "clickhouse"

    def read(self, context: SourceContext) -> SourceFrame:
        address = self.options.address()
        parallelism = self.options.parallelism or context.spark.sparkContext.defaultParallelism
        folder = fixed_ranges.folder_of(context)
        plan = fixed_ranges.fixed(folder, lambda: self._plan(address, parallelism))
        columns = [ReadColumn(**column) for column in plan["columns"]]
        ddl = ", ".join(f"`{column.name.replace('`', '``')}` {column.kind}" for column in columns)
        stream = fixed_ranges.stream(context, folder, plan["ranges"], per_epoch=plan["per_epoch"])
        until = plan["until"] if self.options.until is None else self.options.until
        where = tables.conditions(self.options, plan["bounds"], until)
        task = _Read(address, tuple(columns), ddl, plan["source"], tuple(where), tuple(plan["kinds"].items()))
        return SourceFrame(stream.mapInArrow(task, as_struct(ddl)))

    def greatest(self, cursor: str) -> str | None:
        """Return the greatest value of a column now as text, times in UTC; None when the table has no rows."""
        address = self.options.address()
        with _explained(address), ClickHouseClient(address) as client:
            return tables.greatest(client, tables.find_table(client, self.options.table), cursor)

    def _plan(self, address: ClickHouseAddress, parallelism: int) -> dict[str, Any]:
        """What the first start finds; what the options say is not in it, for they may have secrets."""
        options = self.options
        with _explained(address), ClickHouseClient(address) as client:
            table = tables.find_table(client, options.table)
            columns = self._columns(table)
            greatest = None
            if options.cursor is not None and options.until is None:
                greatest = tables.greatest(client, table, options.cursor)
            bounds = tables.bound_columns(table, options)
            where = tables.conditions(options, bounds, options.until or greatest)
            ends = tables.bounds(
                client, table, options, where, rows_per_range=max(1, options.batch_size // parallelism)
            )
        name = tables.range_column(table, options)
        return {
            "columns": [
                {"name": column.name, "expression": column.expression, "kind": column.kind}
                for column in columns
            ],
            "source": tables.source_of_rows(table, options),
            "bounds": bounds,
            "until": greatest,
            "kinds": {} if name is None else {name: table.kinds[name]},
            "ranges": tables.ranges(name, ends),
            "per_epoch": parallelism,
        }

    def _columns(self, table: Table) -> list[ReadColumn]:
        names = self.options.columns or table.visible
        return [read_column(name, table.column(name, what="columns"), where=table.name) for name in names]


@dataclass(frozen=True, slots=True)
class _Read:
    """What a task does with its ranges: give their rows."""

    address: ClickHouseAddress
    columns: tuple[ReadColumn, ...]
    ddl: str
    source: str
    where: tuple[str, ...]
    kinds: tuple[tuple[str, str], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._rows(batches)
        except ConnectorError as error:
            raise RuntimeError(encoded(error)) from None

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(self.ddl)
        expressions = [column.expression for column in self.columns]
        with _explained(self.address), ClickHouseClient(self.address) as client:
            for batch in batches:
                for value in batch.column(0).to_pylist():
                    part: Mapping[str, Any] = json.loads(value)
                    where = [*self.where, *tables.range_conditions(part, dict(self.kinds))]
                    query = tables.select(expressions, self.source, where)
                    for rows in _asked(client, query):
                        yield rows if rows.schema == schema else rows.cast(schema)


def _asked(client: ClickHouseClient, query: str) -> Iterator[pa.RecordBatch]:
    """The rows of a query; a server that does not answer is asked again, as long as it has sent none."""
    for attempt in range(ATTEMPTS):
        sent = False
        try:
            for rows in client.batches(query, ARROW):
                sent = True
                yield rows
            return
        except Exception as error:
            if sent or passing(error) is None or attempt + 1 == ATTEMPTS:
                raise
        time.sleep(FIRST_PAUSE * 2**attempt)


@contextmanager
def _explained(address: ClickHouseAddress) -> Iterator[None]:
    """Raise errors of the client in words for the user."""
    try:
        yield
    except (ClickHouseError, OSError, http.client.HTTPException) as error:
        reason = passing(error)
        if reason is not None:
            raise ConnectorError(
                f"ClickHouse does not answer: {reason}",
                code="SOURCE_UNREACHABLE",
                where=address.location,
                hint="start the server, or correct the address",
                retryable=True,
            ) from error
        raise ConnectorError(
            f"ClickHouse refuses: {str(error).strip()}",
            code="SOURCE_REFUSED",
            where=address.location,
            hint="check the address, the user and its rights, and the filter",
        ) from error
