"""Operators that ask Spark for what the kernel lacks: over the delta (tier `spark`), or over all rows of their inputs
(tier `recompute`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.data.column_view import true_mask
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat, empty
from penstock.data.tick import Tick
from penstock.data.types import kernel_type
from penstock.errors import DataError, SqlError
from penstock.functions import evaluate
from penstock.functions.scalars.base import BeyondKernel
from penstock.operators.base import Operator
from penstock.operators.output import expanded
from penstock.operators.sample import with_sample
from penstock.operators.temporal import Timed
from penstock.plan import node as plan
from penstock.spark.catalyst.planner import PlannedView
from penstock.spark.fragment import Fragments
from penstock.state.spine import Spine
from penstock.state.state import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Maker = Callable[[plan.Spark], tuple[Operator, bool]]


def planned_maker(spark: SparkSession, planned: PlannedView) -> Maker:
    """Return what makes the operators of a view that Spark has just planned."""
    fragments = Fragments(spark, planned)
    return operator_maker(planned.view, lambda: fragments)


def operator_maker(view: plan.View, fragments: Callable[[], Fragments]) -> Maker:
    """Return what makes the operators of one view: each with whether it must step in every tick.

    `fragments` is asked for when the first row reaches such an operator.
    """

    def make(node: plan.Spark) -> tuple[Operator, bool]:
        if not node.stateless:
            return Recomputed(fragments, node), view.uses_time
        mapped = Mapped(fragments, node)
        if not any(column < 0 for binding in node.bindings for _, column in binding):
            return mapped, False
        types = [kernel_type(field.type) for field in node.inputs[0].fields]
        return Timed(types, lambda rows, tick: mapped.step([rows], tick)), True

    return make


class Mapped(Operator):
    """Expressions or a generator that only Spark knows, row by row. Rule: d(out) = f(dA). Cost: delta, and a call to Spark.

    Spark is asked for expressions that are the kernel's but for some rows when the delta has such rows.
    """

    def __init__(self, fragments: Callable[[], Fragments], node: plan.Spark) -> None:
        self._fragments = fragments
        self._node = node
        own = node.expressions if isinstance(node, plan.KernelFirst) else ()
        self._own = [evaluate.compile(expression) for expression in own]

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        if not len(delta):
            return empty([kernel_type(field.type) for field in self._node.fields])
        if self._node.bindings:
            return Delta((*delta.columns, *self._values(delta, tick)), delta.weights)
        parents, columns = self._fragments().generated(self._node, delta.columns, len(delta), tick.micros)
        return Delta(tuple(columns), delta.weights[np.asarray(parents)])

    def _values(self, delta: Delta, tick: Tick) -> Sequence[pa.Array]:
        """One column per expression; one that raises is asked again on the rows on which it counts."""
        if self._own:
            try:
                return [run(delta.columns, len(delta), tick) for run in self._own]
            except BeyondKernel:
                pass
            except DataError:
                if not self._node.where:
                    raise
        try:
            return self._fragments().expressions(self._node, delta.columns, len(delta), tick.micros)
        except (DataError, SqlError):
            if not self._node.where:
                raise
        return [self._where(index, delta, tick) for index in range(len(self._node.where))]

    def _where(self, index: int, delta: Delta, tick: Tick) -> pa.Array:
        node, width = self._node, len(delta.columns)
        field, passes = node.fields[width + index], node.where[index]
        reached = np.ones(len(delta), np.bool_) if passes is None else true_mask(delta.columns[passes])
        rows = delta.take(np.flatnonzero(reached))
        if not len(rows):
            return pa.nulls(len(delta), kernel_type(field.type))
        single = plan.Spark(
            inputs=node.inputs,
            operator=node.operator,
            stateless=True,
            reason=node.reason,
            meaning=node.meaning,
            fields=(*node.fields[:width], field),
            path=(node.path[index],),
            bindings=(node.bindings[index],),
        )
        (column,) = self._fragments().expressions(single, rows.columns, len(rows), tick.micros)
        return column.take(pa.array(np.cumsum(reached) - 1, mask=~reached))


class Recomputed(Operator):
    """One operator that only Spark knows. Rule: d(out) = f(A+) - f(A-). Cost: data.

    The kernel keeps the rows of its inputs and its last output; Spark sees the inputs whole, each row as often as it occurs.
    """

    def __init__(self, fragments: Callable[[], Fragments], node: plan.Spark) -> None:
        self._fragments = fragments
        self._node = node
        self._inputs = [Spine([kernel_type(field.type) for field in child.fields]) for child in node.inputs]
        self._output = Spine([kernel_type(field.type) for field in node.fields])

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        for spine, delta in zip(self._inputs, inputs, strict=True):
            spine.stage(delta)
        rows = [spine.after().rows() for spine in self._inputs]
        lengths = [int(part.weights.sum()) for part in rows]
        try:
            columns, count = self._fragments().operator(
                self._node, [expanded(part) for part in rows], lengths, tick.micros
            )
        except DataError as error:
            # Without a change it is the time that has made the difference.
            for delta, child in zip(inputs, self._node.inputs, strict=True):
                if len(delta):
                    names = [field.name for field in child.fields]
                    raise with_sample(error, delta, names, of="input") from None
            raise
        new = Delta(tuple(columns), np.ones(count, np.int64))
        change = consolidate(concat([new, -self._output.before().rows()]))
        self._output.stage(change)
        return change

    def states(self) -> Iterator[tuple[str, State]]:
        for position, spine in enumerate(self._inputs):
            yield f"input-{position}", spine
        yield "output", self._output
