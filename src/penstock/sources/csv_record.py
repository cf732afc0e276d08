"""Why a line is not a row of CSV."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.sources.json_record import fits

NUMBERS = ("byte", "short", "integer", "long", "decimal", "float", "double")


@dataclass(frozen=True, slots=True)
class WhyNotCsv:
    """Says why a line is not a row of these columns."""

    schema: str
    """The columns, as Spark writes them in JSON."""
    separator: str = ","
    quote: str = '"'

    def __call__(self, raw: bytes | None) -> str:
        from pyspark.sql.types import StructType

        text = b"" if raw is None else bytes(raw)
        columns = StructType.fromJson(json.loads(self.schema)).fields
        try:
            values = next(
                csv.reader([text.decode()], delimiter=self.separator, quotechar=self.quote or None), []
            )
        except (UnicodeDecodeError, csv.Error, TypeError) as error:
            return f"it is not CSV: {error}"
        if len(values) != len(columns):
            return f"it has {len(values)} columns, not {len(columns)}"
        for value, column in zip(values, columns, strict=True):
            if value and not fits(_read(value, column.dataType.typeName()), column.dataType):
                return f"{column.name} is {value!r}, which is not {column.dataType.simpleString().upper()}"
        return "it does not fit the schema"


def _read(text: str, kind: str) -> Any:
    """The value that a text would be in JSON."""
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind not in NUMBERS:
        return text
    try:
        number = Decimal(text)
    except ArithmeticError:
        return text
    return int(number) if number.is_finite() and "." not in text and "e" not in text.lower() else number
