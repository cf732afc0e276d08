"""Values that were read from JSON as the columns of a schema take them, or why they do not fit.

Numbers are read exactly: an integer as it is, any other as a decimal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

Kind = Mapping[str, Any]
SHOWN = 60
_SURROGATES = re.compile("[\ud800-\udfff]")
_NUMBERS = ("NaN", "Infinity", "-Infinity")


class Misfit(Exception):
    """A value that does not fit its column."""


def read_json(content: bytes) -> Any:
    """Return what JSON says, with all digits of its numbers; raises ValueError."""
    return json.loads(content, parse_float=Decimal, parse_constant=str)


def fitted(value: Any, kind: Kind, path: str) -> Any:
    """Return a value as `decode_column` takes it; raises Misfit."""
    return None if value is None else _FITTERS[kind["kind"]](value, kind, path)


def _boolean(value: Any, kind: Kind, path: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _misfit(value, kind, path)


def _integer(value: Any, kind: Kind, path: str) -> int:
    low, high = kind.get("low", -(1 << 63)), kind.get("high", (1 << 63) - 1)
    if (
        isinstance(value, Decimal)
        and value.is_finite()
        and abs(value.adjusted()) < 20
        and value == int(value)
    ):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise _misfit(value, kind, path)


def _float(value: Any, kind: Kind, path: str) -> float:
    if value in _NUMBERS or (isinstance(value, int | Decimal) and not isinstance(value, bool)):
        return float(value)
    raise _misfit(value, kind, path)


def _decimal(value: Any, kind: Kind, path: str) -> str:
    if isinstance(value, str | int | Decimal) and not isinstance(value, bool):
        return str(value)
    raise _misfit(value, kind, path)


def _text(value: Any, kind: Kind, path: str) -> str:
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    raise _misfit(value, kind, path)


def _operation(value: Any, kind: Kind, path: str) -> str:
    if value in ("i", "u", "d"):
        return str(value)
    raise Misfit(f"column '{path}' is 'i', 'u' or 'd' and got {_shown(value)}")


def _array(value: Any, kind: Kind, path: str) -> list[Any]:
    if isinstance(value, list):
        return [fitted(item, kind["item"], f"{path}[]") for item in value]
    raise _misfit(value, kind, path)


def _map(value: Any, kind: Kind, path: str) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict):
        raise _misfit(value, kind, path)
    return [
        (
            fitted(_key(name, kind["key"]), kind["key"], f"{path} (key)"),
            fitted(item, kind["item"], f"{path}[]"),
        )
        for name, item in value.items()
    ]


def _key(name: str, kind: Kind) -> Any:
    """What the name of a field stands for, as a key."""
    if kind["kind"] == "boolean":
        return {"true": True, "false": False}.get(name, name)
    if kind["kind"] in ("integer", "bigint", "float"):
        try:
            return Decimal(name)
        except InvalidOperation:
            return name
    return name


def _struct(value: Any, kind: Kind, path: str) -> list[Any]:
    if isinstance(value, dict):
        return [fitted(value.get(name), inner, f"{path}.{name}") for name, inner in kind["fields"]]
    raise _misfit(value, kind, path)


def _nothing(value: Any, kind: Kind, path: str) -> Any:
    raise _misfit(value, kind, path)


_FITTERS: Mapping[str, Callable[[Any, Kind, str], Any]] = {
    "boolean": _boolean,
    "integer": _integer,
    "bigint": _integer,
    "float": _float,
    "decimal": _decimal,
    **dict.fromkeys(("string", "binary", "date", "timestamp", "timestamp_ntz"), _text),
    "operation": _operation,
    "array": _array,
    "map": _map,
    "struct": _struct,
    "void": _nothing,
}


def _misfit(value: Any, kind: Kind, path: str) -> Misfit:
    return Misfit(f"column '{path}' is {kind['name']} and got {_shown(value)}")


def _shown(value: Any) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "an array"
        case str():
            return json.dumps(value if len(value) <= SHOWN else f"{value[:SHOWN]}...", ensure_ascii=False)
        case bool():
            return str(value).lower()
    return str(value)


def fitted_rows(
    objects: Sequence[Mapping[str, Any]], columns: Sequence[tuple[str, Kind]]
) -> tuple[list[list[Any]], dict[int, str]]:
    """Return objects as columns, and what is wrong with some of them; fields that no column has are left out."""
    values: list[list[Any]] = [[] for _ in columns]
    bad: dict[int, str] = {}
    for row, item in enumerate(objects):
        for column, (name, kind) in zip(values, columns, strict=True):
            try:
                column.append(fitted(item.get(name), kind, name))
            except Misfit as misfit:
                column.append(None)
                bad.setdefault(row, str(misfit))
    return values, bad
