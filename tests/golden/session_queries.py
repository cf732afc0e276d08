"""Queries with session windows as a grid, and ticks whose sessions touch, overlap, hold each other, merge and fall apart.

Keys have no -0.0: with a DISTINCT, Spark merges the sessions of -0.0 and 0.0 apart and then groups them together.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random
from typing import Any

from .case import Change, Tick

TABLES = {
    "e": "k STRING, ts TIMESTAMP, v INT, g STRING, d DOUBLE",
    "u": "k STRING, at TIMESTAMP, name STRING",
}

GAPS = (
    "'3 minutes'",
    "'90 seconds'",
    "g",
    "CASE WHEN v > 1 THEN '1 minute' WHEN v = 0 THEN '0 seconds' ELSE '8 minutes' END",
    "make_interval(0, 0, 0, 0, 0, v)",
)
# Keys as they are grouped by and as they are shown.
KEYS: tuple[tuple[str, ...], ...] = ((), ("k",), ("k", "v % 2"), ("d",))
GROUPINGS = ("{keys}", "ROLLUP({keys})", "CUBE({keys})", "GROUPING SETS (({keys}), ())")
CALLS = (
    "",
    "count(*) AS c, sum(v) AS t",
    "min(v) AS lo, max(g) AS hi, avg(v) AS a",
    "sum(v) FILTER (WHERE v > 1) AS t, count(*) FILTER (WHERE k IS NULL) AS c",
    "count(DISTINCT v) AS c, sum(v) AS t",
    "count(DISTINCT v) AS c, count(DISTINCT k) AS d, max(v) AS m",
    "sum(DISTINCT v) FILTER (WHERE v > 0) AS t, count(*) AS c",
    "max(session_window.start) AS last, min(session_window.end) AS first",
    "count(DISTINCT v) AS c, max(session_window.start) AS last",
    "sort_array(collect_list(v)) AS l, percentile(v, 0.5) AS p",
)
HAVINGS = (
    "",
    "HAVING count(*) > 1",
    "HAVING w.end > '2024-03-01 00:12:00'",
    "HAVING max(v) > 1",
)
ABOVE = (
    "{0}",
    "{0}",
    "SELECT w, count(*) AS sessions FROM ({0}) GROUP BY w",
    "SELECT w.start AS s, count(*) AS sessions FROM ({0}) GROUP BY w.start",
    "SELECT x.w.start AS s, u.name FROM ({0}) x JOIN u ON u.at >= x.w.start AND u.at < x.w.end",
    "SELECT u.name, x.w FROM u LEFT JOIN ({0}) x ON x.w.start = u.at",
    "SELECT DISTINCT w FROM ({0})",
    "SELECT session_window AS w, count(*) AS n FROM ({0}) GROUP BY session_window(w, '2 minutes')",
    "SELECT w, row_number() OVER (ORDER BY w.start, w.end) AS r FROM (SELECT DISTINCT w FROM ({0}))",
)


def grid() -> list[str]:
    """All queries."""
    return [
        query(gap, keys, grouping, calls, having, above)
        for gap, keys, grouping, calls, having, above in product(
            GAPS, KEYS, GROUPINGS, CALLS, HAVINGS, dict.fromkeys(ABOVE)
        )
        if keys or grouping == GROUPINGS[0]
    ]


def query(gap: str, keys: tuple[str, ...], grouping: str, calls: str, having: str, above: str) -> str:
    """One query of the grid."""
    shown = [f"{key} AS k{index}" for index, key in enumerate(keys)]
    columns = ", ".join([*shown, "session_window AS w", *([calls] if calls else [])])
    by = [grouping.format(keys=", ".join(keys))] if keys else []
    groups = ", ".join([*by, f"session_window(ts, {gap})"])
    return above.format(f"SELECT {columns} FROM e GROUP BY {groups} {having}".rstrip())


def some(chance: Random, count: int) -> list[str]:
    """Some queries of the grid, each part of it as often as the others."""
    return [
        query(
            chance.choice(GAPS),
            keys,
            chance.choice(GROUPINGS) if keys and chance.random() < 0.4 else GROUPINGS[0],
            chance.choice(CALLS),
            chance.choice(HAVINGS) if chance.random() < 0.4 else "",
            chance.choice(ABOVE),
        )
        for keys in (chance.choice(KEYS) for _ in range(count))
    ]


def ticks(chance: Random, count: int) -> tuple[Tick, ...]:
    """Inserts, deletes and updates that never retract a row that is not there."""
    held: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
    return tuple(
        {
            name: tuple(_changes(chance, name, rows))
            for name, rows in held.items()
            if name == "e" or chance.random() < 0.5
        }
        for _ in range(count)
    )


def _changes(chance: Random, name: str, held: list[tuple[Any, ...]]) -> list[Change]:
    changes: list[Change] = []
    # All rows go now and then, so that sessions end and keys come back.
    leaving = len(held) if chance.random() < 0.1 else min(len(held), chance.randint(0, 5))
    changes += [(-1, held.pop(chance.randrange(len(held)))) for _ in range(leaving)]
    for _ in range(chance.randint(0, 7)):
        row, copies = _row(chance, name), chance.choice((1, 1, 1, 2))
        held.extend([row] * copies)
        changes.append((copies, row))
    return changes


def _row(chance: Random, name: str) -> tuple[Any, ...]:
    # On half minutes, so that sessions often touch.
    moment = datetime(2024, 3, 1, tzinfo=UTC) + timedelta(seconds=30 * chance.randint(0, 60))
    time = None if chance.random() < 0.08 else moment
    key = chance.choice(("a", "a", "b", None))
    if name == "u":
        return key, time, chance.choice(("x", "y"))
    gap = chance.choice(
        ("1 minute", "3 minutes", "3 minutes", "12 minutes", "0 seconds", "-1 minutes", "x", None)
    )
    return key, time, chance.choice((0, 1, 2, 3, None)), gap, chance.choice((0.0, 1.5, float("nan"), None))
