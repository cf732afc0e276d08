"""How many rows each key has: a spine of keys, whose weights are the counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.data.column_view import gather
from penstock.data.delta import Delta, Weights, empty
from penstock.data.equality import group_rows
from penstock.data.hashing import hash_rows
from penstock.state.merge import Keep
from penstock.state.run import make_run
from penstock.state.spine import Spine, SpineVersion
from penstock.state.state import Composite, State


class KeyCounts(Composite):
    """Key -> number of rows, before and after the tick. Keys are compared as keys: NULL-safe, -0.0 equals 0.0.

    Keys that `keep` does not want go when runs are merged.
    """

    __slots__ = ("_change", "_flipped", "_nothing", "_spine")

    def __init__(self, types: Sequence[pa.DataType], keep: Keep | None = None) -> None:
        self._spine = Spine(types, keep=keep)
        self._change = self._nothing = empty(types)
        self._flipped: Delta | None = None

    def states(self) -> Iterator[tuple[str, State]]:
        yield "keys", self._spine

    def stage(self, keys: Sequence[pa.Array], weights: Weights) -> None:
        """Add rows with these keys; called at most once per tick."""
        hashes = hash_rows(keys, len(weights))
        order, starts = group_rows(hashes, keys)
        if len(order) == 0:
            return
        sums = np.add.reduceat(weights[order], starts)
        remaining = np.flatnonzero(sums)
        first = order[starts[remaining]]
        self._change = Delta(gather(keys, first), sums[remaining])
        # Groups come in the order of their hash, which is the word of a key: they are a run.
        self._spine.stage_run(
            make_run(hashes[first], self._change.columns, sums[remaining], self._spine.next_name)
        )

    def before(self, keys: Sequence[pa.Array], rows: int) -> Weights:
        """The rows of each of these keys without the change of this tick."""
        return _count(self._spine.before(), keys, rows)

    def after(self, keys: Sequence[pa.Array], rows: int) -> Weights:
        """The rows of each of these keys with the change of this tick."""
        return _count(self._spine.after(), keys, rows)

    def total(self, *, after: bool) -> int:
        """The rows of all keys, without or with the change of this tick."""
        return self._spine.count + (int(self._change.weights.sum()) if after else 0)

    def flipped(self) -> Delta:
        """The keys that appear (weight 1) or disappear (weight -1) in this tick."""
        if self._flipped is None:
            change = self._change
            before = self.before(change.columns, len(change))
            signs = np.sign(before + change.weights) - np.sign(before)
            flips = np.flatnonzero(signs)
            self._flipped = Delta(change.take(flips).columns, signs[flips])
        return self._flipped

    def commit(self) -> None:
        super().commit()
        self._forget()

    def rollback(self) -> None:
        super().rollback()
        self._forget()

    def _forget(self) -> None:
        self._change = self._nothing
        self._flipped = None


def _count(version: SpineVersion, keys: Sequence[pa.Array], rows: int) -> Weights:
    return version.multiplicity(Delta(tuple(keys), np.zeros(rows, np.int64)), as_rows=False)
