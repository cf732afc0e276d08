"""The kernel in this process: views share what they have in common, and go without leaving anything behind."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.circuit import lookup
from penstock.circuit.kernel import KernelSource, StaticRows
from penstock.circuit.local import LocalKernel
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.errors import DataError, StateError
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Literal
from penstock.plan.node import Field

FIELDS = (Field("k", "bigint"), Field("v", "bigint"))
ROWS = plan.Scan(FIELDS, "rows", (0, 1))
OTHER = plan.Scan(FIELDS, "other", (0, 1))
K, V = Column(0, "bigint"), Column(1, "bigint")
POSITIVE = plan.Filter(FIELDS, ROWS, Call("GreaterThan", (V, Literal(0, "bigint")), "boolean", True))
JOIN = plan.Join((*FIELDS, *FIELDS), POSITIVE, OTHER, "inner", (0,), (0,), (False,))
SUM = plan.AggregateCall("Sum", (1,), "bigint", options=(("evalMode", "ANSI"),))
TOTALS = plan.Aggregate(FIELDS, POSITIVE, (0,), (SUM,))
INVERSE = plan.Project(
    (Field("d", "double"),),
    POSITIVE,
    (
        Call(
            "Divide",
            (Literal(1.0, "double"), Call("Cast", (K,), "double", True)),
            "double",
            True,
            options=(("evalMode", "ANSI"),),
        ),
    ),
)
TICK = Tick(1, 1)


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


def delta(*rows: tuple[int, int], weight: int = 1) -> Delta:
    columns = tuple(pa.array([row[at] for row in rows], pa.int64()) for at in range(2))
    return Delta(columns, np.full(len(rows), weight, np.int64))


def counted(rows: Delta) -> Counter[tuple[Any, ...]]:
    rows = consolidate(rows)
    keys = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return Counter(dict(zip(keys, rows.weights.tolist(), strict=True)))


def kernel_of(**views: plan.Node) -> LocalKernel:
    kernel = LocalKernel()
    for name in ("rows", "other"):
        kernel.add_source(KernelSource(name, FIELDS))
    for name, root in views.items():
        register(kernel, name, root)
    return kernel


def register(kernel: LocalKernel, name: str, root: plan.Node, **options: Any) -> None:
    kernel.register(plan.View(name, "", root), no_fragment, TICK, **options)


def tick(kernel: LocalKernel, **changes: Delta) -> Any:
    stepped = kernel.step(changes, TICK)
    kernel.commit()
    return stepped


def vertex_count(kernel: LocalKernel) -> int:
    return len(kernel._circuit.vertices)


def test_a_step_gives_changes_and_times_by_name() -> None:
    kernel = kernel_of(totals=TOTALS)
    stepped = tick(kernel, rows=delta((1, 5), (1, -5), (2, 7)))
    assert set(stepped.outputs) == {"rows", "totals"}
    assert counted(stepped.outputs["totals"]) == {(1, 5): 1, (2, 7): 1}
    assert set(stepped.seconds) == {"rows", "totals"}
    assert counted(kernel.rows("totals")) == {(1, 5): 1, (2, 7): 1}


def test_a_step_that_is_rolled_back_has_not_happened() -> None:
    kernel = kernel_of(totals=TOTALS, joined=JOIN)
    tick(kernel, rows=delta((1, 5)), other=delta((1, 1)))
    before = {name: counted(kernel.rows(name)) for name in ("rows", "totals", "joined")}
    kernel.step({"rows": delta((1, 6), (3, 3))}, TICK)
    kernel.rollback()
    assert {name: counted(kernel.rows(name)) for name in before} == before
    tick(kernel, rows=delta((1, 6)))
    assert counted(kernel.rows("totals")) == {(1, 11): 1}


def test_views_share_operators_and_each_is_charged_for_them() -> None:
    kernel = kernel_of(totals=TOTALS)
    alone = vertex_count(kernel)
    register(kernel, "joined", JOIN)
    shared = [vertex for vertex in kernel._circuit.vertices.values() if len(vertex.owners) == 2]
    assert [type(vertex.operator).__name__ for vertex in shared] == ["Filter"]
    assert vertex_count(kernel) == alone + 3, "the filter's rows by key, the join, and the result"
    seconds = tick(kernel, rows=delta((1, 5))).seconds
    assert seconds["totals"] > 0
    assert seconds["joined"] > 0


def test_an_error_in_a_shared_operator_names_both_views() -> None:
    both = plan.Union((Field("d", "double"),), (INVERSE, INVERSE))
    kernel = kernel_of(inverse=INVERSE, twice=both)
    with pytest.raises(DataError) as caught:
        kernel.step({"rows": delta((0, 5))}, TICK)
    assert str(caught.value.where).startswith("views 'inverse' and 'twice', project")


QUOTIENTS = plan.Project(
    (Field("k", "bigint"), Field("q", "double")),
    plan.Join((*FIELDS, *FIELDS), ROWS, OTHER, "inner", (0,), (0,), (False,)),
    (
        K,
        Call(
            "Divide",
            tuple(Call("Cast", (Column(at, "bigint"),), "double", True) for at in (1, 3)),
            "double",
            True,
            options=(("evalMode", "ANSI"),),
        ),
    ),
)


def test_pairs_that_a_join_gives_and_takes_back_do_not_fail_an_expression() -> None:
    """Neither rows that were deleted before, nor rows that come and go in the same tick as their match."""
    kernel = kernel_of(quotients=QUOTIENTS)
    tick(kernel, rows=delta((1, 5)), other=delta((1, 2), (2, 0), (3, 0)))
    tick(kernel, other=delta((2, 0), weight=-1))
    tick(kernel, rows=delta((2, 1)))
    tick(kernel, rows=delta((3, 1)), other=delta((3, 0), weight=-1))
    register(kernel, "late", QUOTIENTS)
    assert counted(kernel.rows("quotients")) == counted(kernel.rows("late")) == {(1, 2.5): 1}
    with pytest.raises(DataError, match="division by zero"):
        kernel.step({"other": delta((3, 0))}, TICK)


@pytest.mark.parametrize("first", ["totals", "joined"])
def test_a_dropped_view_takes_only_what_nobody_else_needs(first: str) -> None:
    views: dict[str, plan.Node] = {"totals": TOTALS, "joined": JOIN}
    kernel, untouched = kernel_of(**views), kernel_of()
    second = next(name for name in views if name != first)
    for one in (kernel, untouched):
        tick(one, rows=delta((1, 5), (2, -1)), other=delta((1, 9)))
    kernel.drop(first)
    stepped = tick(kernel, rows=delta((1, 6)))
    assert second in stepped.outputs
    assert first not in stepped.outputs
    fresh = kernel_of(**{second: views[second]})
    tick(fresh, rows=delta((1, 5), (2, -1), (1, 6)), other=delta((1, 9)))
    assert counted(kernel.rows(second)) == counted(fresh.rows(second))
    kernel.drop(second)
    assert vertex_count(kernel) == vertex_count(untouched)
    assert not kernel._relations.shared.nodes.keys() - {ROWS, OTHER}
    register(kernel, first, views[first])
    tick(untouched, rows=delta((1, 6)))
    register(untouched, first, views[first])
    assert counted(kernel.rows(first)) == counted(untouched.rows(first))


def test_a_view_that_others_read_is_not_dropped() -> None:
    kernel = kernel_of(totals=TOTALS)
    register(kernel, "behind", plan.Scan(FIELDS, "totals", (0, 1)))
    with pytest.raises(AssertionError, match="behind"):
        kernel.drop("totals")
    kernel.drop("behind")
    kernel.drop("totals")


def test_a_failed_registration_leaves_nothing() -> None:
    kernel = kernel_of(totals=TOTALS)
    tick(kernel, rows=delta((0, 5)))
    before, names = vertex_count(kernel), set(kernel.states())
    static = StaticRows(KernelSource("fixed", FIELDS), delta((1, 1)))
    failing = plan.Union(INVERSE.fields, (INVERSE, _inverse_of(plan.Scan(FIELDS, "fixed", (0, 1)))))
    with pytest.raises(DataError):
        register(kernel, "inverse", failing, statics=[static])
    assert vertex_count(kernel) == before
    assert set(kernel.states()) == names
    assert counted(tick(kernel, rows=delta((4, 5))).outputs["totals"]) == {(4, 5): 1}


def _inverse_of(below: plan.Node) -> plan.Node:
    return plan.Project(INVERSE.fields, below, INVERSE.expressions)


def test_static_tables_are_loaded_once() -> None:
    kernel = kernel_of()
    scan = plan.Scan(FIELDS, "fixed", (0, 1))
    static = StaticRows(KernelSource("fixed", FIELDS), delta((1, 1), (1, 2)))
    register(kernel, "one", scan, statics=[static])
    register(kernel, "two", plan.Aggregate(FIELDS, scan, (0,), (SUM,)), statics=[static])
    assert counted(kernel.rows("two")) == {(1, 3): 1}
    assert counted(kernel.rows("fixed")) == {(1, 1): 1, (1, 2): 1}


def test_look_up_indexes_are_made_used_again_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MOST_INDEXES", 2)
    kernel = LocalKernel()
    fields = tuple(Field(name, "bigint") for name in "abcd")
    kernel.add_source(KernelSource("wide", fields))
    kernel.add_source(KernelSource("rows", FIELDS))
    rows = Delta(tuple(pa.array([at, at + 1], pa.int64()) for at in range(4)), np.ones(2, np.int64))
    tick(kernel, wide=rows)
    alone = vertex_count(kernel)

    def found(*columns: int) -> int:
        return len(kernel.lookup("wide", columns, [pa.array([column], pa.int64()) for column in columns]))

    assert found(0) == found(0) == 1
    assert vertex_count(kernel) == alone + 1
    assert found(0, 1) == found(1, 0) == 1
    assert vertex_count(kernel) == alone + 2, "one index serves both orders of its columns"
    assert found(0) == 1
    assert found(2) == 1
    assert vertex_count(kernel) == alone + 2, "the one that was not used for longest is gone"
    memory = kernel.memory()
    assert found(0, 1) == 1
    assert kernel.memory() == pytest.approx(memory, rel=0.3)
    kernel.drop("wide")
    assert vertex_count(kernel) == alone - 1
    assert not kernel._relations.indexes._used


def test_look_up_indexes_that_nobody_asks_for_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MOST_TICKS_UNUSED", 3)
    kernel = kernel_of(by_v=plan.Join((*FIELDS, *FIELDS), ROWS, OTHER, "inner", (1,), (1,), (False,)))
    tick(kernel, rows=delta((1, 5)), other=delta((1, 5)))
    alone = vertex_count(kernel)

    def count_rows(relation: str, column: int, value: int) -> int:
        return len(kernel.lookup(relation, [column], [pa.array([value], pa.int64())]))

    assert count_rows("rows", 0, 1) == count_rows("other", 0, 1) == 1
    assert count_rows("rows", 1, 5) == 1
    assert vertex_count(kernel) == alone + 2
    for number in range(2, 5):
        tick(kernel, rows=delta((number, 5)))
        kernel.maintain(1)
        assert count_rows("rows", 0, number) == 1
    assert vertex_count(kernel) == alone + 2, "three ticks without a look-up are not many"
    tick(kernel, other=delta((7, 5)))
    kernel.maintain(1)
    assert vertex_count(kernel) == alone + 1, "the index of the other relation is gone"
    assert count_rows("rows", 0, 4) == count_rows("other", 0, 7) == 1
    assert vertex_count(kernel) == alone + 2, "and is made again when it is asked for"
    for number in range(10, 14):
        tick(kernel, rows=delta((number, 5)))
        kernel.maintain(1)
    assert vertex_count(kernel) == alone
    assert kernel._relations.indexes._used == {}
    assert count_rows("rows", 1, 5) == 8, "the join has its own"
    kernel.drop("by_v")


def test_a_source_is_looked_up_by_its_key_without_an_index() -> None:
    kernel = LocalKernel()
    kernel.add_source(KernelSource("keyed", FIELDS, primary_key=(1, 0)))
    tick(kernel, keyed=delta((1, 5), (2, 6)))
    values = [pa.array([2], pa.int64()), pa.array([6], pa.int64())]
    assert counted(kernel.lookup("keyed", (0, 1), values)) == {(2, 6): 1}
    assert counted(kernel.lookup("keyed", (1, 0), values[::-1])) == {(2, 6): 1}
    assert vertex_count(kernel) == 1


def test_an_index_that_a_join_uses_stays_with_the_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MOST_INDEXES", 1)
    kernel = kernel_of(by_v=plan.Join((*FIELDS, *FIELDS), ROWS, OTHER, "inner", (1,), (1,), (False,)))
    tick(kernel, rows=delta((1, 5)), other=delta((1, 5), (2, 6)))
    assert len(kernel.lookup("rows", [0], [pa.array([1])])) == 1
    register(kernel, "by_k", plan.Join((*FIELDS, *FIELDS), ROWS, OTHER, "inner", (0,), (0,), (False,)))
    assert len(kernel.lookup("rows", [0, 1], [pa.array([1]), pa.array([5])])) == 1
    tick(kernel, rows=delta((2, 6)))
    assert counted(kernel.rows("by_k")) == {(1, 5, 1, 5): 1, (2, 6, 2, 6): 1}
    kernel.drop("by_v")
    tick(kernel, rows=delta((1, 7)))
    assert counted(kernel.rows("by_k"))[(1, 7, 1, 5)] == 1


def test_recomputing_keeps_no_operators() -> None:
    kernel, incremental = kernel_of(totals=TOTALS, joined=JOIN), kernel_of(totals=TOTALS, joined=JOIN)
    for one in (kernel, incremental):
        tick(one, rows=delta((1, 5)), other=delta((1, 1)))
    assert len(kernel.lookup("totals", [0], [pa.array([1])])) == 1
    kernel.recompute_always()
    assert vertex_count(kernel) == 5, "two sources, two results and an index"
    for change in (delta((1, 6), (2, 2)), delta((1, 5), weight=-1)):
        steps = [tick(one, rows=change) for one in (kernel, incremental)]
        for name in ("totals", "joined"):
            changes = [counted(step.outputs[name]) if name in step.outputs else Counter() for step in steps]
            assert changes[0] == changes[1]
    assert counted(kernel.lookup("totals", [0], [pa.array([1])])) == {(1, 6): 1}
    # Later views begin with the rows of now, however often others were recomputed before.
    register(kernel, "late", TOTALS)
    tick(kernel, rows=delta((3, 3)))
    register(kernel, "later", plan.TopK(FIELDS, TOTALS, (), (plan.SortKey(1, True),), 2))
    assert counted(kernel.rows("late")) == counted(kernel.rows("totals"))
    assert counted(kernel.rows("later")) == {(1, 6): 1, (3, 3): 1}


def test_a_narrow_source_is_widened_while_it_is_empty() -> None:
    kernel = LocalKernel()
    kernel.add_source(KernelSource("rows", FIELDS, retain="used"))
    assert kernel.columns("rows") == ()
    register(kernel, "second", plan.Scan(FIELDS[1:], "rows", (1,)))
    assert kernel.columns("rows") == (1,)
    tick(kernel, rows=delta((1, 5)))
    with pytest.raises(StateError):
        register(kernel, "whole", ROWS)
    assert kernel.columns("rows") == (1,)
    # A restored source begins with the columns that it kept, in their order, and finds its rows by name.
    restored = LocalKernel()
    restored.add_source(KernelSource("rows", FIELDS, retain="used", retained=(1,)))
    assert set(restored.states()) == {key for key in kernel.states() if key in restored.states()}


@pytest.mark.parametrize("recomputing", [False, True])
def test_an_error_names_the_view_in_registration_and_in_ticks(recomputing: bool) -> None:
    kernel = kernel_of(totals=TOTALS)
    if recomputing:
        kernel.recompute_always()
    tick(kernel, rows=delta((0, 5)))
    with pytest.raises(DataError) as at_once:
        register(kernel, "inverse", INVERSE)
    tick(kernel, rows=delta((0, 5), weight=-1))
    register(kernel, "inverse", INVERSE)
    with pytest.raises(DataError) as later:
        kernel.step({"rows": delta((0, 5))}, TICK)
    for caught in (at_once, later):
        assert str(caught.value.where).startswith("view 'inverse', project")
