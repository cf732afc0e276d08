"""Kernels in one process and in shards, side by side: random plans over sources, views and a static table of every distribution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.circuit.in_process import InProcess
from penstock.circuit.kernel import Kernel, KernelSource, StaticRows
from penstock.circuit.local import LocalKernel
from penstock.circuit.sharded import ShardedKernel
from penstock.circuit.state_key import StateKey
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.data.tick import Tick
from penstock.data.types import kernel_type
from penstock.operators.base import Operator
from penstock.plan import node as plan
from penstock.state.spine import Spine
from penstock.state.state import Image, State
from twin.rigs import bits

FIELDS = tuple(plan.Field(f"c{at}", "bigint") for at in range(3))
SOURCES = (
    KernelSource("keyed", FIELDS, (0,)),
    KernelSource("keyed by two", FIELDS, (2, 0)),
    KernelSource("plain", FIELDS, (), "quarantine"),
)
STATIC = KernelSource("static", FIELDS)


def _scan(name: str) -> plan.Scan:
    return plan.Scan(FIELDS, name, (0, 1, 2))


# Relations that are where no source is.
BELOW: dict[str, plan.Node] = {
    "by the last": plan.TopK(FIELDS, _scan("plain"), (2,), (), None),
    "anywhere": plan.Union(FIELDS, (_scan("plain"), _scan("keyed"))),
    "gathered": plan.TopK(FIELDS, _scan("plain"), (), (plan.SortKey(1),), 4),
    "at most one row": plan.TopK(FIELDS, _scan("keyed"), (), (plan.SortKey(0),), 1),
}


class Counted(Operator):
    """Something that only sees the right thing when it sees all rows, as an operator of Spark's."""

    def __init__(self, node: plan.Spark) -> None:
        self._input = Spine([kernel_type(field.type) for field in node.inputs[0].fields])
        self._output = Spine([kernel_type(field.type) for field in node.fields])

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        self._input.stage(inputs[0])
        rows = consolidate(self._input.after().rows())
        counted = Delta((rows.columns[0], pa.array([len(rows)] * len(rows), pa.int64())), rows.weights)
        change = consolidate(concat([counted, -self._output.before().rows()]))
        self._output.stage(change)
        return change

    def states(self) -> Iterator[tuple[str, State]]:
        yield "input", self._input
        yield "output", self._output


def fragment(node: plan.Spark) -> tuple[Operator, bool]:
    return Counted(node), False


def delta(rows: Sequence[tuple[Any, ...]], weights: Sequence[int]) -> Delta:
    columns = tuple(pa.array([row[at] for row in rows], pa.int64()) for at in range(3))
    return Delta(columns, np.array(weights, np.int64))


def random_rows(chance: Random, count: int, *, keyed: bool) -> list[tuple[Any, ...]]:
    key = [0, 1, 2] if keyed else [None, 0, 1, 2]
    return [(chance.choice(key), chance.choice([None, 0, 1, 2]), chance.choice(key)) for _ in range(count)]


def random_changes(chance: Random) -> dict[str, Delta]:
    """Rows that come and go; one source is often empty, and retractions of others may find nothing."""
    changes = {}
    for source in SOURCES:
        count = chance.choice([0, 0, 1, 3, 6])
        rows = random_rows(chance, count, keyed=bool(source.primary_key))
        weights = [1 if source.primary_key else chance.choice([1, 1, 2, -1]) for _ in rows]
        if rows:
            changes[source.name] = delta(rows, weights)
    return changes


def declare(kernel: Kernel, tick: Tick, views: Mapping[str, plan.Node]) -> None:
    """All relations, and the views."""
    for source in SOURCES:
        kernel.add_source(source)
    chance = Random(7)
    statics = [StaticRows(STATIC, delta(random_rows(chance, 5, keyed=False), [1] * 5))]
    for name, root in {**BELOW, **views}.items():
        view = plan.View(name, "", root, statics=("static",))
        kernel.register(view, fragment, tick, statics=statics)


def sharded(shards: int) -> ShardedKernel:
    return ShardedKernel(InProcess(shards))


def again(
    kernel: Kernel, images: Mapping[StateKey, Image], tick: Tick, views: Mapping[str, plan.Node]
) -> None:
    """Let a new kernel be one that was saved."""
    kernel.load(images)
    declare(kernel, tick, views)
    kernel.load({})


def contents(kernel: Kernel, names: Sequence[str]) -> dict[str, Any]:
    """The rows of relations to the bit, whatever their order."""
    return {name: canonical(kernel.rows(name)) for name in names}


def canonical(rows: Delta) -> list[Any]:
    columns, weights = bits(consolidate(rows))
    return sorted(zip(*(values for _, values in columns), weights, strict=True), key=repr)


def outputs(kernel: Kernel, changes: Mapping[str, Delta], tick: Tick) -> dict[str, Any]:
    """What a step gives for every view, and how many rows of sources have changed."""
    stepped = kernel.step(changes, tick)
    found: dict[str, Any] = {}
    for name, rows in stepped.outputs.items():
        is_source = any(name == source.name for source in SOURCES)
        found[name] = int(np.abs(rows.weights).sum()) if is_source else canonical(rows)
    found["missing"] = {name: canonical(rows) for name, rows in stepped.missing.items()}
    return found


def local() -> LocalKernel:
    return LocalKernel()
