"""TIME columns: the nanoseconds of a day, of which Spark keeps as many digits of a second as the type says."""

from __future__ import annotations

import re
from datetime import time

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import DataError

KIND = pa.time64("ns")
_DIGITS = re.compile(r"time\((\d)\)")


def to_nanos(column: pa.Array, kind: str, *, name: str, where: str) -> pa.Array:
    """Return times or text as a column of the type `time(n)`; digits beyond its precision are cut off, as a cast in Spark does.

    >>> to_nanos(pa.array(["12:30:00.123456"]), "time(3)", name="c", where="").to_pylist()
    [datetime.time(12, 30, 0, 123000)]
    """
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = _from_text(column, name=name, where=where)
    elif not (pa.types.is_time(column.type) or pa.types.is_null(column.type)):
        raise DataError(
            f"column '{name}' holds {column.type} values that do not fit {kind.upper()}",
            code="DATA_TYPE",
            where=where,
            hint="feed datetime.time, Arrow times, or text as 12:30:00.5",
        )
    match = _DIGITS.fullmatch(kind)
    unit = 10 ** (9 - int(match[1] if match else 6))
    numbers = pc.cast(column, KIND).cast(pa.int64())
    return pc.multiply(pc.divide(numbers, unit), unit).cast(KIND)


def _from_text(column: pa.Array, *, name: str, where: str) -> pa.Array:
    times: list[time | None] = []
    for text in column.to_pylist():
        try:
            moment = None if text is None else time.fromisoformat(text.strip())
            if moment is not None and moment.tzinfo is not None:
                raise ValueError(text)
            times.append(moment)
        except ValueError:
            raise DataError(
                f"column '{name}' is a TIME, and this text is none: {text!r}",
                code="DATA_TYPE",
                where=where,
                hint="write it as 12:30:00.5",
            ) from None
    return pa.array(times, KIND)
