from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.relation import read_names, relations, renamed


def names(text: str) -> list[str]:
    return [relation.name for relation in relations(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", []),
        ("SELECT * FROM a", ["a"]),
        ("FROM a SELECT x, y WHERE x IN (FROM b)", ["a", "b"]),
        ("SELECT * FROM a, b x, c AS y JOIN d USING (id), e", ["a", "b", "c", "d", "e"]),
        ("SELECT * FROM lake.db.a NATURAL JOIN `b c`.`d``e`", ["lake.db.a", "b c.d`e"]),
        ("SELECT * FROM a . b", ["a.b"]),
        ("SELECT (SELECT max(x) FROM b), c FROM d", ["b", "d"]),
        ("SELECT ((SELECT x FROM b)) AS c, e FROM d", ["b", "d"]),
        ("SELECT x FROM (a JOIN b ON a.x = b.x) JOIN (c, d)", ["a", "b", "c", "d"]),
        (
            "SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x) AND y IN (TABLE c)",
            ["a", "b", "c"],
        ),
        ("SELECT * FROM a UNION ALL SELECT * FROM b EXCEPT TABLE c", ["a", "b", "c"]),
        ("TABLE a", ["a"]),
        ("SELECT * FROM f(1, x), a, explode(b), range(TABLE c), g(TABLE(d))", ["a", "c", "d"]),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b), LATERAL explode(a.x) e", ["a", "b"]),
        ("SELECT * FROM a LATERAL VIEW OUTER explode(x) t AS k, v WHERE k > 1", ["a"]),
        ("SELECT * FROM VALUES (1), (2) AS t(x), a", ["a"]),
        ("SELECT * FROM VALUES 1, 2 t, a", ["a"]),
        ("SELECT * FROM (VALUES (1), (x)), a", ["a"]),
        ("SELECT * FROM a PIVOT (sum(x) FOR y IN (1, 2)) p, b", ["a", "b"]),
        ("SELECT * FROM a UNPIVOT (v FOR k IN (x, y)), b", ["a", "b"]),
        ("SELECT * FROM a TABLESAMPLE (5 PERCENT) REPEATABLE (1), b", ["a", "b"]),
        ("SELECT x, y FROM a GROUP BY x, y WITH ROLLUP ORDER BY x, y", ["a"]),
        ("SELECT sum(x) OVER w FROM a WINDOW w AS (PARTITION BY y), v AS (ORDER BY z)", ["a"]),
        (
            "SELECT extract(day FROM b), trim(BOTH 'x' FROM c), trim(FROM d), substring(e FROM 1) FROM a",
            ["a"],
        ),
        ("SELECT overlay(b PLACING 'x' FROM 2), position('x' IN c) FROM a", ["a"]),
        ("SELECT b IS DISTINCT FROM c, b IS NOT DISTINCT FROM d FROM a", ["a"]),
        ("SELECT t.from, t.join, t.table FROM a t ON t.offset = 1, b", ["a", "b"]),
        ("SELECT 'x FROM b', `FROM c` -- FROM d\n FROM /* FROM e */ a", ["a"]),
        ("SELECT /*+ BROADCAST(b) */ * FROM a JOIN b", ["a", "b"]),
        ("SELECT * FROM 'data/a.parquet' x, b", ["b"]),
        ("SELECT * FROM identifier('a.b'), identifier(:name), c", ["a.b", "c"]),
        ("FROM a |> WHERE x > 1 |> JOIN b USING (id) |> SELECT x, y |> UNION ALL TABLE c", ["a", "b", "c"]),
        ("SELECT * FROM a t WHERE x > 1; ", ["a"]),
        ("SELECT * FROM", []),
        ("SELECT * FROM (", []),
        (")) FROM a", ["a"]),
        ("SELECT * FROM a,", ["a"]),
    ],
)
def test_relations(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("WITH a AS (SELECT * FROM b) SELECT * FROM a JOIN c", ["b", "c"]),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM A", ["a"]),
        ("WITH a AS (SELECT 1), b (x, y) AS (SELECT * FROM a, b) SELECT * FROM a, b, s.a", ["b", "s.a"]),
        ("WITH a (SELECT * FROM b) SELECT * FROM a", ["b"]),
        ("WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT x FROM a, b) SELECT * FROM a", ["b"]),
        ("WITH RECURSIVE a (n) MAX RECURSION LEVEL 9 AS (SELECT n FROM a) SELECT * FROM a", []),
        ("WITH recursive AS (SELECT * FROM b) SELECT * FROM recursive", ["b"]),
        ("WITH a AS ((SELECT 1) UNION SELECT x FROM b) SELECT * FROM a", ["b"]),
        ("SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) x JOIN a", ["a"]),
        ("WITH a AS (SELECT 1) SELECT (SELECT max(x) FROM a), x AS y FROM (SELECT * FROM a), y", ["y"]),
        ("WITH a AS (WITH b AS (SELECT * FROM c) SELECT * FROM b) SELECT * FROM a, b", ["c", "b"]),
        ("WITH `a b` AS (SELECT 1) SELECT * FROM `A B`", []),
    ],
)
def test_names_of_with_hide_others(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_offsets_say_where_the_name_stands() -> None:
    text = "SELECT *\nFROM  raw . `orders` o"
    [relation] = relations(text)
    assert (text[relation.start : relation.end], relation.alias_at) == ("raw . `orders`", None)


def test_read_names_are_as_declared_and_distinct() -> None:
    nodes = {"raw.orders": "raw.Orders", "customers": "Customers"}
    text = "SELECT * FROM RAW.ORDERS JOIN customers JOIN raw.orders x JOIN `raw.orders` JOIN other"
    assert read_names(text, nodes) == ("raw.Orders", "Customers")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM a.t", "SELECT * FROM n1 AS `t`"),
        ("SELECT * FROM a.t x", "SELECT * FROM n1 x"),
        ("SELECT * FROM A.`T` AS x, other", "SELECT * FROM n1 AS x, other"),
        ("SELECT a.t.x, T.y, a.t.* FROM a.t", "SELECT `t`.x, T.y, `t`.* FROM n1 AS `t`"),
        ("SELECT `a`.t.`x`.y FROM a.t", "SELECT `t`.`x`.y FROM n1 AS `t`"),
        ("SELECT x FROM `a.t`", "SELECT x FROM n1 AS `a.t`"),
        ("SELECT a.t.x FROM a.t JOIN b.t ON a.t.x = b.t.x", "SELECT `a.t`.x FROM n1 AS `a.t` JOIN `n-2` AS `b.t` ON `a.t`.x = `b.t`.x"),
        ("SELECT t.x FROM a.t UNION SELECT t.x FROM b.t", "SELECT t.x FROM n1 AS `t` UNION SELECT t.x FROM `n-2` AS `t`"),
        ("SELECT a.t.x FROM other.a.t", "SELECT a.t.x FROM other.a.t"),
        ("SELECT a.t, a.t() FROM b.t", "SELECT a.t, a.t() FROM `n-2` AS `t`"),
        ("TABLE a.t", "TABLE n1"),
        ("SELECT * FROM f(TABLE(a.t)) UNION TABLE b.t", "SELECT * FROM f(TABLE(n1)) UNION TABLE `n-2`"),
        ("SELECT * FROM a.t TABLESAMPLE (1 ROWS) WHERE x", "SELECT * FROM n1 TABLESAMPLE (1 ROWS) AS `t` WHERE x"),
        ("SELECT * FROM identifier('a.t')", "SELECT * FROM n1 AS `t`"),
        ("WITH t AS (SELECT * FROM a.t) SELECT * FROM t", "WITH t AS (SELECT * FROM n1 AS `t`) SELECT * FROM t"),
    ],
)  # fmt: skip
def test_renamed(text: str, expected: str) -> None:
    assert renamed(text, {"a.t": "n1", "b.t": "n-2"}) == expected


_NAMES = st.sampled_from(["a", "b", "c", "raw.t", "clean.t", "lake.db.u", "`d e`"])
_ALIASES = st.sampled_from(["", " x", " AS y", " `z`"])


def _bare(name: str) -> str:
    return name.replace("`", "")


@st.composite
def _queries(draw: st.DrawFn, bound: frozenset[str] = frozenset(), depth: int = 2) -> tuple[str, list[str]]:
    """A query, and the names that it reads in the order of its text."""
    read: list[str] = []

    def expression() -> str:
        column = draw(
            st.sampled_from(["x", "t.y", "'FROM b'", "extract(day FROM x)", "trim(BOTH FROM x)", "`from`"])
        )
        return column if depth == 0 or draw(st.integers(0, 3)) else f"({nested(bound)})"

    def nested(visible: frozenset[str]) -> str:
        text, inner = draw(_queries(visible, depth - 1))
        read.extend(inner)
        return text

    def relation(visible: frozenset[str]) -> str:
        match draw(st.integers(0, 5 if depth else 3)):
            case 0:
                return "explode(x) AS e"
            case 1:
                return "VALUES (1), (2) AS v(k)"
            case 4:
                return f"({nested(visible)}) AS q"
            case 5:
                return f"LATERAL ({nested(visible)}) q"
        name = draw(_NAMES)
        if _bare(name) not in visible:
            read.append(_bare(name))
        return name + draw(_ALIASES)

    prefix, visible = "", bound
    if depth and draw(st.booleans()):
        bodies = []
        for name in draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=2, unique=True)):
            bodies.append(f"{name}{draw(st.sampled_from(['', ' (k)']))} AS ({nested(visible)})")
            visible = visible | {name}
        prefix = f"WITH {', '.join(bodies)} "
    bound = visible
    columns = ", ".join(expression() for _ in range(draw(st.integers(1, 3))))
    first = relation(visible)
    others = [
        draw(st.sampled_from([", ", " JOIN ", " LEFT JOIN ", " /* FROM c */ CROSS JOIN "]))
        + relation(visible)
        for _ in range(draw(st.integers(0, 2)))
    ]
    where = f" WHERE x IS DISTINCT FROM {expression()}" if draw(st.booleans()) else ""
    order = draw(st.sampled_from(["", " ORDER BY x, y", " GROUP BY x, y", " -- FROM a\n"]))
    text = f"{prefix}SELECT {columns} FROM {first}{''.join(others)}{where}{order}"
    return text, read


@given(_queries())
def test_relations_of_made_up_queries(query: tuple[str, list[str]]) -> None:
    text, expected = query
    assert names(text) == expected


@given(_queries())
def test_renamed_queries_read_the_new_names(query: tuple[str, list[str]]) -> None:
    text, read = query
    others = {"raw.t": "n1", "clean.t": "n2", "d e": "n3"}
    assert names(renamed(text, others)) == [others.get(name, name) for name in read]


@given(st.text(alphabet="()`'.,; abFROMSELCTWIH*\n-/", max_size=60))
def test_any_text_is_taken(text: str) -> None:
    for relation in relations(text):
        assert text[relation.start : relation.end].strip() != ""
    assert renamed(text, {}) == text
