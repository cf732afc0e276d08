"""Queries for Hypothesis: nested SQL over generated tables, whose answer Spark determines.

A query is grown from relations with typed columns: the kinds of `generated_tables`, `r` for a DOUBLE and `m` for a DECIMAL that an
aggregate made, which are never added again. Rankings, limits and the like order by every column, so ties are equal rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from .case import Tick
from .generated_tables import Columns, Schemas, schemas, ticks

_LITERALS = {
    "i": ["1", "2"],
    "l": ["1", "5"],
    "s": ["'x'", "''"],
    "d": ["0.25D", "1.5D"],
    "r": ["0.5D"],
    "b": ["true"],
    "n": ["1.50", "0.00"],
    "m": ["1.50"],
    "t": ["DATE'2024-03-01'"],
    "z": ["TIMESTAMP'2024-03-01 00:00:00Z'"],
}
# What a projection may do to a column and keep its kind.
_SHAPES = {
    "i": ["{0} % 3", "CASE WHEN {0} > 1 THEN {0} END", "nullif({0}, 1)"],
    "l": ["{0} % 3", "CASE WHEN {0} > 1 THEN {0} END", "nullif({0}, 5)"],
    "s": ["upper({0})", "concat({0}, '!')", "substring({0}, 1, 1)"],
    "d": ["abs({0})", "nullif({0}, 0.25D)"],
    "n": ["CAST(-{0} AS DECIMAL(9,2))", "nullif({0}, 1.50)"],
    "t": ["date_add({0}, 1)", "last_day({0})"],
    "z": ["date_trunc('DAY', {0})", "{0} + INTERVAL 1 DAY"],
    "b": ["NOT {0}"],
}


@dataclass(frozen=True, slots=True)
class Example:
    """Tables, a view over them, and the ticks that it goes through."""

    tables: Schemas
    query: str
    ticks: tuple[Tick, ...]


@st.composite
def examples(draw: st.DrawFn, *, depth: int = 3, count: int = 4) -> Example:
    """Return a query nested up to `depth` times, over generated tables and ticks."""
    tables = draw(schemas())
    return Example(tables, _grow(draw, _Names(tables), depth).sql, draw(ticks(tables, count)))


@dataclass(frozen=True, slots=True)
class Relation:
    """SQL text of a query and the columns that it has."""

    sql: str
    columns: Columns

    def of(self, kinds: str) -> list[str]:
        return [name for name, kind in self.columns if kind in kinds]


class _Names:
    """The tables, and fresh names for columns and queries, so that no reference is ambiguous."""

    def __init__(self, tables: Schemas) -> None:
        self.tables = tables
        self.count = 0

    def new(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"


def _grow(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    if depth == 0:
        return _table(draw, names)
    kinds = [
        *(_select, _join, _join, _aggregate, _aggregate, _member, _set, _window, _top, _scalar, _distinct),
        *(_rollup, _explode, _twice, _lateral),
    ]
    return draw(st.sampled_from(kinds))(draw, names, depth - 1)


def _child(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    return _grow(draw, names, draw(st.integers(0, depth)))


def _table(draw: st.DrawFn, names: _Names) -> Relation:
    name = draw(st.sampled_from(sorted(names.tables)))
    old = names.tables[name]
    columns = tuple((names.new("c"), kind) for _, kind in old)
    chosen = ", ".join(f"{column} AS {new}" for (column, _), (new, _) in zip(old, columns, strict=True))
    return Relation(f"SELECT {chosen} FROM {name}", columns)


def _predicate(draw: st.DrawFn, relation: Relation) -> str:
    name, kind = draw(st.sampled_from(relation.columns))
    literal = draw(st.sampled_from(_LITERALS[kind]))
    shapes = [f"{name} IS NULL", f"{name} IS NOT NULL", f"{name} <=> {literal}", f"{name} <> {literal}"]
    if kind != "b":
        shapes += [f"{name} > {literal}", f"{name} <= {literal}", f"NOT ({name} > {literal})"]
    return draw(st.sampled_from(shapes))


def _from(relation: Relation, alias: str) -> str:
    return f"FROM ({relation.sql}) {alias}"


def _select(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    child = _child(draw, names, depth)
    chosen, columns = [], []
    for name, kind in draw(st.lists(st.sampled_from(child.columns), min_size=1, max_size=4, unique=True)):
        new = names.new("c")
        shapes = [name, f"coalesce({name}, {_LITERALS[kind][0]})"] if kind != "m" else [name]
        shapes += [shape.format(name) for shape in _SHAPES.get(kind, ())]
        chosen.append(f"{draw(st.sampled_from(shapes))} AS {new}")
        columns.append((new, kind))
    where = f" WHERE {_predicate(draw, child)}" if draw(st.booleans()) else ""
    return Relation(f"SELECT {', '.join(chosen)} {_from(child, names.new('t'))}{where}", tuple(columns))


def _join(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    left, right = _child(draw, names, depth), _child(draw, names, depth)
    pairs = [(x, y) for x, kx in left.columns for y, ky in right.columns if _comparable(kx, ky)]
    if not pairs:
        return left
    how = draw(
        st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
    )
    conditions = []
    for x, y in draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=2, unique=True)):
        conditions.append(f"{x} {draw(st.sampled_from(['=', '=', '<=>']))} {y}")
    if draw(st.integers(0, 2)) == 0:
        x, y = draw(st.sampled_from(pairs))
        conditions.append(f"{x} {draw(st.sampled_from(['<', '>=', '<>']))} {y}")
    kept = left.columns if "SEMI" in how or "ANTI" in how else left.columns + right.columns
    text = (
        f"SELECT {', '.join(name for name, _ in kept)} {_from(left, names.new('t'))} {how} ({right.sql}) {names.new('t')} "
        f"ON {' AND '.join(conditions)}"
    )
    return Relation(text, kept)


def _comparable(one: str, other: str) -> bool:
    return one == other or any({one, other} <= set(kinds) for kinds in ("il", "dr", "nm"))


def _aggregate(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    child = _child(draw, names, depth)
    keys = draw(st.lists(st.sampled_from(child.columns), max_size=2, unique=True))
    calls: list[tuple[str, str]] = [("count(*)", "l")]
    for name, kind in child.columns:
        calls += [
            (f"count({name})", "l"),
            (f"count(DISTINCT {name})", "l"),
            (f"max({name})", kind),
            (f"min({name})", kind),
        ]
        if kind in "il":
            calls += [
                (f"sum({name} % 100)", "l"),
                (f"sum(DISTINCT {name} % 10)", "l"),
                (f"avg({name} % 8)", "r"),
            ]
        if kind == "d":
            calls += [(f"sum({name})", "r"), (f"avg({name})", "r")]
        if kind == "n":
            calls += [(f"sum({name})", "m"), (f"avg({name})", "m")]
        if kind == "b":
            calls += [(f"bool_or({name})", "b"), (f"count_if({name})", "l")]
    chosen = [(name, name, kind) for name, kind in keys]
    for call, kind in draw(st.lists(st.sampled_from(calls), min_size=1, max_size=3, unique=True)):
        filtered = f" FILTER (WHERE {_predicate(draw, child)})" if draw(st.integers(0, 3)) == 0 else ""
        chosen.append((f"{call}{filtered}", names.new("c"), kind))
    text = f"SELECT {', '.join(f'{call} AS {new}' for call, new, _ in chosen)} {_from(child, names.new('t'))}"
    if keys:
        text += f" GROUP BY {', '.join(name for name, _ in keys)}"
        if draw(st.integers(0, 3)) == 0:
            text += " HAVING count(*) > 1"
    return Relation(text, tuple((new, kind) for _, new, kind in chosen))


def _member(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    outer, inner = _child(draw, names, depth), _child(draw, names, depth)
    pairs = [(x, y) for x, kx in outer.columns for y, ky in inner.columns if kx == ky]
    if not pairs:
        return outer
    x, y = draw(st.sampled_from(pairs))
    alias = names.new("t")
    condition = draw(
        st.sampled_from(
            [
                f"{x} IN (SELECT {y} {_from(inner, alias)})",
                f"{x} NOT IN (SELECT {y} {_from(inner, alias)})",
                f"EXISTS (SELECT 1 {_from(inner, alias)} WHERE {y} = {x})",
                f"NOT EXISTS (SELECT 1 {_from(inner, alias)} WHERE {y} <=> {x})",
                f"({x} IN (SELECT {y} {_from(inner, alias)}) OR {_predicate(draw, outer)})",
            ]
        )
    )
    return Relation(f"SELECT * {_from(outer, names.new('t'))} WHERE {condition}", outer.columns)


def _set(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    left, right = _child(draw, names, depth), _child(draw, names, depth)
    shared = [kind for kind in "islbdntz" if left.of(kind) and right.of(kind)]
    if not shared:
        return left
    kinds = draw(st.lists(st.sampled_from(shared), min_size=1, max_size=2, unique=True))
    columns = tuple((names.new("c"), kind) for kind in kinds)

    def side(relation: Relation) -> str:
        parts = [f"{draw(st.sampled_from(relation.of(kind)))} AS {new}" for new, kind in columns]
        return f"(SELECT {', '.join(parts)} {_from(relation, names.new('t'))})"

    words = ["UNION ALL", "UNION", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]
    word = draw(st.sampled_from(words))
    return Relation(f"SELECT * FROM ({side(left)} {word} {side(right)}) {names.new('t')}", columns)


def _window(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    child = _child(draw, names, depth)
    part, order = draw(st.sampled_from(child.columns))[0], _order(draw, child)
    calls = [
        (f"row_number() OVER (PARTITION BY {part} ORDER BY {order})", "i"),
        (f"rank() OVER (PARTITION BY {part} ORDER BY {draw(st.sampled_from(child.columns))[0]} DESC)", "i"),
        (f"count(*) OVER (PARTITION BY {part})", "l"),
    ]
    for name in child.of("il"):
        calls += [
            (f"sum({name} % 100) OVER (PARTITION BY {part} ORDER BY {order})", "l"),
            (
                f"lag({name}) OVER (PARTITION BY {part} ORDER BY {order})",
                "l" if name in child.of("l") else "i",
            ),
            (
                f"max({name}) OVER (PARTITION BY {part} ORDER BY {order} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
                "l" if name in child.of("l") else "i",
            ),
        ]
    for name in child.of("n"):
        calls.append((f"sum({name}) OVER (PARTITION BY {part} ORDER BY {order})", "m"))
    for name in child.of("it"):
        calls.append(
            (
                f"count(*) OVER (PARTITION BY {part} ORDER BY {name} RANGE BETWEEN {_step(name, child)} PRECEDING AND CURRENT ROW)",
                "l",
            )
        )
    call, kind = draw(st.sampled_from(calls))
    new = names.new("c")
    inner = f"SELECT *, {call} AS {new} {_from(child, names.new('t'))}"
    columns = (*child.columns, (new, kind))
    if kind == "i" and "row_number" in call and draw(st.booleans()):
        return Relation(f"SELECT * FROM ({inner}) {names.new('t')} WHERE {new} <= 2", columns)
    return Relation(inner, columns)


def _step(name: str, relation: Relation) -> str:
    return "INTERVAL '1' DAY" if name in relation.of("t") else "1"


def _order(draw: st.DrawFn, relation: Relation) -> str:
    shapes = ["", " DESC", " NULLS LAST", " DESC NULLS FIRST"]
    columns = draw(st.permutations(relation.columns))
    return ", ".join(name + draw(st.sampled_from(shapes)) for name, _ in columns)


def _top(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    child = _child(draw, names, depth)
    offset = f" OFFSET {draw(st.integers(1, 2))}" if draw(st.integers(0, 3)) == 0 else ""
    text = f"SELECT * {_from(child, names.new('t'))} ORDER BY {_order(draw, child)} LIMIT {draw(st.integers(1, 4))}{offset}"
    return Relation(f"SELECT * FROM ({text}) {names.new('t')}", child.columns)


def _scalar(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    outer, inner = _child(draw, names, depth), _child(draw, names, depth)
    new, alias = names.new("c"), names.new("t")
    numbers = inner.of("il")
    call = f"max({draw(st.sampled_from(numbers))} % 100)" if numbers else "count(*)"
    kind = "l" if call == "count(*)" or any(name in call for name in inner.of("l")) else "i"
    pairs = [(x, y) for x, kx in outer.columns for y, ky in inner.columns if kx == ky]
    where = ""
    if draw(st.booleans()) and pairs:
        x, y = draw(st.sampled_from(pairs))
        where = f" WHERE {y} = {x}"
    subquery = f"(SELECT {call} {_from(inner, alias)}{where})"
    if draw(st.booleans()) and outer.of("il"):
        name = draw(st.sampled_from(outer.of("il")))
        return Relation(f"SELECT * {_from(outer, names.new('t'))} WHERE {name} >= {subquery}", outer.columns)
    return Relation(
        f"SELECT *, {subquery} AS {new} {_from(outer, names.new('t'))}", (*outer.columns, (new, kind))
    )


def _distinct(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    child = _child(draw, names, depth)
    kept = tuple(draw(st.lists(st.sampled_from(child.columns), min_size=1, max_size=3, unique=True)))
    return Relation(
        f"SELECT DISTINCT {', '.join(name for name, _ in kept)} {_from(child, names.new('t'))}", kept
    )


def _rollup(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    child = _child(draw, names, depth)
    keys = draw(st.lists(st.sampled_from(child.columns), min_size=1, max_size=2, unique=True))
    counted = draw(st.sampled_from(child.columns))[0]
    word = draw(st.sampled_from(["ROLLUP", "CUBE"]))
    new, level = names.new("c"), names.new("c")
    listed = ", ".join(name for name, _ in keys)
    text = (
        f"SELECT {listed}, count({counted}) AS {new}, grouping_id() AS {level} {_from(child, names.new('t'))} "
        f"GROUP BY {word} ({listed})"
    )
    return Relation(text, (*keys, (new, "l"), (level, "l")))


def _explode(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    child = _child(draw, names, depth)
    name, kind = draw(st.sampled_from(child.columns))
    new, view = names.new("c"), names.new("t")
    outer = draw(st.sampled_from(["", "OUTER "]))
    items = draw(
        st.sampled_from(
            [f"array({name}, {name})", f"array({name}, NULL)", f"IF({name} IS NULL, array(), array({name}))"]
        )
    )
    text = f"SELECT * {_from(child, names.new('t'))} LATERAL VIEW {outer}explode({items}) {view} AS {new}"
    return Relation(text, (*child.columns, (new, kind)))


def _twice(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    """One common table expression, joined with itself."""
    child = _child(draw, names, depth)
    shared, left, right = names.new("q"), names.new("t"), names.new("t")
    key = draw(st.sampled_from(child.columns))[0]
    other = draw(st.sampled_from(child.columns))
    new = names.new("c")
    listed = ", ".join(f"{left}.{name}" for name, _ in child.columns)
    how = draw(st.sampled_from(["JOIN", "LEFT JOIN"]))
    text = (
        f"WITH {shared} AS ({child.sql}) SELECT {listed}, {right}.{other[0]} AS {new} "
        f"FROM {shared} {left} {how} {shared} {right} ON {left}.{key} = {right}.{key}"
    )
    return Relation(text, (*child.columns, (new, other[1])))


def _lateral(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    """The first row of another relation for every row."""
    outer, inner = _child(draw, names, depth), _child(draw, names, depth)
    pairs = [(x, y) for x, kx in outer.columns for y, ky in inner.columns if kx == ky]
    if not pairs:
        return outer
    x, y = draw(st.sampled_from(pairs))
    found = (
        f"(SELECT * {_from(inner, names.new('t'))} WHERE {y} = {x} ORDER BY {_order(draw, inner)} LIMIT 1)"
    )
    text = f"SELECT * {_from(outer, names.new('t'))}, LATERAL {found} {names.new('t')}"
    return Relation(text, (*outer.columns, *inner.columns))
