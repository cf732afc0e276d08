"""Views whose rows are those of an operator: they are read from it, and the sum of what was emitted is always the snapshot."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import penstock as ps
from penstock.engine.registration import Prepared, install
from penstock.plan import node as plan
from penstock.plan.expression import Column
from penstock.plan.node import Field

FIELDS = (Field("k", "bigint"), Field("v", "bigint"), Field("w", "bigint"))
SUM = plan.AggregateCall("Sum", (1,), "bigint", options=(("evalMode", "ANSI"),))
SCAN = plan.Scan(FIELDS, "rows", (0, 1, 2))
PAIR = plan.Scan(FIELDS[:2], "rows", (0, 1))
ORDER = (plan.SortKey(1, True, False),)
RANK = plan.WindowCall("Rank", (), "int", plan.Frame("rows", None, 0))
WINDOW = plan.Window((*FIELDS, Field("r", "int")), SCAN, (0,), ORDER, (RANK,))
VIEWS: dict[str, plan.Node] = {
    "totals": plan.Aggregate((FIELDS[0], Field("s", "bigint")), PAIR, (0,), (SUM,)),
    "all": plan.Aggregate((Field("s", "bigint"),), PAIR, (), (SUM,)),
    "top": plan.TopK(FIELDS, SCAN, (0,), ORDER, 2),
    "ranked": WINDOW,
    "ranks": plan.Project((FIELDS[0], Field("r", "int")), WINDOW, (Column(0, "bigint"), Column(3, "int"))),
    "same": SCAN,
    "pair": PAIR,
}


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


def flow_of(names: list[str]) -> ps.IncrementalFlow:
    flow = ps.IncrementalFlow()
    flow.register_source("rows", "k BIGINT, v BIGINT, w BIGINT")
    for name in names:
        add(flow, name)
    return flow


def add(flow: ps.IncrementalFlow, name: str) -> None:
    install(flow._graph, Prepared(plan.View(name, "", VIEWS[name]), no_fragment), 0)


def rows(table: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def changes(seed: int, ticks: int = 12) -> list[ps.DeltaBatch]:
    """Inserts with many equal rows, and deletes of rows that are there."""
    chance = random.Random(seed)
    present: list[dict[str, int]] = []
    found = []
    for _ in range(ticks):
        fresh = [{name: chance.randrange(3) for name in "kvw"} for _ in range(chance.randrange(1, 9))]
        gone = [
            present.pop(chance.randrange(len(present))) for _ in range(min(chance.randrange(7), len(present)))
        ]
        present += fresh
        weighted = [row | {"_weight": 1} for row in fresh] + [row | {"_weight": -1} for row in gone]
        found.append(ps.DeltaBatch.weighted(weighted))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_what_was_emitted_adds_up_to_the_snapshot(seed: int) -> None:
    flow, again = flow_of(list(VIEWS)), flow_of(list(VIEWS))
    again.force_diff_based()
    watches = {name: flow.watch_output(name, snapshot=True) for name in VIEWS}
    sums: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in VIEWS}
    for change in changes(seed):
        flow.tick("rows", change)
        again.tick("rows", change)
        for name in VIEWS:
            while (delta := watches[name].recv(timeout=0)) is not None:
                keys = [tuple(row.values())[:-1] for row in delta.to_pylist()]
                assert max(Counter(keys).values()) == 1
                for row in delta.to_pylist():
                    sums[name][tuple(row.values())[:-1]] += row["_weight"]
            shown = rows(flow.snapshot(name))
            assert shown == Counter({row: count for row, count in sums[name].items() if count})
            assert shown == rows(again.snapshot(name))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("diff_based", [False, True])
def test_a_later_view_begins_with_what_is_there(seed: int, diff_based: bool) -> None:
    """It may share scans, arrangements and operators with views that have seen rows already."""
    flow, whole = flow_of(["totals", "ranked"]), flow_of(list(VIEWS))
    *before, after = changes(seed)
    for change in before[:5]:
        flow.tick("rows", change)
        whole.tick("rows", change)
    if diff_based:
        flow.force_diff_based()
    for change in before[5:]:
        flow.tick("rows", change)
        whole.tick("rows", change)
    for name in VIEWS.keys() - {"totals", "ranked"}:
        add(flow, name)
        assert rows(flow.snapshot(name)) == rows(whole.snapshot(name)), name
    flow.tick("rows", after)
    whole.tick("rows", after)
    for name in VIEWS:
        assert rows(flow.snapshot(name)) == rows(whole.snapshot(name)), name


def test_views_that_an_operator_has_keep_no_rows_of_their_own() -> None:
    flow = flow_of(["totals"])
    flow.tick("rows", [{"k": number, "v": number, "w": 0} for number in range(100)])
    names = {str(key) for key in flow._graph.kernel.states()}
    other = flow_of(["totals", "pair"])
    assert len(other._graph.kernel.states()) == len(names), "pair is read from the source"
    assert flow.lookup("totals", k=7).to_pylist() == [{"k": 7, "s": 7}]
    assert flow.snapshot("totals").num_rows == 100
