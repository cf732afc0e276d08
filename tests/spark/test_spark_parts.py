"""Parts of views that Spark computes: two of the same shape are shared only if they compute the same."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.plan.node import Node, Spark, children

PAIRS = [
    (
        "SELECT id, regexp_replace(s, 'a', 'x') AS r FROM t",
        "SELECT id, regexp_replace(s, 'a', 'y') AS r FROM t",
        [(1, "x"), (2, "B")],
        [(1, "y"), (2, "B")],
    ),
    (
        "SELECT id FROM t WHERE c IN (SELECT c FROM u)",
        "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.c = t.c)",
        [(1,)],
        [(2,)],
    ),
    (
        "SELECT max(c) AS m FROM t",
        "SELECT min(c) AS m FROM t",
        [("b",)],
        [("A",)],
    ),
    (
        "SELECT transform(array(id, 2), (x, y) -> x * 10 + y) AS l FROM t",
        "SELECT transform(array(id, 2), (x, y) -> y * 10 + x) AS l FROM t",
        [([10, 21],), ([20, 21],)],
        [([1, 12],), ([2, 12],)],
    ),
]


@pytest.mark.parametrize(
    ("one", "other", "first", "second"), PAIRS, ids=["text", "join", "aggregate", "lambda"]
)
def test_parts_of_one_shape_are_not_taken_for_each_other(
    session: ps.Session, one: str, other: str, first: object, second: object
) -> None:
    flow = ps.IncrementalFlow(session)
    flow.register_source("t", "id INT, s STRING, c STRING COLLATE UTF8_LCASE")
    flow.register_source("u", "c STRING COLLATE UTF8_LCASE")
    flow.register_view("one", one)
    flow.register_view("other", other)
    flow.register_view("again", one)
    flow.feed("u", [{"c": "a"}])
    flow.tick("t", [{"id": 1, "s": "a", "c": "A"}, {"id": 2, "s": "B", "c": "b"}])
    rows = {
        name: sorted(tuple(row.values()) for row in flow.snapshot(name).to_pylist())
        for name in ("one", "other", "again")
    }
    assert rows == {"one": first, "other": second, "again": first}
    # The same query is the same part whenever it is planned, or a saved flow could not ask Spark for it.
    views = flow._graph.views
    assert _meanings(views["one"].view.root) == _meanings(views["again"].view.root)


def _meanings(node: Node) -> list[str]:
    own = [node.meaning] if isinstance(node, Spark) else []
    return own + [text for child in children(node) for text in _meanings(child)]
