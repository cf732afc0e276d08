"""A source that joins read by key keeps its rows by that key, once; a load in one tick is a load in many."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine.registration import Prepared, install
from penstock.errors import DataError
from penstock.plan import node as plan
from penstock.plan.node import Field
from twin.collisions import weakened

ORDERS = (Field("id", "bigint"), Field("k", "bigint"), Field("v", "double"))
NAMES = (Field("k", "bigint"), Field("name", "string"))
SIDE = plan.Scan(ORDERS[1:], "orders", (1, 2))
OTHER = plan.Scan(NAMES, "names", (0, 1))
JOINED = (*ORDERS[1:], *NAMES)


def join(kind: Any) -> plan.Node:
    fields = ORDERS[1:] if kind in ("semi", "anti") else JOINED
    return plan.Join(fields, SIDE, OTHER, kind, (0,), (0,), (False,))


VIEWS: dict[str, plan.Node] = {
    **{kind: join(kind) for kind in ("inner", "left", "full", "semi", "anti")},
    "totals": plan.Aggregate(
        (ORDERS[1], Field("n", "bigint"), Field("lo", "double"), Field("hi", "double"), Field("s", "double")),
        SIDE,
        (0,),
        (
            plan.AggregateCall("Count", (1,), "bigint"),
            plan.AggregateCall("Min", (1,), "double"),
            plan.AggregateCall("Max", (1,), "double"),
            plan.AggregateCall("Sum", (1,), "double", options=(("evalMode", "ANSI"),)),
        ),
    ),
}


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


def flow_of(views: Any = VIEWS, *, key: str | None = None) -> ps.IncrementalFlow:
    flow = ps.IncrementalFlow()
    flow.register_source("orders", "id BIGINT, k BIGINT, v DOUBLE")
    flow.register_source("names", "k BIGINT, name STRING", primary_key=key)
    for name in views:
        add(flow, name)
    return flow


def add(flow: ps.IncrementalFlow, name: str) -> None:
    install(flow._graph, Prepared(plan.View(name, "", VIEWS[name]), no_fragment), 0)


def orders(count: int, seed: int = 1) -> pa.Table:
    """Rows with NULL keys, equal rows, and every other key without a name."""
    chance = np.random.default_rng(seed)
    keys = chance.integers(0, max(count // 8, 2), count)
    return pa.table(
        {
            "id": chance.integers(0, max(count - count // 10, 1), count),
            "k": pa.array(keys, mask=keys == 1),
            "v": pa.array(chance.integers(-5, 50, count) / 8.0, mask=chance.random(count) < 0.05),
        }
    )


def names(count: int) -> pa.Table:
    return pa.table({"k": [*range(0, count, 2), None], "name": [f"n{k}" for k in range(0, count, 2)] + ["?"]})


def snapshots(flow: ps.IncrementalFlow) -> dict[str, Counter[tuple[Any, ...]]]:
    return {
        view: Counter(tuple(row.values()) for row in flow.snapshot(view).to_pylist())
        for view in (*VIEWS, "orders")
    }


@pytest.mark.parametrize("mask", [0xFFFF_0000_0000_00FF, 0xFFFFFFFFFFFFFFFF], ids=["collisions", "all bits"])
@pytest.mark.parametrize("count", [40, 40_000])
def test_one_load_is_many_ticks(count: int, mask: int) -> None:
    with weakened(mask):
        at_once, in_ticks = flow_of(), flow_of()
        table, small = orders(count), names(count // 8)
        at_once.feed("orders", ps.DeltaBatch.inserts(table))
        at_once.tick("names", ps.DeltaBatch.inserts(small))
        piece = count // 7 + 1
        for start in range(0, count, piece):
            in_ticks.tick("orders", ps.DeltaBatch.inserts(table.slice(start, piece)))
        in_ticks.tick("names", ps.DeltaBatch.inserts(small))
        assert snapshots(at_once) == snapshots(in_ticks)
        gone = table.slice(count // 3, count // 2)
        for flow in (at_once, in_ticks):
            flow.tick("orders", ps.DeltaBatch.deletes(gone))
            flow.tick("names", ps.DeltaBatch.deletes(small.slice(0, 3)))
        late = flow_of(())
        late.feed("orders", ps.DeltaBatch.inserts(table) + ps.DeltaBatch.deletes(gone))
        late.tick("names", ps.DeltaBatch.inserts(small.slice(3)))
        for name in VIEWS:
            add(late, name)
        assert snapshots(at_once) == snapshots(in_ticks) == snapshots(late)


@pytest.mark.parametrize("count", [50, 40_000])
def test_a_load_that_fails_changes_nothing(count: int) -> None:
    flow = flow_of()
    table = orders(count)
    flow.tick("names", ps.DeltaBatch.inserts(names(count // 8)))
    before = snapshots(flow)
    absent = table.slice(0, 1).set_column(0, "id", pa.array([-1]))
    with pytest.raises(DataError, match="not in source 'orders'"):
        flow.tick("orders", ps.DeltaBatch.inserts(table) + ps.DeltaBatch.deletes(absent))
    assert snapshots(flow) == before
    flow.tick("orders", ps.DeltaBatch.inserts(table))
    flow.tick("orders", ps.DeltaBatch.deletes(table))
    assert snapshots(flow) == before


@pytest.mark.parametrize("late", [False, True], ids=["views first", "rows first"])
def test_rows_are_kept_once(late: bool) -> None:
    """By the key of the join, in the source itself, whether the view or the rows came first."""
    flow, alone = flow_of([] if late else ["semi"], key="k"), flow_of([], key="k")
    flow.tick("orders", ps.DeltaBatch.inserts(orders(5_000)))
    alone.tick("orders", ps.DeltaBatch.inserts(orders(5_000)))
    if late:
        add(flow, "semi")
    assert len(flow._graph.kernel.states()) == len(alone._graph.kernel.states()) + 1, (
        "one for the view's rows"
    )
    state_bytes = flow.metrics()["penstock_flow_state_bytes"]
    assert state_bytes < 1.1 * alone.metrics()["penstock_flow_state_bytes"]
    whole = flow_of(["semi"], key="k")
    whole.tick("orders", ps.DeltaBatch.inserts(orders(5_000)))
    for each in (flow, whole):
        each.tick("names", ps.DeltaBatch.inserts(names(600).slice(0, 300)))
        each.tick("orders", ps.DeltaBatch.deletes(orders(5_000).slice(100, 300)))
    assert Counter(map(str, flow.snapshot("semi").to_pylist())) == Counter(
        map(str, whole.snapshot("semi").to_pylist())
    )
    assert flow.snapshot("orders").num_rows == whole.snapshot("orders").num_rows


def test_recomputed_views_read_a_source_that_is_its_own_index() -> None:
    flow, other = flow_of(), flow_of()
    other.force_diff_based()
    for each in (flow, other):
        each.tick("names", ps.DeltaBatch.inserts(names(10)))
        each.tick("orders", ps.DeltaBatch.inserts(orders(60)))
        each.tick("orders", ps.DeltaBatch.deletes(orders(60).slice(10, 20)))
    assert snapshots(flow) == snapshots(other)
