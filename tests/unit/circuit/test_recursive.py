"""A recursion: the same rows as computing it from scratch, after inserts, deletes, and ticks that failed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.circuit.kernel import KernelSource
from penstock.circuit.local import LocalKernel
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.errors import SqlError
from penstock.plan import node as plan
from penstock.plan.expression import Call, Column, Literal
from penstock.plan.node import Field
from penstock.state.state import Image

EDGE = (Field("a", "bigint"), Field("b", "bigint"))
EDGES = plan.Scan(EDGE, "edges", (0, 1))
WALK = plan.Scan(EDGE, "walk", (0, 1))
ANCHOR = plan.Filter(
    EDGE, EDGES, Call("EqualTo", (Column(0, "bigint"), Literal(0, "bigint")), "boolean", True)
)
JOINED = plan.Join((*EDGE, *EDGE), WALK, EDGES, "inner", (1,), (0,), (False,))
STEP = plan.Project(EDGE, JOINED, (Column(0, "bigint"), Column(3, "bigint")))
PATHS = plan.Recursive(EDGE, "walk", ANCHOR, STEP)


def no_fragment(node: plan.Spark) -> Any:
    raise AssertionError(node)


def kernel_of(root: plan.Node = PATHS) -> LocalKernel:
    kernel = LocalKernel()
    kernel.add_source(KernelSource("edges", EDGE))
    kernel.register(plan.View("paths", "", root), no_fragment, Tick(0, 0))
    return kernel


def delta(pairs: list[tuple[int, int]], weight: int = 1) -> Delta:
    columns = tuple(pa.array([pair[at] for pair in pairs], pa.int64()) for at in range(2))
    return Delta(columns, np.full(len(pairs), weight, np.int64))


def rows(kernel: LocalKernel) -> Counter[tuple[int, int]]:
    found = consolidate(kernel.rows("paths"))
    pairs = zip(*(column.to_pylist() for column in found.columns), strict=True)
    return Counter(dict(zip(pairs, found.weights.tolist(), strict=True)))


def paths(edges: Counter[tuple[int, int]]) -> Counter[tuple[int, int]]:
    """The twin: level by level, with multiplicities."""
    total: Counter[tuple[int, int]] = Counter()
    level = Counter({edge: count for edge, count in edges.items() if edge[0] == 0})
    while level:
        total += level
        following: Counter[tuple[int, int]] = Counter()
        for (first, last), count in level.items():
            for (start, end), times in edges.items():
                if start == last:
                    following[(first, end)] += count * times
        level = following
    return total


@pytest.mark.parametrize("seed", range(6))
def test_it_is_what_the_definition_gives(seed: int) -> None:
    chance = random.Random(seed)
    kernel = kernel_of()
    edges: Counter[tuple[int, int]] = Counter()
    for number in range(12):
        new = [(a, a + chance.randrange(1, 4)) for a in (chance.randrange(8) for _ in range(3))]
        old = chance.sample(sorted(edges.elements()), min(2, edges.total()))
        edges.update(new)
        edges.subtract(old)
        edges += Counter()
        change = consolidate(Delta(*_joined(delta(new), delta(old, -1))))
        if number % 3 == 0:
            kernel.step({"edges": change}, Tick(number, 0))
            kernel.rollback()
        kernel.step({"edges": change}, Tick(number, 0))
        kernel.commit()
        assert rows(kernel) == paths(edges)


def _joined(one: Delta, other: Delta) -> tuple[tuple[pa.Array, ...], Any]:
    columns = tuple(pa.concat_arrays(pair) for pair in zip(one.columns, other.columns, strict=True))
    return columns, np.concatenate([one.weights, other.weights])


def test_a_cycle_is_an_error_that_changes_nothing_and_names_the_view() -> None:
    kernel = kernel_of()
    kernel.step({"edges": delta([(0, 1), (1, 2)])}, Tick(1, 0))
    kernel.commit()
    with pytest.raises(SqlError) as caught:
        kernel.step({"edges": delta([(2, 1)])}, Tick(2, 0))
    assert caught.value.code == "SQL_RECURSION_LIMIT"
    assert caught.value.where == "view 'paths', recursive"
    assert rows(kernel) == {(0, 1): 1, (0, 2): 1}


def test_levels_have_states_with_names_and_go_with_the_data() -> None:
    kernel, other = kernel_of(), kernel_of()
    for one, parts in ((kernel, [[(0, 1), (1, 2), (2, 3)]]), (other, [[(2, 3)], [(1, 2)], [(0, 1)]])):
        for number, part in enumerate(parts):
            one.step({"edges": delta(part)}, Tick(number, 0))
            one.commit()
    assert set(kernel.states()) == set(other.states())
    assert levels_of(kernel).keys() == levels_of(other).keys() == {"0", "1", "2"}
    assert levels_of(kernel)["0"].parts.keys() == levels_of(other)["0"].parts.keys()
    kernel.step({"edges": delta([(0, 1)], -1)}, Tick(9, 0))
    kernel.commit()
    assert not levels_of(kernel)


def levels_of(kernel: LocalKernel) -> Mapping[str, Image]:
    (image,) = (image for key, image in kernel.save().items() if key.role == "levels")
    return image.parts


def test_a_recursion_that_is_dropped_leaves_only_the_source() -> None:
    kernel = kernel_of()
    kernel.step({"edges": delta([(0, 1), (1, 2)])}, Tick(1, 0))
    kernel.commit()
    kernel.drop("paths")
    assert len(kernel._circuit.vertices) == 1


LEVEL = Field("level", "int", nullable=False)


def limited(limit: int, step: plan.Node = STEP, max_depth: int | None = None) -> plan.Node:
    """The rows of the first levels, as the front plans a LIMIT over a recursion."""
    loop = plan.Recursive((*EDGE, LEVEL), "walk", ANCHOR, step, max_depth=max_depth, limit=limit)
    return plan.TopK(loop.fields, loop, (), (plan.SortKey(2),), limit)


def first_paths(
    edges: Counter[tuple[int, int]], limit: int, others: Counter[tuple[int, int]] | None = None
) -> list[tuple[int, int, int]]:
    """The twin: level by level until there are enough rows; `others` come to every level but the first."""
    taken: list[tuple[int, int, int]] = []
    level = Counter({edge: count for edge, count in edges.items() if edge[0] == 0})
    for depth in range(100):
        taken += [(*row, depth) for row in sorted(level.elements())]
        if len(taken) >= limit or not level:
            break
        following: Counter[tuple[int, int]] = Counter(others or {})
        for (first, last), count in level.items():
            for (start, end), times in edges.items():
                if start == last:
                    following[(first, end)] += count * times
        level = following
    return taken[:limit]


def sorted_rows(kernel: LocalKernel) -> list[tuple[Any, ...]]:
    rows = consolidate(kernel.rows("paths"))
    values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    counted = zip(values, rows.weights.tolist(), strict=True)
    return sorted((row for row, count in counted for _ in range(count)), key=lambda row: (row[2], row))


ALL_EDGES = plan.Filter(
    EDGE, EDGES, Call("LessThan", (Column(0, "bigint"), Literal(2, "bigint")), "boolean", True)
)
WITH_OTHERS = plan.Union(EDGE, (STEP, ALL_EDGES))


@pytest.mark.parametrize("limit", [1, 4, 15, 60])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("step", [STEP, WITH_OTHERS], ids=["walk", "walk and others"])
def test_a_limit_ends_it_with_the_rows_of_the_first_levels(seed: int, limit: int, step: plan.Node) -> None:
    chance = random.Random(f"{seed} {limit}")
    kernel = kernel_of(limited(limit, step, max_depth=-1))
    edges: Counter[tuple[int, int]] = Counter()
    for number in range(14):
        new = [(chance.randrange(5), chance.randrange(5)) for _ in range(chance.randrange(4))]
        old = chance.sample(sorted(edges.elements()), min(chance.randrange(5), edges.total()))
        edges.update(new)
        edges.subtract(old)
        edges += Counter()
        change = consolidate(Delta(*_joined(delta(new), delta(old, -1))))
        if number % 3 == 0:
            kernel.step({"edges": change}, Tick(number, 0))
            kernel.rollback()
        kernel.step({"edges": change}, Tick(number, 0))
        kernel.commit()
        kernel.maintain(4)
        others = Counter({row: n for row, n in edges.items() if row[0] < 2}) if step is WITH_OTHERS else None
        expected = first_paths(edges, limit, others)
        assert sorted_rows(kernel) == expected
        if number % 5 == 4:
            kernel = restored(kernel, limited(limit, step, max_depth=-1))
            assert sorted_rows(kernel) == expected


def restored(kernel: LocalKernel, root: plan.Node) -> LocalKernel:
    """A kernel that begins with what another one has saved."""
    other = LocalKernel()
    other.load(kernel.save())
    other.add_source(KernelSource("edges", EDGE))
    other.register(plan.View("paths", "", root), no_fragment, Tick(0, 0))
    return other


def test_a_limit_reads_no_level_behind_the_last_one() -> None:
    kernel = kernel_of(limited(3))
    kernel.step({"edges": delta([(0, 1), (1, 0)])}, Tick(1, 0))
    kernel.commit()
    assert [row[2] for row in sorted_rows(kernel)] == [0, 1, 2]
    assert {name for name in levels_of(kernel) if name.isdigit()} == {"0", "1"}
    kernel.step({"edges": delta([(0, 2), (0, 3), (0, 4)])}, Tick(2, 0))
    kernel.commit()
    assert [row[2] for row in sorted_rows(kernel)] == [0, 0, 0]
    assert not {name for name in levels_of(kernel) if name.isdigit()}
    kernel.step({"edges": delta([(0, 2), (0, 3), (0, 4)], -1)}, Tick(3, 0))
    kernel.commit()
    assert [row[2] for row in sorted_rows(kernel)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("most_levels", "edges", "condition"),
    [
        (3, 3, None),
        (2, 3, "RECURSION_LEVEL_LIMIT_EXCEEDED"),
        (0, 1, "RECURSION_LEVEL_LIMIT_EXCEEDED"),
        (None, 100, None),
        (None, 101, "RECURSION_LEVEL_LIMIT_EXCEEDED"),
        (-1, 150, None),
    ],
)
def test_the_number_of_levels_has_a_limit(most_levels: int | None, edges: int, condition: str | None) -> None:
    kernel = kernel_of(plan.Recursive(EDGE, "walk", ANCHOR, STEP, max_depth=most_levels))
    change = {"edges": delta([(at, at + 1) for at in range(edges)])}
    if condition is None:
        kernel.step(change, Tick(1, 0))
        return
    with pytest.raises(SqlError) as caught:
        kernel.step(change, Tick(1, 0))
    assert (caught.value.code, caught.value.condition) == ("SQL_RECURSION_LIMIT", condition)


@pytest.mark.parametrize(("most_rows", "refused"), [(4, False), (3, True), (-1, False), (None, False)])
def test_the_number_of_rows_has_a_limit_that_is_not_reached(most_rows: int | None, refused: bool) -> None:
    kernel = kernel_of(plan.Recursive(EDGE, "walk", ANCHOR, STEP, max_rows=most_rows))
    change = {"edges": delta([(0, 1), (1, 2), (2, 3)])}
    if not refused:
        kernel.step(change, Tick(1, 0))
        return
    with pytest.raises(SqlError) as caught:
        kernel.step(change, Tick(1, 0))
    assert caught.value.condition == "RECURSION_ROW_LIMIT_EXCEEDED"


def test_a_scalar_subquery_over_the_recursion_has_one_row_in_every_level() -> None:
    last = plan.Single(EDGE, plan.Scan(EDGE, "walk", (0, 1)))
    crossed = plan.Join((*EDGE, *EDGE), JOINED_ON_EDGES, last, "inner", (), (), (), residual=None)
    step = plan.Project(EDGE, crossed, (Column(2, "bigint"), Column(1, "bigint")))
    kernel = kernel_of(plan.Recursive(EDGE, "walk", ANCHOR, step))
    kernel.step({"edges": delta([(0, 1), (1, 2), (2, 3)])}, Tick(1, 0))
    kernel.commit()
    assert rows(kernel) == {(0, 1): 1, (0, 2): 1, (0, 3): 1}
    kernel.step({"edges": delta([(2, 3)], -1)}, Tick(2, 0))
    kernel.commit()
    assert rows(kernel) == {(0, 1): 1, (0, 2): 1}


JOINED_ON_EDGES = plan.Project(EDGE, JOINED, (Column(2, "bigint"), Column(3, "bigint")))
