"""The source rows that `why` gives make the row again, and of joins, filters and projections none is too many."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine.registration import Prepared, install
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Literal
from penstock.plan.node import Field
from seed import SEED
from twin.flows import (
    FIELDS,
    LARGE,
    NAMED,
    NAMES,
    PAIR,
    ROWS,
    TOTALS,
    VIEWS,
    K,
    V,
    join,
    no_fragment,
    view_scan,
)
from twin.rows import small_state

ADD = ("evalMode", "ANSI")
PLUS = plan.Project(
    (Field("s", "bigint"), Field("k", "bigint")),
    ROWS,
    (Call("Add", (V, Column(2, "bigint")), "bigint", True, (ADD,)), K),
)
SPANS = plan.Project(
    (Field("k", "bigint"), Field("begin", "bigint"), Field("end", "bigint")),
    PAIR,
    (K, V, Call("Add", (V, Literal(1, "bigint")), "bigint", True, (ADD,))),
)
LARGER = Call("GreaterThan", (V, Column(3, "bigint")), "boolean", True)  # left v, right v
MAX = plan.AggregateCall("Max", (1,), "bigint")
COUNT = plan.AggregateCall("Count", (), "bigint")
NUMBER = Field("n", "int")


def pairs(kind: Any, *, keys: bool = True, right: plan.Node = PAIR) -> plan.Node:
    """Rows and rows with a smaller v."""
    fields = FIELDS[:2] if kind in ("semi", "anti") else (*FIELDS[:2], *right.fields)
    key = (0,) if keys else ()
    return plan.Join(fields, PAIR, right, kind, key, key, (True,) if keys else (), LARGER)


# Every row that `why` gives is needed for these.
EXACT: dict[str, plan.Node] = {
    "large": LARGE,
    "plus": PLUS,
    "k_only": plan.Project(FIELDS[:1], LARGE, (K,)),
    "plus_large": plan.Filter(
        PLUS.fields, PLUS, Call("GreaterThan", (K, Literal(1, "bigint")), "boolean", True)
    ),
    "named": join("inner", PAIR),
    "by_v": join("left", PAIR, 1),
    "all_named": plan.Join((*FIELDS[:2], *NAMED), PAIR, NAMES, "full", (0,), (0,), (False,)),
    "right_named": plan.Join((*FIELDS[:2], *NAMED), LARGE, NAMES, "right", (0,), (0,), (False,)),
    "pairs": pairs("inner"),
    "cross_pairs": pairs("inner", keys=False),
    "padded_pairs": pairs("left"),
    "full_pairs": pairs("full"),
    "unnamed": join("anti", LARGE),
    "on_named": plan.Filter(
        (*FIELDS[:2], *NAMED),
        view_scan("named", (*FIELDS[:2], *NAMED)),
        Call("GreaterThan", (V, Literal(0, "bigint")), "boolean", True),
    ),
}
# Of these it gives all rows of a group, a partition or a choice.
WHOLE: dict[str, plan.Node] = {
    # A name that is NULL, and one that is missing, give the same row.
    "named_plus": plan.Project(
        (Field("name", "string"), Field("v", "bigint")), join("left", PAIR, 1), (Column(3, "string"), V)
    ),
    "totals": TOTALS,
    "large_totals": VIEWS["large_totals"],
    "all": plan.Aggregate((Field("m", "bigint"), Field("c", "bigint")), PAIR, (), (MAX, COUNT)),
    "distinct": plan.Aggregate(FIELDS[:1], PAIR, (0,), ()),
    "with_smaller": pairs("semi"),
    "with_smaller_anywhere": pairs("semi", keys=False),
    "twice": VIEWS["twice"],
    "names_of_totals": plan.Aggregate(
        (Field("name", "string"), Field("t", "bigint")),
        plan.Project(
            (Field("name", "string"), Field("t", "bigint")),
            join("inner", view_scan("totals", FIELDS[:2])),
            (Column(3, "string"), V),
        ),
        (0,),
        (plan.AggregateCall("Sum", (1,), "bigint", options=(ADD,)),),
    ),
    "total_names": join("inner", view_scan("totals", FIELDS[:2])),
    "top_total": VIEWS["top_total"],
    "top": VIEWS["top"],
    "numbered": plan.TopK((*FIELDS, NUMBER), ROWS, (0,), (plan.SortKey(1, True, False),), 2, rank_field=True),
    "second": plan.TopK(FIELDS, ROWS, (0,), (plan.SortKey(1, True, False),), 1, offset=1),
    "ranked": VIEWS["ranked"],
    "of_largest": plan.Join(
        (*FIELDS[:2], Field("m", "bigint")),
        PAIR,
        plan.Single((Field("m", "bigint"),), plan.Aggregate((Field("m", "bigint"),), PAIR, (), (MAX,))),
        "inner",
        (),
        (),
        (),
    ),
    "asof": plan.Asof((*FIELDS[:2], *FIELDS), PAIR, ROWS, (0,), (0,), 1, 2),
    "sessions": plan.SessionWindow((*SPANS.fields, Field("s", "bigint")), SPANS, (0,), 1, 2),
    "session_counts": plan.Aggregate(
        (Field("k", "bigint"), Field("s", "bigint"), Field("c", "bigint")),
        plan.SessionWindow((*SPANS.fields, Field("s", "bigint")), SPANS, (0,), 1, 2),
        (0, 3),
        (COUNT,),
    ),
    "sets": plan.Aggregate(
        (Field("k", "bigint"), Field("g", "int"), Field("c", "bigint")),
        plan.Expand(
            (Field("k", "bigint"), Field("g", "int")),
            PAIR,
            ((K, Literal(0, "int")), (Literal(None, "bigint"), Literal(1, "int"))),
        ),
        (0, 1),
        (COUNT,),
    ),
}


def with_unique_names(node: plan.Node) -> plan.Node:
    return replace(node, fields=tuple(replace(field, name=f"c{at}") for at, field in enumerate(node.fields)))


NODES = {name: with_unique_names(node) for name, node in (EXACT | WHOLE).items()}
Rows = Mapping[str, pa.Table]


def flow_with(view: str) -> ps.IncrementalFlow:
    """A flow with a view, and those that it reads."""
    flow = ps.IncrementalFlow(clock=lambda: 0)
    flow.register_source("rows", "k BIGINT, v BIGINT, w BIGINT")
    flow.register_source("names", "k BIGINT, name STRING", primary_key="k")
    for name in (*sorted(plan.scanned(NODES[view]) - {"rows", "names"}), view):
        install(flow._graph, Prepared(plan.View(name, "", NODES[name]), no_fragment), 0)
    return flow


def fill(flow: ps.IncrementalFlow, rng: random.Random) -> None:
    """Rows by which every view has some, then some ticks of others that come, and of some that go again."""
    first = [(1, 3, 0), (1, 1, 1), (2, 2, None), (9, 3, 0)]
    flow.feed("rows", [dict(zip("kvw", row, strict=True)) for row in first])
    flow.feed("names", [{"k": 1, "name": "n1"}])
    live: list[dict[str, Any]] = []
    for _ in range(rng.randint(1, 3)):
        for _ in range(rng.randint(0, 6)):
            live.append(
                {
                    "k": rng.choice([None, 0, 1, 2, 3]),
                    "v": rng.choice([None, -1, 0, 1, 2, 3]),
                    "w": rng.choice([None, 0, 1]),
                }
            )
            flow.feed("rows", [live[-1]])
        if live and rng.random() < 0.5:
            flow.feed("rows", ps.DeltaBatch.deletes([live.pop(rng.randrange(len(live)))]))
        for _ in range(rng.randint(0, 2)):
            flow.feed("names", [{"k": rng.randint(0, 3), "name": rng.choice([None, "n1", "n2"])}])
        flow.step()
    if rng.random() < 0.3:
        flow.lookup("rows", k=1)


def counted(flow: ps.IncrementalFlow, view: str) -> Counter[str]:
    return Counter(map(str, flow.snapshot(view).to_pylist()))


def replayed(view: str, sources: Rows) -> Counter[str]:
    """The view over these source rows alone."""
    flow = flow_with(view)
    for name, rows in sources.items():
        flow.feed(name, ps.DeltaBatch.weighted(rows))
    flow.step()
    return counted(flow, view)


def without_one(sources: Rows) -> list[Rows]:
    """The same rows without one of them, in all ways."""
    return [
        {**sources, name: pa.concat_tables([rows.slice(0, at), rows.slice(at + 1)])}
        for name, rows in sources.items()
        for at in range(rows.num_rows)
    ]


def check(view: str, seed: int) -> int:
    """Ask for every row of a view over random rows; return how many there were."""
    rng = random.Random(seed)
    flow = flow_with(view)
    fill(flow, rng)
    before = counted(flow, view)
    state = flow.metrics()["penstock_flow_state_bytes"]
    rows = [dict(row) for row in {str(row): row for row in flow.snapshot(view).to_pylist()}.values()]
    for row in rows:
        provenance = flow.why(view, row)
        sources = provenance.sources
        assert provenance.row == row
        for name, table in sources.items():
            there = Counter(map(str, flow.snapshot(name).to_pylist()))
            for source_row in table.to_pylist():
                weight = source_row.pop("_weight")
                assert there[str(source_row)] == weight, "a source row that is not there"
        again = replayed(view, sources)
        if view in ("top", "top_total"):  # of equal rows at the end, some are in it
            assert again[str(row)] >= before[str(row)], provenance
        else:
            assert again[str(row)] == before[str(row)], provenance
        if view in EXACT:
            for fewer in without_one(sources):
                assert replayed(view, fewer)[str(row)] != before[str(row)], provenance
    assert counted(flow, view) == before
    assert flow.metrics()["penstock_flow_state_bytes"] == state, "an index was made"
    return len(rows)


@pytest.mark.parametrize("view", list(NODES))
def test_the_rows_behind_a_row_make_it_again(view: str) -> None:
    with small_state():
        assert sum(check(view, SEED + number) for number in range(2)) > 0


@pytest.mark.soak
@pytest.mark.parametrize("view", list(NODES))
def test_the_rows_behind_a_row_make_it_again_over_many_flows(view: str) -> None:
    with small_state():
        assert sum(check(view, SEED + number) for number in range(100)) > 0
