"""JSON as rows: one parse per record, which tells records that do not fit from those that do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.sources.decimal_text import lossy, narrowed, wide_scale, widened

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

PARSED = "_penstock_parsed"
CORRUPT = "_penstock_corrupt"
INTEGER_BITS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
SHOWN = 60
DOES_NOT_FIT = "it does not fit the schema"


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """JSON objects as rows; `options` are those of Spark's from_json."""

    schema: StructType
    options: Mapping[str, Any] = field(default_factory=dict)
    alias: str = PARSED

    def parse(self, value: Column) -> Column:
        """Return the column of a parsed record, a struct with one more field that says whether it is corrupt."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        wide = StructType([*widened(self.schema).fields, StructField(CORRUPT, StringType())])
        options = {name: _text(value) for name, value in self.options.items()}
        return F.from_json(
            value.cast("string"),
            wide,
            {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT},
        )

    def is_bad(self, value: Column, parsed: Column) -> Column:
        """Return whether a value that is not NULL is not a JSON object of these columns, or not without loss."""
        from pyspark.sql import functions as F

        text = value.cast("string")
        # Spark stops at the end of the first object, and puts question marks in the place of bytes that are not UTF-8.
        ends = text.endswith("}") | F.rtrim(text, F.lit(" \t\r\n")).endswith("}")
        bad = parsed.isNull() | parsed.getField(CORRUPT).isNotNull() | ~ends | ~F.is_valid_utf8(text)
        loss = lossy(parsed, self.schema)
        return text.isNotNull() & (bad if loss is None else bad | loss)

    def columns(self, parsed: Column) -> list[Column]:
        """Return the columns of a parsed record."""
        return [column.alias(name) for name, column in narrowed(parsed, self.schema).items()]

    def why(self, max_bytes: int | None) -> WhyNotJson:
        """Return what says why a value is bad."""
        return WhyNotJson(self.schema.json(), max_bytes)


@dataclass(frozen=True, slots=True)
class WhyNotJson:
    """Says why bytes are not a JSON object of these columns."""

    schema: str
    """The columns, as Spark writes them in JSON."""
    max_bytes: int | None = None

    def __call__(self, raw: bytes | None) -> str:
        from pyspark.sql.types import StructType

        if raw is None:
            return "it has no value"
        if self.max_bytes is not None and len(raw) > self.max_bytes:
            return f"it is larger than max_record_bytes={self.max_bytes}"
        try:
            text = bytes(raw).decode()
        except UnicodeDecodeError as error:
            return f"it is not UTF-8 (byte {error.start})"
        if not text.strip():
            return "it is empty"
        try:
            value = json.loads(text, parse_float=Decimal)
        except ValueError as error:
            return f"it is not JSON: {_sentence(error)}"
        if not isinstance(value, dict):
            return f"it is {_kind(value)}, not a JSON object"
        misfit = next(_misfits("", value, StructType.fromJson(json.loads(self.schema))), None)
        return misfit or DOES_NOT_FIT


def _misfits(path: str, value: Any, kind: Any) -> Iterator[str]:
    """Yield what does not fit, field by field."""
    name = kind.typeName()
    if value is None or name in ("string", "variant"):
        return
    if name == "struct":
        if not isinstance(value, dict):
            yield _misfit(path, value, kind)
            return
        for field in kind.fields:
            yield from _misfits(
                f"{path}.{field.name}" if path else field.name, value.get(field.name), field.dataType
            )
    elif name == "array":
        if not isinstance(value, list):
            yield _misfit(path, value, kind)
            return
        for index, item in enumerate(value):
            yield from _misfits(f"{path}[{index}]", item, kind.elementType)
    elif name == "map":
        if not isinstance(value, dict):
            yield _misfit(path, value, kind)
            return
        for key, item in value.items():
            yield from _misfits(f"{path}.{key}", item, kind.valueType)
    elif not fits(value, kind):
        yield _misfit(path, value, kind)


def fits(value: Any, kind: Any) -> bool:
    """Whether a value of JSON is one of a simple type of Spark, as far as that can be checked here."""
    name = kind.typeName()
    if name == "string":
        return True
    if name in INTEGER_BITS:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        return is_integer and -(1 << INTEGER_BITS[name]) <= value < 1 << INTEGER_BITS[name]
    if name == "boolean":
        return isinstance(value, bool)
    if name in ("float", "double"):
        return not isinstance(value, bool) and (
            isinstance(value, int | Decimal)
            or value in ("NaN", "Infinity", "-Infinity", "INF", "-INF", "+INF")
        )
    if name == "decimal":
        return _fits_decimal(value, kind)
    if name in ("timestamp", "timestamp_ntz", "date"):
        return isinstance(value, int) or (isinstance(value, str) and _is_time(value, name))
    return True


def _fits_decimal(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):
        return False
    try:
        digits = round(Decimal(value), wide_scale(kind.precision, kind.scale)[1]).normalize().as_tuple()
    except (ArithmeticError, TypeError, ValueError):
        return False
    if not isinstance(digits.exponent, int):
        return False
    before = len(digits.digits) + digits.exponent
    return bool(-digits.exponent <= kind.scale and before <= kind.precision - kind.scale)


def _is_time(text: str, name: str) -> bool:
    try:
        (date if name == "date" else datetime).fromisoformat(text)
    except ValueError:
        return False
    return True


def _misfit(path: str, value: Any, kind: Any) -> str:
    shown = json.dumps(value, default=str, ensure_ascii=False)
    if isinstance(value, Decimal):
        shown = str(value)
    if len(shown) > SHOWN:
        shown = f"{shown[:SHOWN]}..."
    return f"{path} is {shown}, which is not {kind.simpleString().upper()}"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", Decimal: "a number"}
    return names.get(type(value), "something else")


def _sentence(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]} at character {error.pos + 1}"
    return str(error)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
