"""A row that a node could not take: the columns that say so, and the row as JSON from which the same values can be read again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.sinks.column import column

if TYPE_CHECKING:
    from pyspark.sql import Column

ERROR, INPUT = "_error", "_input"
"""Columns of rows that failed: why, and the row as it came in, as JSON. Rows that did not fail have NULL in them."""
FORMAT = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""How times are written, for `to_json` and `from_json`: by default Spark cuts them off after the milliseconds."""
NTZ_FORMAT = {"timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}


def input_of(names: Iterable[str]) -> Column:
    """The columns of a row as JSON, exactly and with NULL written out: what stands in `_input`."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    row = F.struct(*[column(name) for name in names])
    return F.to_json(row, {"ignoreNullFields": "false", **FORMAT, **NTZ_FORMAT})
