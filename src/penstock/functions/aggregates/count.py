"""COUNT: count(*), count(a, b) of rows without NULL, count_if.

Invertible. State: one integer per group. Cost: delta.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.data.arrays import Positions
from penstock.functions.aggregates.base import Parts, Rows, Selection, is_true, selection
from penstock.functions.aggregates.parts import CountPart, count_of
from penstock.functions.aggregates.result import Numbers
from penstock.plan.node import AggregateCall


class Count:
    """Spark's `count`: rows whose arguments are all not NULL."""

    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        self._count = count_of(parts, selection(call))

    def result(self, slots: Positions) -> Numbers:
        return Numbers(self._count.at(slots), None, pa.int64())


class _TrueCount(CountPart):
    """The number of rows whose only column is TRUE."""

    __slots__ = ()

    def update(self, rows: Rows) -> None:
        chosen = is_true(rows.columns[0])
        super().update(Rows(rows.touched, rows.groups[chosen], rows.weights[chosen], ()))


class CountIf:
    """Spark's `count_if`: rows whose argument is TRUE."""

    def __init__(self, call: AggregateCall, parts: Parts) -> None:
        chosen = Selection(call.args, call.filter, call.distinct, (0,))
        self._count = parts.share(chosen, _TrueCount, "true count")

    def result(self, slots: Positions) -> Numbers:
        return Numbers(self._count.at(slots), None, pa.int64())
