"""to_json: values as JSON text, as Spark's generator writes them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.types import decimal_parts, parse
from penstock.functions.java_double import double_text, float_text
from penstock.functions.json.writer import quoted
from penstock.functions.scalars import datetime_format, zones
from penstock.functions.scalars.base import BeyondKernel
from penstock.functions.scalars.datetime_pattern import PatternPart

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_SIMPLE = _INTEGERS | {"boolean", "float", "double", "string", "binary", "date", "timestamp_ntz", "void"}
_DAY = 86_400_000_000
_MOST_DAYS = 100_000_000  # whose microseconds are a long

Write = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class JsonStyle:
    """Whether fields that are NULL are left out, which Java writes doubles, the zone of timestamps, and patterns of
    dates and timestamps."""

    skip_nulls: bool
    java: int
    zone: str | None
    date: tuple[PatternPart, ...] | None = None
    moment: tuple[PatternPart, ...] | None = None


def reason(kind: str, zone: str | None) -> str | None:
    """Why values of a type are not written, None when they are."""
    parsed = parse(kind)
    if parsed.kind == "struct" and len(set(parsed.names)) < len(parsed.names):
        return "two fields of one name"
    if parsed.kind == "map" and parsed.inner[0] not in _INTEGERS | {"string", "boolean"}:
        return f"keys of {parsed.inner[0]}"
    if parsed.kind in ("struct", "array", "map"):
        return next((why for inner in parsed.inner if (why := reason(inner, zone)) is not None), None)
    if kind == "timestamp":
        return zones.reason(zone)
    return None if kind in _SIMPLE or decimal_parts(kind) is not None else kind


def plain(column: pa.Array) -> pa.Array:
    """A column with numbers of days and microseconds in the place of dates and times, which Python cannot hold in all years."""
    kind = _plain_type(column.type)
    return column if kind == column.type else pc.cast(column, kind)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    return kind


def writer(kind: str, style: JsonStyle) -> Write:
    """What writes a value of a type that is not NULL."""
    parsed = parse(kind)
    match parsed.kind:
        case "struct":
            return _object(parsed.names, [writer(inner, style) for inner in parsed.inner], style.skip_nulls)
        case "array":
            element = writer(parsed.inner[0], style)
            return lambda items: f"[{','.join('null' if item is None else element(item) for item in items)}]"
        case "map":
            return _map(parsed.inner[0], writer(parsed.inner[1], style))
        case "string":
            return lambda text: quoted(text, wide_escapes=False)
        case "boolean":
            return lambda value: "true" if value else "false"
        case "binary":
            return lambda value: f'"{base64.b64encode(value).decode()}"'
        case "double":
            return lambda value: _number(double_text(value, style.java))
        case "float":
            return lambda value: _number(float_text(value, style.java))
        case "date" if style.date is not None:
            date_parts = style.date
            return lambda days: _day_by(date_parts, days, style)
        case "timestamp" if style.moment is not None:
            parts = style.moment
            return lambda micros: _moment_by(parts, micros, style.zone, style)
        case "date":
            return lambda days: f'"{_date(days)}"'
        case "timestamp_ntz":
            return lambda micros: f'"{_moment(micros)}"'
        case "timestamp":
            return lambda micros: _instant(micros, style.zone)
    return str


def _number(text: str) -> str:
    return f'"{text}"' if text[-1] in "Ny" else text


def _object(names: tuple[str, ...], fields: list[Write], skip_nulls: bool) -> Write:
    parts = [
        (name, quoted(name, wide_escapes=False) + ":", write)
        for name, write in zip(names, fields, strict=True)
    ]

    def write(row: Any) -> str:
        written = [
            label + ("null" if row[name] is None else field(row[name]))
            for name, label, field in parts
            if row[name] is not None or not skip_nulls
        ]
        return "{" + ",".join(written) + "}"

    return write


def _map(key: str, inner: Write) -> Write:
    def name(value: Any) -> str:
        text = value if key == "string" else str(value).lower() if key == "boolean" else str(value)
        return quoted(text, wide_escapes=False)

    def write(pairs: Any) -> str:
        return (
            "{"
            + ",".join(
                f"{name(key_value)}:{'null' if item is None else inner(item)}" for key_value, item in pairs
            )
            + "}"
        )

    return write


def _moment_by(parts: tuple[PatternPart, ...], micros: int, zone: str | None, style: JsonStyle) -> str:
    text = datetime_format.written(parts, np.array([micros], np.int64), zone, style.java)[0].as_py()
    return quoted(text, wide_escapes=False)


def _day_by(parts: tuple[PatternPart, ...], days: int, style: JsonStyle) -> str:
    if abs(days) > _MOST_DAYS:
        raise BeyondKernel(f"the day {days} is far away")
    return _moment_by(parts, days * _DAY, "UTC", style)


def _date(days: int) -> str:
    year, month, day = zones.civil_from_days(days)
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def _moment(micros: int) -> str:
    days, rest = divmod(micros, _DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{_date(days)}T{clock}.{fraction // 1000:03d}"


def _instant(micros: int, zone: str | None) -> str:
    offset = int(zones.offsets_at(np.array([micros], np.int64), zone)[0])
    minutes, seconds = divmod(abs(offset) // 1_000_000, 60)
    sign = "-" if offset < 0 else "+"
    behind = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if offset else "Z"
    if seconds:
        behind += f":{seconds:02d}"
    return f'"{_moment(micros + offset)}{behind}"'
