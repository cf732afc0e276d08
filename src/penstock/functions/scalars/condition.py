"""Spark's own error class for a row that the kernel refuses, so that a tick and a batch query say the same.

A code of ours stands for several classes of Spark's; which one it is, the function and its types say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.plan.expression import Call

_INTEGRAL = ("tinyint", "smallint", "int", "bigint")
_OUT_OF_DECIMAL = "NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION"


def condition(call: Call, code: str) -> str | None:
    """Return Spark's error class for what a call refuses with one of our codes; None where Spark has no name for it."""
    name = _BY_CODE.get(code)
    return name(call) if callable(name) else name


def _overflow(call: Call) -> str | None:
    if call.type.startswith("decimal"):
        return _OUT_OF_DECIMAL
    if call.name == "Cast":
        return "CAST_OVERFLOW" if call.type in _INTEGRAL else "ARITHMETIC_OVERFLOW"
    if call.name in ("Add", "Subtract", "Multiply") and call.type in ("tinyint", "smallint"):
        return "BINARY_ARITHMETIC_OVERFLOW"
    if call.name == "TimestampAdd":
        return "DATETIME_OVERFLOW"
    if call.name in _WITHOUT_NAME:
        return None
    return "ARITHMETIC_OVERFLOW"


def _zero(call: Call) -> str:
    if call.name in ("Remainder", "Pmod"):
        return "REMAINDER_BY_ZERO"
    return "INTERVAL_DIVIDED_BY_ZERO" if "Interval" in call.name else "DIVIDE_BY_ZERO"


def _index(call: Call) -> str:
    return "INVALID_ARRAY_INDEX_IN_ELEMENT_AT" if call.name == "ElementAt" else "INVALID_ARRAY_INDEX"


# Where Spark lets Java's own exception through.
_WITHOUT_NAME = frozenset(
    [
        "TimestampAddInterval",
        "SecondsToTimestamp",
        "MillisToTimestamp",
        "StringRepeat",
        "StringLPad",
        "StringRPad",
    ]
)
# Classes without parts, after which our codes are named.
_SAME_NAME = (
    "DATA_CANNOT_DECODE_URL",
    "DATA_CANNOT_PARSE_TIMESTAMP",
    "DATA_COMPARATOR_RETURNS_NULL",
    "DATA_ILLEGAL_DAY_OF_WEEK",
    "DATA_INVALID_FRACTION_OF_SECOND",
    "DATA_INVALID_TIMEZONE",
    "DATA_MALFORMED_CHARACTER_CODING",
    "DATA_NULL_MAP_KEY",
    "SQL_DUPLICATED_MAP_KEY",
)
_BY_CODE: Mapping[str, str | Callable[[Call], str | None]] = {
    "DATA_OVERFLOW": _overflow,
    "DATA_DIVIDE_BY_ZERO": _zero,
    "DATA_INDEX": _index,
    "DATA_CAST": "CAST_INVALID_INPUT",
    "DATA_DATETIME": "DATETIME_FIELD_OUT_OF_BOUNDS.WITH_SUGGESTION",
    "DATA_MALFORMED_RECORD_IN_PARSING": "MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION",
    "DATA_RAISED": "USER_RAISED_EXCEPTION",
    **{code: code.partition("_")[2] for code in _SAME_NAME},
}
