"""Random expressions, most of which raise for some rows: which rows they are depends on what Spark evaluates for a row.

Trees of conditions, functions that are NULL for a NULL argument and leaves that raise (division by zero, overflow, casts, positions that
an array does not have, `raise_error`), over columns with NULL, NaN and zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

# Column -> its type, and the values that it has.
COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "i": ("INT", [None, 0, 1, 2, -3, 2147483647]),
    "j": ("INT", [None, 0, 1, 5]),
    "d": ("DOUBLE", [None, 0.0, 1.5, float("nan")]),
    "e": ("DOUBLE", [None, 0.0, -2.0]),
    "b": ("BOOLEAN", [None, True, False]),
    "s": ("STRING", [None, "", "x", "7"]),
    "a": ("ARRAY<INT>", [None, [], [4], [1, None, 3]]),
}

_LEAVES = {
    "int": ["i", "j", "0", "1", "7"],
    "double": ["d", "e", "0.0D", "1.5D", "double('NaN')"],
    "boolean": ["b", "true", "false", "i > j", "d < e"],
    "string": ["s", "'x'", "'7'"],
}
# Expressions of the kernel; {i}, {d}, {b} and {s} stand for further ones, by their type.
_KERNEL = {
    "int": [
        "({i} + {i})",
        "({i} - {i})",
        "({i} * {i})",
        "({i} % {i})",
        "pmod({i}, {i})",
        "cast({i} div {i} AS INT)",
        "(-{i})",
        "abs({i})",
        "cast({s} AS INT)",
        "cast({d} AS INT)",
        "element_at(a, {i})",
        "a[{i}]",
        "get(a, {i})",
        "length({s})",
        "if({b}, {i}, {i})",
        "CASE WHEN {b} THEN {i} WHEN {b} THEN {i} ELSE {i} END",
        "CASE WHEN {b} THEN {i} END",
        "coalesce({i}, {i}, {i})",
        "nvl2({i}, {i}, {i})",
        "nullif({i}, {i})",
        "greatest({i}, {i})",
        "least({i}, {i})",
        "try_add({i}, {i})",
        "try_element_at(a, {i})",
        "try_cast({s} AS INT)",
        "try_mod({i}, {i})",
        "year(date_add(make_date(2020, {i}, 1), {i} % 99))",
        "bit_count({i}) + ({i} & {i})",
        "instr({s}, {s})",
    ],
    "double": [
        "({d} / {d})",
        "({d} + {d})",
        "({d} * {d})",
        "try_divide({d}, {d})",
        "nanvl({d}, {d})",
        "cast({i} AS DOUBLE)",
        "if({b}, {d}, {d})",
        "coalesce({d}, {d})",
        "CASE WHEN {b} THEN {d} ELSE {d} END",
        "sqrt({d})",
        "(1 / 0)",
        "({d} % {d})",
    ],
    "boolean": [
        "({b} AND {b})",
        "({b} OR {b})",
        "(NOT {b})",
        "({i} < {i})",
        "({i} = {i})",
        "({d} >= {d})",
        "({i} <=> {i})",
        "({i} IN ({i}, {i}, 1))",
        "({d} IN ({d}, {d}))",
        "({i} BETWEEN {i} AND {i})",
        "({s} LIKE 'x%')",
        "({s} = {s})",
        "startswith({s}, {s})",
        "({i} IS NULL)",
        "({d} IS NOT NULL)",
        "if({b}, {b}, {b})",
        "coalesce({b}, {b})",
    ],
    "string": [
        "concat({s}, {s})",
        "concat_ws('-', {s}, {s})",
        "upper({s})",
        "cast({i} AS STRING)",
        "substring({s}, {i}, {i})",
        "if({b}, {s}, {s})",
        "coalesce({s}, {s})",
        "replace({s}, {s}, {s})",
        "lpad({s}, {i} % 9, {s})",
    ],
}
# Expressions that Spark evaluates for a view.
SPARK = {
    "int": [
        "cast(raise_error('no') AS INT)",
        "nvl2(assert_true({b}), 1, {i})",
        "bit_length(md5({s})) + {i}",
        "cast(to_number({s}, '9') AS INT)",
        "try_add(cast(to_number({s}, '9') AS INT), {i})",
        "cast(cosh({i} % 30) AS BIGINT)",
    ],
    "double": ["sinh({d})", "cast({s} AS DOUBLE)", "cast(try_to_number({s}, '9') AS DOUBLE)"],
    "boolean": ["({s} RLIKE {s})", "(elt({i}, {s}, 'x') = 'x')"],
    "string": ["elt({i}, {s}, {s})", "initcap({s})", "decode({i}, 0, {s}, {s})", "hex(encode({s}, 'utf-8'))"],
}
# Those that Spark interprets. It then interprets the whole filter, in which NULL AND x asks for x, and a compiled one does not.
INTERPRETED = {
    "int": [
        "aggregate(transform(a, x -> x + {i}), 0, (x, y) -> x + y)",
        "size(filter(a, x -> x > {i}))",
    ],
    "double": ["cast(array_min(transform(a, x -> x + {i})) AS DOUBLE)"],
    "boolean": ["exists(a, x -> x > {i})", "forall(a, x -> 10 / x > {d})"],
    "string": ["array_join(transform(a, x -> concat(x, {s})), '-')"],
}
_TYPES = {"i": "int", "d": "double", "b": "boolean", "s": "string"}


Shapes = Mapping[str, list[str]]


def expression(random: Random, kind: str, *, depth: int, others: Sequence[Shapes] = ()) -> str:
    """Return a random expression of a type: the kernel's, and here and there one of the other shapes."""
    if depth == 0 or random.random() < 0.1:
        return random.choice(_LEAVES[kind])
    shapes = random.choice(others)[kind] if others and random.random() < 0.2 else _KERNEL[kind]
    parts = random.choice(shapes).split("{")
    text = parts[0]
    for part in parts[1:]:
        text += expression(random, _TYPES[part[0]], depth=depth - 1, others=others) + part[2:]
    return text


def row(random: Random) -> tuple[Any, ...]:
    """Return a random row of all columns."""
    return tuple(random.choice(values) for _, values in COLUMNS.values())


def query(random: Random) -> str:
    """Return a query over the tables t and u, whose columns are those of rows: projections, filters, joins, aggregates."""
    return random.choice(_QUERIES)(random)


def changes(random: Random, held: list[tuple[Any, ...]]) -> list[tuple[int, tuple[Any, ...]]]:
    """Return deletes of rows that are held, and inserts: often one, so that at most one row raises."""
    gone = random.sample(held, min(len(held), random.choice([0, 0, 1, 2])))
    return [(-1, values) for values in gone] + [
        (1, row(random)) for _ in range(random.choice([0, 1, 1, 1, 1, 4]))
    ]


def _of(random: Random, *kinds: str, others: Sequence[Shapes] = (SPARK,)) -> list[str]:
    return [expression(random, kind, depth=random.randint(1, 3), others=others) for kind in kinds]


def _projection(random: Random) -> str:
    kinds = random.choices(list(_LEAVES), k=2)
    one, two = _of(random, *kinds, others=(SPARK, INTERPRETED))
    return f"SELECT {one} AS p, {two} AS q FROM t"


def _filter(random: Random) -> str:
    one, two, three = _of(random, "boolean", "boolean", "boolean")
    return f"SELECT i, j FROM t WHERE {one} AND {two} AND {three}"


def _join(random: Random) -> str:
    one, two, three = _of(random, "boolean", "boolean", "int", others=())
    kind = random.choice(["JOIN", "LEFT JOIN"])
    right = "(SELECT j AS k, i AS m, e AS n FROM u)"
    return f"SELECT i, m FROM t {kind} {right} ON j = k AND {one} AND (n < d OR {two}) AND m < {three}"


def _aggregate(random: Random) -> str:
    one, two, three, four = _of(random, "int", "boolean", "double", "boolean")
    return (
        f"SELECT j, sum({one}) FILTER (WHERE {two}) AS p, max({three}) FILTER (WHERE {four} AND d > 0) AS q, count(*) AS c "
        f"FROM t GROUP BY j"
    )


def _above_aggregate(random: Random) -> str:
    one, two = _of(random, "int", "boolean")
    inner = "SELECT j, max(i) AS i, min(d) AS d, min(e) AS e, bool_or(b) AS b, max(s) AS s, array(max(j)) AS a FROM t GROUP BY j"
    return f"SELECT j, {one} AS p FROM ({inner}) WHERE {two}"


_QUERIES = [_projection, _filter, _filter, _join, _aggregate, _aggregate, _above_aggregate]
