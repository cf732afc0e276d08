"""Rows on standard output, a table per epoch or a line per row."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from penstock.options import Count, Options
from penstock.sinks.base import Epoch, Guarantee, Sink, Target
from penstock.sinks.column import column, row_as_json
from penstock.sinks.text_table import text_table
from penstock.spark.pretty import texts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.config import Settings

LONGEST = 20
"""How many letters of a value a table shows that cuts long ones."""


class ConsoleOptions(Options):
    """What of an epoch is printed, and how."""

    rows: Count = Field(
        20, description="how many rows of an epoch are shown; further ones are counted, not shown"
    )
    truncate: bool = Field(True, description="cut long values")
    format: Literal["table", "json"] = Field(
        "table", description="a `table` per epoch, or a `json` object per row and line"
    )
    sample_every: Count = Field(1, description="print one row of so many")
    num_records_before_stop: Count | None = Field(
        None, description="end the pipeline when so many rows were printed; default: it goes on"
    )


class ConsoleSink(Sink):
    """Prints the first rows of every epoch that has any; the operation of a row stands before its values."""

    Options = ConsoleOptions
    takes_operations: ClassVar[bool] = True

    options: ConsoleOptions
    needs_checkpoint = False

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        super().__init__(options, settings)
        self._operation: str | None = None
        self._seen = self._printed = 0

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.NOT_KEPT

    @property
    def is_done(self) -> bool:
        most = self.options.num_records_before_stop
        return most is not None and self._printed >= most

    def open(self, target: Target) -> None:
        self._operation = target.operation

    def write(self, epoch: Epoch) -> int | None:
        frame = _with_first(epoch.frame, self._operation)
        if self.options.format == "json":
            rows = frame.select(row_as_json(frame.columns).alias("row")).toArrow()
        else:
            rows = texts(frame).toArrow()
        sample = self._sample(rows)
        most = self._most()
        if sample.num_rows and most:
            self._print(epoch.number, sample, most)
            sys.stdout.flush()
        return int(rows.num_rows)

    def _sample(self, rows: pa.Table) -> pa.Table:
        """One row of so many, counted over all epochs."""
        import pyarrow as pa

        every = self.options.sample_every
        first = -self._seen % every
        self._seen += rows.num_rows
        return rows if every == 1 else rows.take(pa.array(range(first, rows.num_rows, every), pa.int64()))

    def _most(self) -> int:
        """How many rows of this epoch may be printed."""
        before_stop = self.options.num_records_before_stop
        left = self.options.rows if before_stop is None else before_stop - self._printed
        return min(self.options.rows, left)

    def _print(self, number: int, rows: pa.Table, most: int) -> None:
        shown = rows.slice(0, most)
        self._printed += shown.num_rows
        if self.options.format == "json":
            print(*shown.column(0).to_pylist(), sep="\n")
            return
        print(f"epoch {number}")
        columns = [column.to_pylist() for column in shown.columns]
        print(text_table(shown.column_names, columns, longest=LONGEST if self.options.truncate else None))
        if rows.num_rows > most:
            print(f"only the first {most} of {rows.num_rows} rows\n")


def _with_first(frame: DataFrame, name: str | None) -> DataFrame:
    """The frame with this column before the others."""
    if name is None or frame.columns[0] == name:
        return frame
    others = [other for other in frame.columns if other != name]
    return frame.select(*[column(other) for other in (name, *others)])
