"""Rows of an epoch that the system of a sink refuses for their values: which they are stays what it was when the
epoch comes again.

What a system refuses may depend on what it has: a row whose key is there already would be refused again when it was
stored the first time. So a sink notes the rows that it leaves out in the state backend before it commits the others,
with the number of the epoch. An epoch that the sink has committed is not looked at again; one that it has not is
looked at anew.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from penstock.sinks.failed_row import ERROR, INPUT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.plugin import KeyValues

_KEY = "refused"


class RefusedRows:
    """The rows of one sink; a sink calls `restart`, `add` and `keep`, all else is for the group that it is part of."""

    def __init__(self, spark: SparkSession, values: KeyValues | None) -> None:
        self._spark = spark
        self._values = values
        self._epoch = -1
        self._rows: list[tuple[str, str]] = []
        self._noted = -1

    def begin(self, epoch: int) -> None:
        """Called before the sink writes an epoch: what was noted for it in an earlier attempt is there."""
        note = None if self._values is None else self._values.get(_KEY)
        self._epoch, self._rows = epoch, []
        self._noted = -1 if note is None else int(note["epoch"])
        if note is not None and self._noted == epoch:
            self._rows = [(reason, row) for reason, row in note["rows"]]

    def inputs(self) -> Counter[str]:
        """The rows, as JSON, and how often each of them was refused."""
        return Counter(row for _, row in self._rows)

    def restart(self) -> None:
        """Called by a sink that has stored nothing of the epoch: its rows are looked at anew."""
        self._rows = []

    def add(self, reason: str, row: str) -> None:
        """Leave out a row, which is `row` as `input_of` says it."""
        self._rows.append((reason, row))

    def keep(self) -> None:
        """Called by the sink before it commits the rows that it takes: note the others."""
        if self._values is not None and (self._rows or self._noted == self._epoch):
            self._values.put(_KEY, {"epoch": self._epoch, "rows": [list(row) for row in self._rows]})
            self._noted = self._epoch

    def finalize(self, epoch: int) -> None:
        """The epoch does not come again."""
        if self._values is not None and 0 <= self._noted <= epoch:
            self._values.remove(_KEY)
            self._noted = -1

    def count(self) -> int:
        """How many rows of the epoch were refused."""
        return len(self._rows)

    def failed(self) -> DataFrame | None:
        """The refused rows, as `_error` and `_input`; None when there is none."""
        if not self._rows:
            return None
        return self._spark.createDataFrame(self._rows, f"{ERROR} STRING, {INPUT} STRING")
