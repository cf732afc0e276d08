"""Queries, tables and ticks for Hypothesis: nested SQL whose answer Spark determines, and deltas that hurt.

A query is grown from relations with typed columns: `i` INT, `l` BIGINT, `s` STRING, `d` DOUBLE, `b` BOOLEAN, and `r` for a
DOUBLE that was rounded. Values are small, so that nothing overflows, and doubles are quarters, so that sums are exact in any order;
rounded ones are never added again. Rankings, limits and the like order by every column, so ties are equal rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from .case import Change, Tick

Columns = tuple[tuple[str, str], ...]

TABLES = {
    "a": "k INT, g STRING, v BIGINT, d DOUBLE",
    "b": "k INT, g STRING, v BIGINT, d DOUBLE",
    "c": "k INT, f BOOLEAN",
}
_COLUMNS: dict[str, Columns] = {
    "a": (("k", "i"), ("g", "s"), ("v", "l"), ("d", "d")),
    "b": (("k", "i"), ("g", "s"), ("v", "l"), ("d", "d")),
    "c": (("k", "i"), ("f", "b")),
}
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.sampled_from([None, 0, 1, 2, 3, -1]),
    "s": st.sampled_from([None, "", "x", "y", "ü"]),
    "l": st.sampled_from([None, 0, 1, 5, -7, 9007199254740993]),
    "d": st.sampled_from([None, 0.0, 0.25, 1.5, -2.75, float("nan")]),
    "b": st.sampled_from([None, True, False]),
}
_LITERALS = {
    "i": ["1", "2"],
    "l": ["1", "5"],
    "s": ["'x'", "''"],
    "d": ["0.25D", "1.5D"],
    "r": ["0.5D"],
    "b": ["true"],
}


@dataclass(frozen=True, slots=True)
class Relation:
    """SQL text of a query and the columns that it has."""

    sql: str
    columns: Columns

    def of(self, kinds: str) -> list[str]:
        return [name for name, kind in self.columns if kind in kinds]


class _Names:
    """Fresh names for columns and tables, so that no reference is ambiguous."""

    def __init__(self) -> None:
        self.count = 0

    def new(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"


@st.composite
def queries(draw: st.DrawFn, depth: int = 3) -> str:
    """Return a query nested up to `depth` times."""
    return _grow(draw, _Names(), depth).sql


@st.composite
def ticks(draw: st.DrawFn, count: int = 4) -> tuple[Tick, ...]:
    """Return ticks of inserts, deletes and updates that never retract a row that is not there."""
    held: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
    found = []
    for _ in range(count):
        tick: dict[str, tuple[Change, ...]] = {}
        for name in draw(st.lists(st.sampled_from(sorted(TABLES)), min_size=1, max_size=3, unique=True)):
            changes = _retractions(draw, held[name]) + _insertions(draw, name)
            for weight, row in changes:
                if weight > 0:
                    held[name].extend([row] * weight)
            tick[name] = tuple(changes)
        found.append(tick)
    return tuple(found)


def _insertions(draw: st.DrawFn, name: str) -> list[Change]:
    row = st.tuples(*(_VALUES[kind] for _, kind in _COLUMNS[name]))
    return draw(st.lists(st.tuples(st.sampled_from([1, 1, 1, 2, 3]), row), max_size=6))


def _retractions(draw: st.DrawFn, held: list[tuple[Any, ...]]) -> list[Change]:
    mode = draw(st.sampled_from(["some", "some", "all", "none"]))
    count = {"all": len(held), "none": 0}.get(mode, min(len(held), draw(st.integers(0, 3))))
    return [
        (-1, held.pop(draw(st.integers(0, len(held) - 1)) if mode == "some" else 0)) for _ in range(count)
    ]


def _grow(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    if depth == 0:
        return _table(draw, names)
    kinds = [_select, _join, _join, _aggregate, _aggregate, _member, _set, _window, _top, _scalar, _distinct]
    return draw(st.sampled_from(kinds))(draw, names, depth - 1)


def _child(draw: st.DrawFn, names: _Names, depth: int) -> Relation:
    return _grow(draw, names, draw(st.integers(0, depth)))


def _table(draw: st.DrawFn, names: _Names) -> Relation:
    name = draw(st.sampled_from(sorted(TABLES)))
    columns = tuple((names.new("c"), kind) for _, kind in _COLUMNS[name])
    chosen = ", ".join(f"{old} AS {new}" for (old, _), (new, _) in zip(_COLUMNS[name], columns, strict=True))
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
        shapes = [name, f"coalesce({name}, {_LITERALS[kind][0]})"]
        if kind in "il":
            shapes += [f"{name} % 3", f"CASE WHEN {name} > 1 THEN {name} END"]
        if kind == "s":
            shapes += [f"upper({name})", f"concat({name}, '!')"]
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
    return one == other or {one, other} <= set("il") or {one, other} <= set("dr")


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
    shared = [kind for kind in "islbd" if left.of(kind) and right.of(kind)]
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
    call, kind = draw(st.sampled_from(calls))
    new = names.new("c")
    inner = f"SELECT *, {call} AS {new} {_from(child, names.new('t'))}"
    columns = (*child.columns, (new, kind))
    if kind == "i" and "row_number" in call and draw(st.booleans()):
        return Relation(f"SELECT * FROM ({inner}) {names.new('t')} WHERE {new} <= 2", columns)
    return Relation(inner, columns)


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
    if pairs and draw(st.booleans()):
        x, y = draw(st.sampled_from(pairs))
        where = f" WHERE {y} = {x}"
    subquery = f"(SELECT {call} {_from(inner, alias)}{where})"
    if outer.of("il") and draw(st.booleans()):
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
