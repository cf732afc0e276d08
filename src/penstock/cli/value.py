"""One value as text: for a table, for CSV and for JSON, exactly and the same for every command.

Integers and decimals keep every digit, timestamps are ISO 8601, NaN and the infinities are the strings that Spark's
own JSON uses, binary is base64 (hexadecimal in tables), intervals are ISO 8601 durations, and a nested value or a
VARIANT is JSON in all three.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

NULL = "NULL"

_escape_string = json.encoder.encode_basestring
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160), 0x200E, 0x200F, 0x202A, 0x202E)}
_CONTROL |= {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}


class JsonText(str):
    """Text that is JSON already, as that of a VARIANT."""


def json_text(value: Any) -> str:
    """The value as JSON.

    >>> json_text({"n": Decimal("1.10"), "t": None})
    '{"n": 1.10, "t": null}'
    """
    if value is None:
        return "null"
    if isinstance(value, JsonText):
        return value
    if isinstance(value, str):
        return _escape_string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = float_text(value)
        return text if text[-1].isdigit() else f'"{text}"'
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, Mapping):
        inside = (f"{_escape_string(_plain(key))}: {json_text(item)}" for key, item in value.items())
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, list | tuple) and not hasattr(value, "_fields") and not _is_interval(value):
        return "[" + ", ".join(map(json_text, value)) + "]"
    return _escape_string(_plain(value))


def csv_text(value: Any) -> str:
    """The value as a CSV field: NULL is nothing, and an empty string is a pair of quotes."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else _plain(value)
    if not text or any(mark in text for mark in ',"\n\r') or text[0] == " " or text[-1] == " ":
        return '"' + text.replace('"', '""') + '"'
    return text


def table_text(value: Any) -> str:
    """The value as a table cell: one line, no control characters, and a string that says NULL is quoted."""
    if value is None:
        return NULL
    if isinstance(value, str):
        return f'"{value}"' if value == NULL else value.translate(_CONTROL)
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return _plain(value).translate(_CONTROL)


def float_text(value: float) -> str:
    """The shortest text that reads back as the same number, NaN and the infinities as Spark writes them."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def duration_text(value: dt.timedelta) -> str:
    """An ISO 8601 duration.

    >>> duration_text(dt.timedelta(days=1, hours=2, microseconds=500_000))
    'P1DT2H0.5S'
    """
    if value < dt.timedelta(0):
        return "-" + duration_text(-value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = (
        f"{seconds}.{value.microseconds:06d}".rstrip("0").rstrip(".") if value.microseconds else str(seconds)
    )
    time = "".join(
        part + unit for part, unit in ((str(hours), "H"), (str(minutes), "M"), (text, "S")) if part != "0"
    )
    days = f"{value.days}D" if value.days else ""
    return f"P{days}{'T' if time else ''}{time}" if days or time else "PT0S"


def interval_text(months: int, days: int, nanoseconds: int) -> str:
    """An interval of months, days and parts of a day as an ISO 8601 duration, in which each part has its own sign.

    >>> interval_text(14, -3, 500_000_000)
    'P1Y2M-3DT0.5S'
    """
    years, months = int(months / 12), months - 12 * int(months / 12)
    dates = "".join(f"{part}{unit}" for part, unit in ((years, "Y"), (months, "M"), (days, "D")) if part)
    sign, micros = ("-" if nanoseconds < 0 else ""), abs(nanoseconds) // 1000
    minutes, seconds = divmod(micros, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{seconds / 1_000_000:.6f}".rstrip("0").rstrip(".")
    times = "".join(
        sign + part + unit
        for part, unit in ((str(hours), "H"), (str(minutes), "M"), (text, "S"))
        if part != "0"
    )
    return f"P{dates}{'T' if times else ''}{times}" if dates or times else "PT0S"


def _is_interval(value: Any) -> bool:
    """Whether a value is Arrow's tuple of months, days and nanoseconds."""
    return isinstance(value, tuple) and hasattr(value, "nanoseconds")


def _plain(value: Any) -> str:
    """A value's text where no quotes are needed around it."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, dt.timedelta):
        return duration_text(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if _is_interval(value):
        return interval_text(*value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if value is None or isinstance(value, bool | int | Decimal | Mapping | list | tuple):
        return json_text(value)
    return str(value)
