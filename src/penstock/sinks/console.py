"""Rows on standard output, a table per epoch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.sinks.base import Epoch, Guarantee, Sink

ROWS = 20


class ConsoleSink(Sink):
    """Prints the first rows of every epoch that has any."""

    taken: ClassVar[tuple[str, ...]] = ("rows", "truncate")
    needs_checkpoint: ClassVar[bool] = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.only_known()
        self._rows = self.positive("rows", ROWS)
        self._truncate = str(self.options.get("truncate", True)).lower() == "true"

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.NOT_KEPT

    def write(self, epoch: Epoch) -> int | None:
        rows = epoch.frame.toArrow()
        if rows.num_rows:
            shown = epoch.frame.sparkSession.createDataFrame(rows.slice(0, self._rows))
            print(f"epoch {epoch.number}")
            shown.show(self._rows, self._truncate)
            if rows.num_rows > self._rows:
                print(f"only the first {self._rows} of {rows.num_rows} rows\n")
            sys.stdout.flush()
        return int(rows.num_rows)
