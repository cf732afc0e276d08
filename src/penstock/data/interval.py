"""Intervals of years and months, of days and seconds: between Arrow's types, text as Spark writes it, and whole units."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.arrays import Numbers
from penstock.errors import DataError

_UNITS = ("year", "month", "day", "hour", "minute", "second")
_SEPARATORS = {"month": "-", "hour": " ", "minute": ":", "second": ":"}  # before a unit that is not the first
_MOST = {"month": 11, "hour": 23, "minute": 59, "second": 59}  # of a unit that is not the first
_MONTHS = {"year": 12, "month": 1}
_MICROS = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_PARTS = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
_INT, _LONG = 2**31, 2**63


def from_months(column: pa.Array) -> pa.Array:
    """Return numbers of months as Arrow's intervals.

    >>> from_months(pa.array([14, None], pa.int32())).to_pylist()
    [MonthDayNano(months=14, days=0, nanoseconds=0), None]
    """
    parts = np.zeros(len(column), _PARTS)
    parts["months"] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return _with_buffers(pa.month_day_nano_interval(), column, parts)


def to_months(column: pa.Array, *, name: str, where: str) -> pa.Array:
    """Return Arrow's intervals as numbers of months; one that has days or parts of a day is an error."""
    data = column.buffers()[1]
    parts = (
        np.zeros(0, _PARTS) if data is None else np.frombuffer(data, _PARTS)[column.offset :][: len(column)]
    )
    broken = ((parts["days"] != 0) | (parts["nanos"] != 0)) & column.is_valid().to_numpy(zero_copy_only=False)
    if broken.any():
        raise DataError(
            f"column '{name}' holds an interval of years and months, got {column[int(broken.argmax())].as_py()}",
            code="DATA_TYPE",
            where=where,
            hint="feed whole months, or declare the column as INTERVAL",
        )
    return _with_buffers(pa.int32(), column, np.ascontiguousarray(parts["months"]))


def cut_to_micros(column: pa.Array) -> pa.Array:
    """Return Arrow's intervals as Spark has them, without the nanoseconds below a microsecond."""
    data = column.buffers()[1]
    if data is None or not len(column):
        return column
    parts = np.frombuffer(data, _PARTS)[column.offset :][: len(column)]
    if not (parts["nanos"] % 1000).any():
        return column
    parts = parts.copy()
    parts["nanos"] -= np.fmod(parts["nanos"], 1000)
    return _with_buffers(column.type, column, parts)


def _with_buffers(kind: pa.DataType, column: pa.Array, values: Numbers) -> pa.Array:
    valid = None
    if column.null_count:
        bits = np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
        valid = pa.py_buffer(bits)
    return pa.Array.from_buffers(kind, len(column), [valid, pa.py_buffer(values)])


def from_text(column: pa.Array, kind: str, *, name: str, where: str) -> pa.Array:
    """Return text as an interval type: `1-2` or `INTERVAL '1-2' YEAR TO MONTH`, as a cast in Spark takes it.

    >>> from_text(pa.array(["-1 02:03:04.5"]), "interval day to second", name="c", where="").to_pylist()
    [datetime.timedelta(days=-2, seconds=79015, microseconds=500000)]
    """
    pattern, units = _pattern(kind)
    months = units[0] in _MONTHS
    numbers = []
    for text in column.to_pylist():
        number = None if text is None else _amount(pattern.fullmatch(text.strip()), units, months=months)
        if number is None and text is not None:
            raise DataError(
                f"column '{name}' is {kind.upper()}, and this text is none: {text!r}",
                code="DATA_TYPE",
                where=where,
                hint=f"write it as in INTERVAL '{_example(units)}' {kind.removeprefix('interval ').upper()}",
            )
        numbers.append(number)
    return pa.array(numbers, pa.int32() if months else pa.duration("us"))


def cut(column: pa.Array, kind: str) -> pa.Array:
    """Return a day-time interval in whole units of the last field of its type, as Spark writes it into a table.

    >>> from datetime import timedelta
    >>> cut(pa.array([timedelta(hours=-25)]), "interval day").to_pylist()
    [datetime.timedelta(days=-1)]
    """
    return _cut_to(column, _MICROS[_units(kind)[-1]]) if not kind.endswith("second") else column


def cut_months(column: pa.Array, kind: str) -> pa.Array:
    """Return numbers of months in whole units of the last field of their type."""
    return _cut_to(column, 12) if kind.endswith("year") else column


def _cut_to(column: pa.Array, unit: int) -> pa.Array:
    numbers = column.cast(pa.int64())
    return pc.multiply(pc.divide(numbers, unit), unit).cast(column.type)


def _units(kind: str) -> tuple[str, ...]:
    words = kind.split()
    return _UNITS[_UNITS.index(words[1]) : _UNITS.index(words[-1]) + 1]


@lru_cache(maxsize=16)
def _pattern(kind: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    units = _units(kind)
    number = r"\d{1,9}" if units[0] != "second" else r"\d{1,13}"
    parts = [f"(?P<{units[0]}>{number})"]
    parts += [rf"{_SEPARATORS[unit]}(?P<{unit}>\d{{1,2}})" for unit in units[1:]]
    amount = "".join(parts) + (r"(?:\.(?P<fraction>\d{1,9}))?" if units[-1] == "second" else "")
    words = r"\s+TO\s+".join(word.upper() for word in dict.fromkeys((units[0], units[-1])))
    return (
        re.compile(
            rf"(?P<sign>[+-])?{amount}|INTERVAL\s+(?P<outer>[+-])?\s*'(?P<inner>[+-])?{_renamed(amount)}'\s+{words}",
            re.IGNORECASE,
        ),
        units,
    )


def _renamed(amount: str) -> str:
    return re.sub(r"\?P<(\w+)>", r"?P<q_\1>", amount)


def _amount(match: re.Match[str] | None, units: tuple[str, ...], *, months: bool) -> int | None:
    if match is None:
        return None
    prefix = "" if match[units[0]] is not None else "q_"
    counts = [int(match[prefix + unit]) for unit in units]
    if any(count > _MOST[unit] for unit, count in zip(units[1:], counts[1:], strict=True)):
        return None
    sizes = _MONTHS if months else _MICROS
    number = sum(count * sizes[unit] for unit, count in zip(units, counts, strict=True))
    if units[-1] == "second" and match[prefix + "fraction"]:
        number += int(match[prefix + "fraction"].ljust(9, "0")[:6])
    signs = [match[group] for group in ("sign", "outer", "inner")]
    number = -number if signs.count("-") % 2 else number
    most = _INT if months else _LONG
    return number if -most <= number < most else None


def _example(units: tuple[str, ...]) -> str:
    return "1" + "".join(_SEPARATORS[unit] + "02" for unit in units[1:])
