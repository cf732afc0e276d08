"""Keys in whatever order they are written: rows are indexed once, in the canonical order, and answers do not depend on it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.circuit.local import LocalKernel
from penstock.data.hashing import hash_rows, shard_of
from penstock.engine.registration import Prepared, install
from penstock.plan import node as plan
from penstock.plan.node import Field

LEFT = (Field("a", "bigint"), Field("b", "string"), Field("c", "double"))
RIGHT = (Field("x", "string"), Field("y", "bigint"))


def join(kind: Any, *pairs: tuple[int, int, bool]) -> plan.Join:
    left, right = plan.Scan(LEFT, "left", (0, 1, 2)), plan.Scan(RIGHT, "right", (0, 1))
    fields = LEFT if kind == "semi" else (*LEFT, *RIGHT)
    keys = (tuple(pair[at] for pair in pairs) for at in range(3))
    return plan.Join(fields, left, right, kind, *keys)  # type: ignore[arg-type]


def window(*partition: int) -> plan.Window:
    call = plan.WindowCall("RowNumber", (), "int", plan.Frame("rows", None, 0))
    scan = plan.Scan(LEFT, "left", (0, 1, 2))
    return plan.Window((*LEFT, Field("place", "int")), scan, partition, (plan.SortKey(2),), (call,))


VIEWS: dict[str, plan.Node] = {
    "left join": join("left", (0, 1, False), (1, 0, True)),
    "inner join": join("inner", (1, 0, False), (0, 1, False)),
    "semi join": join("semi", (1, 0, False), (0, 1, False)),
    "window": window(1, 0),
    "another window": window(0, 1),
}


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


def flow_of(**source: Any) -> ps.IncrementalFlow:
    flow = ps.IncrementalFlow()
    flow.register_source("left", "a BIGINT, b STRING, c DOUBLE")
    flow.register_source("right", "x STRING, y BIGINT", **source)
    for name, root in VIEWS.items():
        install(flow._graph, Prepared(plan.View(name, "", root), no_fragment), 0)
    flow.feed(
        "left", [{"a": 1, "b": "p", "c": 1.0}, {"a": 2, "b": None, "c": 2.0}, {"a": 3, "b": "q", "c": 3.0}]
    )
    flow.feed("right", [{"x": "p", "y": 1}, {"x": "q", "y": 4}])
    flow.step()
    return flow


def test_an_index_serves_every_order_of_its_keys() -> None:
    flow = flow_of()
    kernel = flow._graph.kernel
    assert isinstance(kernel, LocalKernel)
    assert flow.lookup("left", b="p", a=1) == flow.lookup("left", a=1, b="p")
    before = kernel.states().keys()
    assert {key.keys for key in before} <= {
        None,
        (0, 1),
        (1, 0),
    }  # the right input follows the order of the left one
    assert flow.lookup("left", b="q", a=3).num_rows == 1
    assert kernel.states().keys() == before


def test_answers_do_not_depend_on_the_order() -> None:
    for source in ({}, {"primary_key": ["y", "x"]}, {"primary_key": ["x", "y"]}):
        flow = flow_of(**source)
        assert flow.snapshot("inner join").to_pylist() == [{"a": 1, "b": "p", "c": 1.0, "x": "p", "y": 1}]
        assert flow.snapshot("semi join")["a"].to_pylist() == [1]
        assert flow.lookup("left join", b="q", a=3)["x"].to_pylist() == [None]
        assert flow.snapshot("window")["place"].to_pylist() == [1, 1, 1]
        flow.tick("right", ps.DeltaBatch.deletes([{"x": "p", "y": 1}]))
        assert flow.snapshot("inner join").num_rows == 0


def test_the_words_of_a_source_have_the_shards_of_its_primary_key() -> None:
    flow = flow_of(primary_key=["y", "x"])
    kernel = flow._graph.kernel
    assert isinstance(kernel, LocalKernel)
    (run,) = kernel._sources["right"].operator.arrangement.before().runs
    assert (shard_of(run.words, 100) == shard_of(hash_rows(run.columns), 100)).all()
    assert "rows: by x, y" in str(flow.explain("inner join"))


def test_explain_follows_the_keys_through_views() -> None:
    flow = flow_of(primary_key=["x", "y"])
    scan = plan.Scan(LEFT, "inner join", (0, 1, 2))
    install(flow._graph, Prepared(plan.View("again", "", scan), no_fragment), 0)
    assert flow.explain("again").operators[0].distribution == "by b, a"
    assert isinstance(flow.snapshot("again"), pa.Table)
