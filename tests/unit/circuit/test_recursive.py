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
