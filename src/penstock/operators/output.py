"""The result of a view: stored row by row, or read from the operator that has it anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools
from penstock.data.column_view import gather
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat
from penstock.data.equality import equal_rows
from penstock.data.tick import Tick
from penstock.errors import InternalError
from penstock.operators.base import Operator
from penstock.operators.contents import Contents
from penstock.operators.sample import sample
from penstock.state.arrangement import Arrangement
from penstock.state.run import Run
from penstock.state.state import State


class Output(Operator):
    """The rows of a view, integrated from its deltas.

    Rule: V+ = V- + consolidate(dV); a row that would be there less than zero times is a fault of ours and rejects the tick.
    Cost: delta. `arrangement` holds the rows, by the whole row or by key columns, and may be shared with the view's readers.
    Columns behind the `visible` ones are there for the order only: they are stored, and never shown.

    An operator `below` that can give all of its rows (`contents`) makes it needless to keep them once more: a tick then costs
    no more than to consolidate its delta.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        arrangement: Arrangement,
        *,
        visible: int | None = None,
        below: Operator | None = None,
        contents: Contents | None = None,
    ) -> None:
        self._name = name
        self._columns = tuple(columns)
        self._visible = visible
        self._below = below
        self._contents = contents
        self.arrangement = arrangement

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        if self._contents is not None:
            is_consolidated = self._below is not None and self._below.consolidated
            return self._shown(delta if is_consolidated else consolidate(delta))
        # A run is consolidated: the change is hashed and sorted once.
        run = self.arrangement.sorted(delta)
        self._check(run)
        self.arrangement.apply_run(run)
        return self._shown(delta if len(run) == len(delta) else run.delta())

    def states(self) -> Iterator[tuple[str, State]]:
        if self._contents is None:
            yield "rows", self.arrangement

    def keep(self) -> None:
        """Keep the rows from now on, because the operator below will not be stepped any more. Called between ticks.
        Cost: data."""
        if self._contents is None:
            return
        arrangement = Arrangement(self.arrangement.types, self.arrangement.keys)
        arrangement.apply(self.all_rows())
        arrangement.commit()
        self.arrangement = arrangement
        self._below = self._contents = None
        self.changed_shape()

    def put(self, rows: Delta) -> None:
        """Have these rows, with all columns; called between ticks, on a result that keeps its rows and has none. Cost: data."""
        self.arrangement.apply(rows)
        self.arrangement.commit()

    def rows(self) -> Delta:
        """All committed rows with their multiplicity. Cost: data."""
        return self._shown(self.all_rows())

    def all_rows(self) -> Delta:
        """The same with the columns that are there for the order only."""
        if self._contents is not None:
            return consolidate(self._contents.now())
        return self.arrangement.before().rows()

    def contents(self) -> Contents:
        """The rows, now or as a version."""

        def version() -> Callable[[], Delta]:
            rows = self.version()
            return lambda: self._shown(rows())

        return Contents(self.rows, version)

    def version(self) -> Callable[[], Delta]:
        """A function that gives, while ticks go on, what `all_rows` gives now."""
        if self._contents is None:
            return self.arrangement.before().rows
        rows = self._contents.version()
        return lambda: consolidate(rows())

    def _shown(self, rows: Delta) -> Delta:
        return rows if self._visible is None else consolidate(rows.select(range(self._visible)))

    def snapshot(self) -> tuple[pa.Array, ...]:
        """All committed rows, each as often as it is there. Cost: data."""
        return expanded(self.rows())

    def lookup(self, columns: Sequence[int], values: Sequence[pa.Array]) -> tuple[pa.Array, ...]:
        """The committed rows whose `columns` equal any of the rows of `values`.

        Cost: the matching rows when the arrangement is keyed by these columns, otherwise data.
        """
        version = self.arrangement.before()
        if version.keys is not None and sorted(version.keys) == sorted(columns):
            by_column = dict(zip(columns, values, strict=True))
            _, rows = version.lookup([by_column[key] for key in version.keys], len(values[0]))
            return expanded(consolidate(rows))
        parts = [
            run.delta().take(np.flatnonzero(chosen))
            for run in version.runs
            for chosen in (_matches([run.columns[column] for column in columns], values, len(run)),)
        ]
        return expanded(consolidate(concat(parts))) if parts else expanded(version.rows())

    def _check(self, run: Run) -> None:
        retracted = np.flatnonzero(run.weights < 0)
        if len(retracted) == 0:
            return
        multiplicity = self.arrangement.before().multiplicity_of(run, retracted)
        wrong = retracted[multiplicity + run.weights[retracted] < 0]
        if len(wrong):
            raise InternalError(
                f"view {self._name!r} retracts {len(wrong)} rows that it never gave, for example "
                f"{sample(run.take(wrong), self._columns)}",
                code="INTERNAL_NEGATIVE_MULTIPLICITY",
                hint="this is a fault of penstock; please report it with the view's SQL and the delta",
                where=f"view {self._name}",
            )


def expanded(rows: Delta) -> tuple[pa.Array, ...]:
    """The columns of a multiset with every row as often as its weight says."""
    if (rows.weights == 1).all():
        return rows.columns
    return gather(rows.columns, np.repeat(np.arange(len(rows)), rows.weights))


def _matches(columns: Sequence[pa.Array], values: Sequence[pa.Array], rows: int) -> Bools:
    matched = np.zeros(rows, np.bool_)
    positions = np.arange(rows)
    for at in range(len(values[0])):
        matched |= equal_rows(columns, positions, values, np.full(rows, at))
    return matched
