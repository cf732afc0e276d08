"""Values as PostgreSQL writes them, as columns of Arrow in the types of Spark: nothing is rounded, nothing becomes
NULL unasked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import DataError
from penstock.sources.postgres.array import split_arrays
from penstock.sources.postgres.column import TableColumn, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

SpecialValues = Literal["fail", "null"]
_SPECIAL = ("NaN", "Infinity", "-Infinity", "infinity", "-infinity")
_DATE = re.compile(r"(\d+)-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:\+00)?)?( BC)?")


def as_column(texts: pa.Array, column: TableColumn, *, specials: SpecialValues, where: str) -> pa.Array:
    """Return a column of Spark's type from PostgreSQL's texts, which are strings of either width."""
    import pyarrow as pa

    try:
        return _converted(texts, column.type, specials)
    except (pa.ArrowInvalid, ValueError) as error:
        raise _misfit(texts, column, specials, where=where) from error
    except DataError as error:
        error.where = f"{where}, column '{column.name}'"
        raise


def _converted(texts: pa.Array, kind: str, specials: SpecialValues) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = arrow_type(kind)
    if kind.startswith("array<"):
        lists = split_arrays(texts)
        values = _converted(lists.values, kind[6:-1], specials)
        return pa.ListArray.from_arrays(lists.offsets, values, mask=lists.is_null())
    match kind:
        case "boolean":
            return pc.equal(texts, pa.scalar("t", texts.type))
        case "binary":
            return _bytes(texts)
        case "float" | "double" | "string" | "smallint" | "int" | "bigint":
            return pc.cast(texts, wanted)
    try:
        return pc.cast(texts, wanted)
    except (pa.ArrowInvalid, ValueError):
        # A few values are what Arrow does not read: infinity, years before Christ or beyond 9999. The others need not be slow.
        plain = _without_specials(texts, specials)
        if pa.types.is_date(wanted) or pa.types.is_timestamp(wanted):
            return _distant(plain, wanted)
        return pc.cast(plain, wanted)


def _without_specials(texts: pa.Array, specials: SpecialValues) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if specials == "fail":
        return texts
    special = pc.is_in(texts, value_set=pa.array(_SPECIAL, texts.type))
    return pc.if_else(special, pa.scalar(None, texts.type), texts)


def _distant(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Dates and timestamps of any year."""
    import pyarrow as pa

    is_date = pa.types.is_date(wanted)
    numbers = [None if text is None else _since_1970(text, is_date) for text in texts.to_pylist()]
    return pa.array(numbers, pa.int32() if is_date else pa.int64()).cast(wanted)


def _since_1970(text: str, is_date: bool) -> int:
    import numpy as np

    match = _DATE.fullmatch(text)
    if match is None or (match[4] is None) != is_date:
        raise ValueError(text)
    year = 1 - int(match[1]) if match[8] else int(match[1])
    # As months and days, because NumPy reads no year of more than four digits.
    month = np.datetime64((year - 1970) * 12 + int(match[2]) - 1, "M")
    day = int(month.astype("datetime64[D]").astype(np.int64)) + int(match[3]) - 1
    if is_date:
        return day
    clock = int(match[4]) * 3600 + int(match[5]) * 60 + int(match[6])
    micros = (day * 86_400 + clock) * 1_000_000 + int((match[7] or "").ljust(6, "0") or 0)
    if not -(2**63) < micros < 2**63:
        raise ValueError(text)
    return micros


def _bytes(texts: pa.Array) -> pa.Array:
    """Hexadecimal `\\x6162` as bytes."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    # Every value begins with the two characters, also one that stands in for NULL.
    filled = pc.fill_null(pc.cast(texts, pa.large_binary()), b"\\x")
    _, offset_buffer, data = filled.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, len(filled) + 1, filled.offset * 8)
    raw = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if len(filled) else np.empty(0, np.uint8)
    begins = offsets[:-1] - offsets[0]
    digits = np.delete(raw, np.concatenate([begins, begins + 1]))
    # '0' to '9' are 48 to 57, 'a' to 'f' 97 to 102.
    nibbles = np.where(digits >= 97, digits - 87, digits - 48).astype(np.uint8)
    packed = nibbles[0::2] << 4 | nibbles[1::2]
    starts = (offsets - offsets[0] - 2 * np.arange(len(offsets))) // 2
    binaries = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(filled), [None, pa.py_buffer(starts), pa.py_buffer(packed)]
    )
    return pc.if_else(texts.is_null(), pa.scalar(None, pa.large_binary()), binaries).cast(pa.binary())


def _misfit(texts: pa.Array, column: TableColumn, specials: SpecialValues, *, where: str) -> DataError:
    """The error with the first value that does not fit."""
    value = _first_that_fails(texts, lambda text: _converted(text, column.type, specials))
    if value.strip("{}") in _SPECIAL:
        hint = f"special_values: null reads it as NULL, and types: {{{column.name}: string}} as text"
    else:
        hint = f"read the column as text with types: {{{column.name}: string}}"
    if column.type.startswith("decimal") and value.strip("{}") not in _SPECIAL:
        hint = f'give the column more digits, as in types: {{{column.name}: "decimal(38,9)"}}, or read it as string'
    return DataError(
        f"the value {value[:80]!r} of column '{column.name}' ({column.kind}) does not fit {column.type}",
        code="SOURCE_VALUE",
        where=where,
        hint=hint,
    )


def _first_that_fails(texts: pa.Array, convert: Callable[[Any], Any]) -> str:
    import pyarrow as pa

    # Halves, so that a column of any length needs few conversions.
    begin, end = 0, len(texts)
    while end - begin > 1:
        middle = (begin + end) // 2
        try:
            convert(texts.slice(begin, middle - begin))
        except (pa.ArrowInvalid, ValueError):
            end = middle
        else:
            begin = middle
    return str(texts[begin].as_py()) if len(texts) else ""
