"""Rows on standard output, a table per epoch."""

from __future__ import annotations

import sys

from pydantic import Field

from penstock.options import Count, Options
from penstock.sinks.base import Epoch, Guarantee, Sink


class ConsoleOptions(Options):
    """How much of an epoch is printed."""

    rows: Count = Field(20, description="rows per epoch")
    truncate: bool = Field(True, description="cut long values")


class ConsoleSink(Sink):
    """Prints the first rows of every epoch that has any."""

    Options = ConsoleOptions

    options: ConsoleOptions
    needs_checkpoint = False

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.NOT_KEPT

    def write(self, epoch: Epoch) -> int | None:
        rows, most = epoch.frame.toArrow(), self.options.rows
        if rows.num_rows:
            first = epoch.frame.sparkSession.createDataFrame(rows.slice(0, most))
            print(f"epoch {epoch.number}")
            first.show(most, self.options.truncate)
            if rows.num_rows > most:
                print(f"only the first {most} of {rows.num_rows} rows\n")
            sys.stdout.flush()
        return int(rows.num_rows)
