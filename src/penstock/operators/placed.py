"""Operators of a kernel in shards: what runs in another place, and the part of rows that a shard has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Positions
from penstock.data.delta import Delta, empty
from penstock.data.tick import Tick
from penstock.operators.base import Operator
from penstock.operators.contents import Contents


class Elsewhere(Operator):
    """An operator that runs in another place: here it gives nothing. Cost: none."""

    consolidated = True

    def __init__(self, types: Sequence[pa.DataType], *, is_kept: bool = False) -> None:
        """`is_kept` says whether its rows are kept where it runs."""
        self._nothing = empty(types)
        self.is_kept = is_kept

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        return self._nothing

    def contents(self) -> Contents:
        """No rows."""
        return Contents(lambda: self._nothing, lambda: lambda: self._nothing)


class Part(Operator):
    """The rows of one shard, of rows that every shard has all of. Cost: delta."""

    def __init__(self, is_here: Callable[[Delta], Positions]) -> None:
        """`is_here` gives the positions of the rows that stay."""
        self._is_here = is_here

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        return delta.take(self._is_here(delta))


def no_positions(_: Delta) -> Positions:
    """No row stays."""
    return np.zeros(0, np.int64)
