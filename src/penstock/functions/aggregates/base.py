"""What an aggregate function consists of: parts that hold state by slot, and a result read from them.

Calls over the same argument share their parts: SUM(x), AVG(x) and COUNT(x) keep one sum and one count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Floats, Ints, Positions
from penstock.data.column_view import null_mask, view
from penstock.functions.aggregates.result import Result
from penstock.plan.node import AggregateCall, SortKey
from penstock.state.slots import RowSlots
from penstock.state.state import State


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows a part takes in, and which columns of them.

    Rows pass whose `filter` column is TRUE and whose `required` arguments (positions in `args`) are not NULL.
    `distinct` counts equal arguments of a group once.
    """

    args: tuple[int, ...]
    filter: int | None = None
    distinct: bool = False
    required: tuple[int, ...] = ()

    def text(self) -> str:
        """The selection in the name of a state."""
        where = "" if self.filter is None else f" where {self.filter}"
        return f"of {list(self.args)}{' distinct' if self.distinct else ''}{where} without NULL in {list(self.required)}"


class Rows(RowSlots):
    """Rows on their way into a part: their slots, weights and argument columns."""

    __slots__ = ("columns", "weights")

    def __init__(
        self, touched: Positions, groups: Positions, weights: Ints, columns: tuple[pa.Array, ...]
    ) -> None:
        self.touched = touched
        self.groups = groups
        self.weights = weights
        self.columns = columns
        self._slots = None


class AggregatePart(State, Protocol):
    """State by slot. A tick calls `reserve`, then `update` at most once, then `commit` or `rollback`."""

    def reserve(self, size: int) -> None:
        """Make room for slots below `size`."""

    def update(self, rows: Rows) -> None:
        """Take rows in. Raising (DataError) rejects the tick."""

    def merge(self, other: Self, slots: Positions, others: Positions) -> None:
        """Take in what another part of the same kind has at other slots, into `slots`, pairwise; slots differ.

        The law: a part that has taken in some rows, merged with one that has taken in the others, gives what one
        gives that has taken in all of them.
        """


class Function(Protocol):
    """One aggregate call, ready to be read."""

    def result(self, slots: Positions) -> Result:
        """Return the values at slots, which may be those of groups without rows. Raising (DataError) rejects the tick."""


AnyPart = TypeVar("AnyPart", bound=AggregatePart)
PartName = str | int | bool | Sequence[SortKey]


class Parts:
    """All parts of one operator, each with the rows it takes in, in an order in which parts come after what they read."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self.types = tuple(types)
        self._parts: dict[str, tuple[Selection, AggregatePart]] = {}

    def share(self, selection: Selection, make: Callable[[], AnyPart], *name: PartName) -> AnyPart:
        """Return the part of this name over this selection; make it if there is none yet."""
        role = f"{' '.join(map(_text, name))} {selection.text()}"
        entry = self._parts.get(role)
        if entry is None:
            entry = self._parts[role] = (selection, make())
        return entry[1]  # type: ignore[return-value]  # the name determines the class

    def all(self) -> list[tuple[Selection, AggregatePart]]:
        """All parts, each with its selection."""
        return list(self._parts.values())

    def states(self) -> Iterator[tuple[str, State]]:
        """All parts by what they mean: their kind and the rows that they take in."""
        for role, (_, part) in self._parts.items():
            yield role, part

    def kinds(self, selection: Selection) -> tuple[pa.DataType, ...]:
        """The types of a selection's columns."""
        return tuple(self.types[index] for index in selection.args)


def _text(name: PartName) -> str:
    """A piece of a part's name, the same in every process and version."""
    if isinstance(name, str | int):
        return str(name)
    keys = (
        f"{key.column} {'desc' if key.descending else 'asc'} nulls {'first' if key.nulls_first else 'last'}"
        for key in name
    )
    return f"by {', '.join(keys)}"


def selection(
    call: AggregateCall, *, args: int | None = None, required: tuple[int, ...] | None = None
) -> Selection:
    """Return the rows that a call reads: all its arguments, none of them NULL, unless `required` names others."""
    chosen = call.args if args is None else call.args[:args]
    needed = tuple(range(len(chosen))) if required is None else required
    return Selection(chosen, call.filter, call.distinct, needed)


def overflow_mode(call: AggregateCall) -> str:
    """What an overflow or a division by zero means: "ANSI" (an error), "TRY" (NULL) or "LEGACY"."""
    option = str(call.option("evalMode", "ANSI")).upper()
    return next((mode for mode in ("TRY", "LEGACY") if mode in option), "ANSI")


def doubles(column: pa.Array) -> Floats:
    """Return the values of a number column without NULL as doubles."""
    values = view(column).values
    assert values is not None
    return values.astype(np.float64, copy=False)


def integers(column: pa.Array) -> Ints:
    """Return the values of an integer, date, time or interval column as 64-bit integers."""
    values = view(column).values
    assert values is not None
    return values.astype(np.int64, copy=False)


def is_true(column: pa.Array) -> Bools:
    """Which values of a boolean column are TRUE (neither FALSE nor NULL)."""
    plain = np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
    nulls = null_mask(column)
    return plain if nulls is None else plain & ~nulls
