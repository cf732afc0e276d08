"""A table of PostgreSQL with a column of every type, and what its values are in Python."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg

TYPES: dict[str, tuple[str, Any]] = {
    "smallint": ("-7", -7),
    "integer": ("2147483647", 2147483647),
    "bigint": ("9223372036854775807", 9223372036854775807),
    "numeric(10,2)": ("12345678.90", Decimal("12345678.90")),
    "numeric(3,-2)": ("12300", Decimal(12300)),
    "numeric(2,4)": ("0.0012", Decimal("0.0012")),
    "numeric": ("1.000000000000000001", Decimal("1.000000000000000001")),
    "real": ("1.5", 1.5),
    "double precision": ("'-Infinity'", float("-inf")),
    "boolean": ("true", True),
    "text": ("E'a\"b,c\\n\\\\.é'", 'a"b,c\n\\.é'),
    "varchar(5)": ("''", ""),
    "char(3)": ("'a'", "a  "),
    "bytea": (r"'\x00ff61'", b"\x00\xffa"),
    "date": ("'2024-02-29'", date(2024, 2, 29)),
    "time": ("'23:59:59.999999'", "23:59:59.999999"),
    "timestamp": ("'2024-02-29 12:30:59.123456'", datetime(2024, 2, 29, 12, 30, 59, 123456)),
    "timestamptz": ("'2024-02-29 12:30:59.5+02'", datetime(2024, 2, 29, 10, 30, 59, 500000, UTC)),
    "timetz": ("'12:30:00+02'", "12:30:00+02"),
    "interval": ("'1 year 2 months 3 days 04:05:06.7'", "P1Y2M3DT4H5M6.7S"),
    "uuid": ("'8c7c8b5e-5f5e-4a4e-9c3b-1d1f6b2a7a10'", "8c7c8b5e-5f5e-4a4e-9c3b-1d1f6b2a7a10"),
    "json": ("""'{"a": [1, null]}'""", '{"a": [1, null]}'),
    "jsonb": ("""'{"b":1}'""", '{"b": 1}'),
    "inet": ("'10.0.0.1/8'", "10.0.0.1/8"),
    "mood": ("'glad'", "glad"),
    "positive": ("3", 3),
    "money": ("12.5", "$12.50"),
    "bit(3)": ("B'101'", "101"),
    "integer[]": ("'{1,NULL,3}'", [1, None, 3]),
    "text[]": ("""'{a,"b,c",NULL,"NULL",""}'""", ["a", "b,c", None, "NULL", ""]),
    "numeric(5,2)[]": ("'{1.5,-2.25}'", [Decimal("1.50"), Decimal("-2.25")]),
    "timestamptz[]": ("""'{"2024-01-01 00:00:00+00"}'""", [datetime(2024, 1, 1, tzinfo=UTC)]),
    "boolean[]": ("'{t,f}'", [True, False]),
    "int4range": ("'[1,5)'", "[1,5)"),
}


def make_types(url: str) -> None:
    """Create the table `t`, whose column `c0` is of the first type."""
    columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(TYPES))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS t")
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
        connection.execute("CREATE DOMAIN positive AS integer CHECK (VALUE > 0)")
        connection.execute(f"CREATE TABLE t (id integer PRIMARY KEY, {columns})".encode())


def fill_types(url: str) -> None:
    """Insert a row of values, and a row of NULL."""
    values = ", ".join(value for value, _ in TYPES.values())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit TO on")
        connection.execute(f"INSERT INTO t VALUES (1, {values})".encode())
        connection.execute("INSERT INTO t VALUES (2)")
