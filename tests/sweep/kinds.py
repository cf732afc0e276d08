"""The kinds of arguments: a Spark type with values at its edges, as a column of a source or computed from one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

ZONE = "America/New_York"
# Spark has the types TIME and GEOMETRY, and the functions on them, but for a switch.
SETTINGS = {
    "spark.sql.session.timeZone": ZONE,
    "spark.sql.timeType.enabled": "true",
    "spark.sql.geospatial.enabled": "true",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of argument. `type` is that of the column in the source; `made` makes the argument of it, where a source has no such column."""

    type: str
    values: tuple[Any, ...]
    made: str = "{}"


def _instants(*texts: str) -> list[datetime]:
    return [datetime.fromisoformat(text) for text in texts]


_MOMENTS = _instants(
    "2024-02-29T12:30:15.123456",
    "1970-01-01T00:00:00",
    "1969-12-31T23:59:59.999999",
    "2024-03-10T07:00:00",
    "2024-11-03T05:30:00",
    "2024-11-03T06:30:00",
    "2000-12-31T23:59:59",
    "1883-11-18T17:00:00",
    "0001-01-02T00:00:00",
    "9999-12-30T23:59:59.999999",
)
# No time without a date: it is one of this day, in a batch query.
TEXTS: dict[str, tuple[str, ...]] = {
    "text": ("", " ", "abc", "ABC", "Ähren 😀 straße", "a,b;c", " x\t\n", "a%b_c\\", "aab"),
    "number": (
        "",
        "0",
        "-1",
        " 12 ",
        "1.5",
        "-1.5e3",
        "2147483648",
        "9" * 25,
        "NaN",
        "abc",
        "0x1F",
        "1e400",
        "+7",
    ),
    "moment": (
        "",
        "2024-02-29",
        "2024-02-29 12:30:15.123456",
        "2024-03-10T02:30:00",
        "1969-12-31 23:59:59",
        "2023-02-29",
        "0001-01-01",
        "9999-12-31 23:59:59Z",
        "2024-11-03 01:30:00 America/New_York",
        "abc",
        "+12345-01-01",
        "2024",
    ),
    "json": (
        "",
        "{}",
        '{"a": 1, "b": [1, 2, {"c": null}], "t": "x"}',
        '{"a": {"b": "ü"}, "time": "26/08/2015"}',
        "[1, 2.5, null]",
        "null",
        '"text"',
        "1e3",
        "{bad",
        '{"a": 1} trailing',
        '[{"a": 1, "b": 0.8}]',
    ),
    "url": (
        "",
        "http://spark.apache.org/path?query=1&b=%20#ref",
        "https://user:pass@example.com:8080/a/b?x=y",
        "not a url",
        "http://ü.de/ä",
        "https%3A%2F%2Fspark.apache.org",
        "a+b%zz",
    ),
    "xml": ("", "<a/>", "<p><a>1</a><b>0.8</b></p>", "<a><b>b1</b><b>b2</b></a>", "<a>", "<p><a>x</a></p>"),
    "csv": ("", "1, 0.8", "1,abc", '"a,b",2', "x", "26/08/2015"),
    "time": ("", "12:30:15", "00:00", "23:59:59.999999", "24:00", "abc", "1:2:3"),
    "pattern": ("", "a", "a%", "_b%", "[a-z]+", "(a)(b)?", "(", "\\d+", "%\\"),
    "format": ("", "yyyy-MM-dd", "HH:mm:ss", "999", "$99.9", "S9999.99", "qqq", "%s %d"),
    "unit": ("", "year", "MONTH", "week", "day", "hour", "second", "nonsense"),
    "zone": ("", "UTC", "America/Los_Angeles", "Asia/Seoul", "+05:30", "nowhere"),
}
_JSONS = tuple(text for text in TEXTS["json"] if text not in ("", "{bad", '{"a": 1} trailing'))

_KINDS: dict[str, Kind] = {
    "boolean": Kind("boolean", (None, True, False)),
    "tinyint": Kind("tinyint", (None, 0, 1, -1, 5, 127, -128)),
    "smallint": Kind("smallint", (None, 0, 1, -1, 300, 32767, -32768)),
    "int": Kind("int", (None, 1, 0, -1, 2, 7, 31, 100, 2**31 - 1, -(2**31))),
    "bigint": Kind("bigint", (None, 1, 0, -1, 2, 12, 1_700_000_000, 2**53 + 1, 2**63 - 1, -(2**63))),
    "float": Kind(
        "float",
        (
            None,
            1.5,
            0.0,
            -0.0,
            -2.5,
            float("nan"),
            float("inf"),
            -float("inf"),
            3.4028234663852886e38,
            2**-149,
        ),
    ),
    "double": Kind(
        "double",
        (
            None,
            0.5,
            0.0,
            -0.0,
            -2.5,
            1e10,
            float("nan"),
            float("inf"),
            -float("inf"),
            1.7976931348623157e308,
            5e-324,
            0.1,
        ),
    ),
    "decimal(10,2)": Kind(
        "decimal(10,2)",
        (None, *map(Decimal, ("0.00", "1.00", "-1.50", "2.50", "0.01", "99999999.99", "-99999999.99"))),
    ),
    "decimal(38,18)": Kind(
        "decimal(38,18)",
        (
            None,
            *map(
                Decimal, ("0", "1", "-2.5", "0.000000000000000001", "9" * 20 + "." + "9" * 18, "-" + "9" * 20)
            ),
        ),
    ),
    "string": Kind("string", (None, *TEXTS["text"], "12", "2024-02-29")),
    "binary": Kind("binary", (None, b"", b"abc", b"\xff\x00\x80", "Ä😀".encode(), bytes(20))),
    "date": Kind(
        "date",
        (
            None,
            date(2024, 2, 29),
            date(1970, 1, 1),
            date(1, 1, 1),
            date(9999, 12, 31),
            date(2023, 12, 31),
            date(1582, 10, 4),
        ),
    ),
    "timestamp": Kind("timestamp", (None, *(moment.replace(tzinfo=UTC) for moment in _MOMENTS))),
    "timestamp_ntz": Kind("timestamp_ntz", (None, *_MOMENTS)),
    "time": Kind(
        "string", (None, "12:30:15", "00:00:00", "23:59:59.999999", "06:07:08.5"), "CAST({} AS TIME(6))"
    ),
    "interval day to second": Kind(
        "interval day to second",
        (
            None,
            timedelta(0),
            timedelta(days=1),
            timedelta(microseconds=-1),
            timedelta(days=-40, hours=5, microseconds=7),
            timedelta(days=106751990),
        ),
    ),
    "interval year to month": Kind("int", (None, 0, 1, -1, 14, 2**31 - 1), "make_ym_interval(0, {})"),
    "interval": Kind("int", (None, 0, 1, -3, 14), "make_interval(0, {}, 0, 2, 3)"),
    "array<int>": Kind("array<int>", (None, [], [1], [3, None, 5, 3], [None], [2**31 - 1, -(2**31)])),
    "array<string>": Kind("array<string>", (None, [], ["a"], ["b", None, "ä", "b"], [""])),
    "array<double>": Kind("array<double>", (None, [], [0.0, -0.0, float("nan")], [1.5, None, 2.5])),
    "map<string,int>": Kind("map<string,int>", (None, [], [("a", 1)], [("b", None), ("ä", 2)])),
    "struct<a:int,b:string>": Kind(
        "struct<a:int,b:string>", (None, {"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": -1, "b": ""})
    ),
    "variant": Kind("string", (None, *_JSONS), "parse_json({})"),
}

# Kinds that differ most come first: a sweep that takes few of them takes these.
_FIRST = (
    *(
        "int",
        "string",
        "double",
        "decimal(10,2)",
        "timestamp",
        "date",
        "array<int>",
        "bigint",
        "binary",
        "boolean",
    ),
    *(
        "interval day to second",
        "map<string,int>",
        "struct<a:int,b:string>",
        "timestamp_ntz",
        "array<string>",
        "float",
    ),
)
KINDS: dict[str, Kind] = {name: _KINDS[name] for name in dict.fromkeys((*_FIRST, *_KINDS))}

_LOOKS: tuple[tuple[str, str], ...] = (
    ("json", r"\s*[\[{].*"),
    ("xml", r"\s*<.*"),
    ("url", r"https?(:|%3A)//?.*|https%3A.*"),
    ("moment", r"\d{4}-\d{1,2}(-\d{1,2}.*)?"),
    ("time", r"\d{1,2}:\d\d(:\d\d)?.*"),
    ("number", r"[-+ ]?\d+(\.\d+)?(e\d+)?\s*"),
    ("zone", r"UTC|[A-Z][a-z]+/[A-Za-z_]+"),
    ("format", r"[yMdHhmsS/:' .-]{2,}|[$S09,.DG]{3,}|.*%[sd].*"),
    ("unit", r"(?i)year|month|mm|week|day|hour|minute|second|quarter"),
    ("pattern", r".*[%*\[(\\].*"),
    ("csv", r".*,.*"),
)


def pool(kind: str, examples: Sequence[Any]) -> tuple[Any, ...]:
    """The values of a column: those that Spark's examples have, the edges of the type, and for text what looks like the examples."""
    own = KINDS[kind].values if kind in KINDS else (None,)
    if kind == "string" and examples:
        looks = dict.fromkeys(_look(text) for text in examples if isinstance(text, str))
        own = (None, *(text for look in looks for text in TEXTS[look]), "abc", "Ä😀")
    merged: dict[str, Any] = {repr(value): value for value in (*examples, *own)}
    return tuple(merged.values())


def _look(text: str) -> str:
    return next((name for name, shape in _LOOKS if re.fullmatch(shape, text, re.DOTALL)), "text")
