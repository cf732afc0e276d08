"""What is read stays what it was: images and snapshots are taken between two ticks and read while others go on."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.data.tick import Tick
from penstock.engine import read
from penstock.engine.registration import Prepared, install
from penstock.plan import node as plan
from penstock.plan.expression import Column
from penstock.plan.node import Field
from seed import SEED
from twin.replay import random_ticks
from twin.rigs import RIGS, image_bits
from twin.rows import small_state

FIELDS = (Field("k", "bigint"), Field("v", "bigint"))
ROWS = plan.Scan(FIELDS, "rows", (0, 1))
SUM = plan.AggregateCall("Sum", (1,), "bigint", options=(("evalMode", "ANSI"),))
VALUES = plan.AggregateCall("Count", (1,), "bigint", distinct=True)
RANK = plan.WindowCall("Rank", (), "int", plan.Frame("rows", None, 0))
ORDER = (plan.SortKey(1, True, False),)
TOTALS = plan.Aggregate((*FIELDS, Field("n", "bigint")), ROWS, (0,), (SUM, VALUES))
VIEWS: dict[str, plan.Node] = {
    "totals": TOTALS,
    "turned": plan.Project(FIELDS, TOTALS, (Column(1, "bigint"), Column(0, "bigint"))),
    "joined": plan.Join((*FIELDS, *FIELDS), ROWS, ROWS, "full", (0,), (1,), (False,)),
    "top": plan.TopK(FIELDS, ROWS, (0,), ORDER, 2),
    "ranked": plan.Window((*FIELDS, Field("r", "int")), ROWS, (0,), ORDER, (RANK,)),
    "of_a_view": plan.Aggregate(FIELDS, plan.Scan(FIELDS, "totals", (0, 1)), (0,), (SUM,)),
}


@pytest.fixture
def flow() -> ps.IncrementalFlow:
    flow = ps.IncrementalFlow(clock=lambda: 7)
    flow.register_source("rows", "k BIGINT, v BIGINT")
    for name, root in VIEWS.items():
        install(flow._graph, Prepared(plan.View(name, "", root), no_fragment), 0)
    flow.tick("rows", change(np.arange(200) % 50, np.arange(200)))
    return flow


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


def change(keys: Any, values: Any, weight: int = 1) -> ps.DeltaBatch:
    return ps.DeltaBatch(pa.table({"k": keys, "v": values}), np.full(len(keys), weight, np.int64))


@pytest.mark.parametrize("name", RIGS)
def test_an_image_stays_what_it_was(name: str) -> None:
    with small_state():
        rig = RIGS[name]()
        rig.initial()
        images, expected = [], []
        for number, deltas in enumerate(random_ticks(SEED, ticks=12), 1):
            rig.step(deltas, Tick(number, number))
            rig.rollback()
            rig.step(deltas, Tick(number, number))
            rig.end_tick()
            images.append(rig.save())
            expected.append([image_bits(image) for image in images[-1]])
        assert [[image_bits(image) for image in saved] for saved in images] == expected


def test_a_snapshot_stays_what_it_was(flow: ps.IncrementalFlow) -> None:
    random = np.random.default_rng(SEED)
    versions, expected = [], []
    with small_state():
        for number in range(20):
            versions.append([read.snapshot(flow._graph, name) for name in (*VIEWS, "rows")])
            expected.append([rows_of(flow.snapshot(name)) for name in (*VIEWS, "rows")])
            keys = random.integers(0, 80, 40)
            flow.feed("rows", change(keys, keys * 1_000 + number))
            if number < 4:
                # Whole groups go, and others come into their slots.
                gone = np.arange(number * 50, number * 50 + 50)
                flow.feed("rows", change(gone % 50, gone, -1))
            flow.step()
    assert [[rows_of(table()) for table in version] for version in versions] == expected


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def test_snapshots_beside_ticks_are_whole(flow: ps.IncrementalFlow) -> None:
    """Every tick takes values from some groups and gives them to others: the sum of all groups is always the same."""
    ended = threading.Event()
    expected = sum(range(200))

    def ticks() -> None:
        random = np.random.default_rng(SEED)
        keys = np.arange(200) % 50
        try:
            for _ in range(200):
                moved = random.choice(200, 40, replace=False)
                flow.feed("rows", change(keys[moved], moved, -1))
                keys[moved] = random.integers(0, 60, 40)
                flow.feed("rows", change(keys[moved], moved))
                flow.step()
        finally:
            ended.set()

    thread = threading.Thread(target=ticks)
    thread.start()
    sums = set()
    while not ended.is_set():
        for name in ("totals", "rows", "ranked"):
            sums.add(sum(flow.snapshot(name).column("v").to_pylist()))
    thread.join()
    assert sums == {expected}


def test_ticks_go_on_while_a_snapshot_is_read(
    flow: ps.IncrementalFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, ticked = threading.Event(), threading.Event()
    view_table = read._view_table

    def slow(*args: Any) -> pa.Table:
        reading.set()
        assert ticked.wait(30)
        return view_table(*args)

    expected = rows_of(flow.snapshot("totals"))
    monkeypatch.setattr(read, "_view_table", slow)
    tables: list[pa.Table] = []
    reader = threading.Thread(target=lambda: tables.append(flow.snapshot("totals")))
    reader.start()
    assert reading.wait(30)
    flow.tick("rows", change(np.array([1, 99]), np.array([5, 5])))
    ticked.set()
    reader.join()
    assert rows_of(tables[0]) == expected
    assert rows_of(flow.snapshot("totals")) != expected
