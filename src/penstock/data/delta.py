"""Rows with weights, by position: what flows between operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.arrays import Positions
from penstock.data.column_view import gather, join_pieces, view

Weights = npt.NDArray[np.int64]
_MANY = 32_768


@dataclass(frozen=True, slots=True)
class Delta:
    """Columns of equal length and a weight per row: +n inserts a row n times, -n retracts it n times.

    Columns are contiguous Arrow arrays (never chunked). Text is `large_string` and bytes are `large_binary`, so that state
    may grow past 2 GiB; see `penstock.data.schema` for the mapping from Spark types.
    """

    columns: tuple[pa.Array, ...]
    weights: Weights

    def __len__(self) -> int:
        return len(self.weights)

    def take(self, positions: Positions) -> Delta:
        """Return the rows at these positions."""
        return Delta(gather(self.columns, positions), self.weights.take(positions))

    def select(self, columns: Sequence[int]) -> Delta:
        """Return the same rows with other columns."""
        return Delta(tuple(self.columns[index] for index in columns), self.weights)

    def __neg__(self) -> Delta:
        return Delta(self.columns, -self.weights)


def concat_columns(columns: Sequence[pa.Array]) -> pa.Array:
    """Return several columns of one type as one."""
    if sum(map(len, columns)) < _MANY:
        return pa.concat_arrays(columns)
    return join_pieces([(view(column), None) for column in columns])


def concat(deltas: Sequence[Delta]) -> Delta:
    """Return all rows of several deltas of the same columns; at least one is needed."""
    if len(deltas) == 1:
        return deltas[0]
    width = len(deltas[0].columns)
    columns = tuple(concat_columns([delta.columns[index] for delta in deltas]) for index in range(width))
    return Delta(columns, np.concatenate([delta.weights for delta in deltas]))


def empty(types: Sequence[pa.DataType]) -> Delta:
    """Return no rows, of these column types."""
    return Delta(tuple(pa.array([], kind) for kind in types), np.zeros(0, np.int64))
