"""Values of Catalyst's internal form, as Front.java writes them, to plain Python values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from penstock.data.types import parse

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)


def decode(value: Any, kind: str) -> Any:
    """Return the Python value of a Catalyst value of the given Spark type.

    Dates and timestamps that Python's types cannot hold (year 10000, negative years) stay day or microsecond numbers;
    a struct is a dict, a map a list of pairs, an interval a number of months or microseconds, or months, days and microseconds;
    a time of the day is a number of nanoseconds, a VARIANT its two parts.
    """
    if value is None:
        return None
    if kind.startswith("decimal"):
        return Decimal(value)
    parsed = parse(kind)
    match parsed.kind:
        case "float" | "double":
            return float({"Infinity": "inf", "-Infinity": "-inf"}.get(value, value))
        case "binary":
            return bytes.fromhex(value)
        case "date":
            ordinal = value + _EPOCH_DAY
            return date.fromordinal(ordinal) if 1 <= ordinal <= date.max.toordinal() else value
        case "timestamp" | "timestamp_ntz":
            return _moment(value, aware=parsed.kind == "timestamp")
        case "array":
            return [decode(item, parsed.inner[0]) for item in value]
        case "map":
            keys, values = value
            return [
                (decode(key, parsed.inner[0]), decode(item, parsed.inner[1]))
                for key, item in zip(keys, values, strict=True)
            ]
        case "struct":
            return {
                name: decode(item, inner)
                for name, inner, item in zip(parsed.names, parsed.inner, value, strict=True)
            }
        case "interval":
            return tuple(value)
        case "variant":
            return {"value": bytes.fromhex(value[0]), "metadata": bytes.fromhex(value[1])}
    return value


def _moment(micros: int, *, aware: bool) -> datetime | int:
    try:
        moment = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return micros
    return moment.replace(tzinfo=UTC) if aware else moment


def rows(values: Sequence[Sequence[Any]], kinds: Sequence[str]) -> tuple[tuple[Any, ...], ...]:
    """Return the rows of a local relation."""
    return tuple(tuple(decode(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in values)
