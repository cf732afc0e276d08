"""Which rows of one side of a join match which rows of the other.

Two rows match when their keys are equal (a NULL in a key that is not NULL-safe equals nothing) and the residual condition, if
there is one, is TRUE for the pair. A residual condition is evaluated only over pairs with equal keys, a bounded number at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools
from penstock.data.column_view import gather, join_pieces, null_mask, true_mask
from penstock.data.delta import Delta, Weights, concat_columns
from penstock.data.equality import group_rows
from penstock.data.hashing import Hashes, hash_rows
from penstock.data.tick import Tick
from penstock.errors import DataError
from penstock.state.arrangement import Arrangement
from penstock.state.run import Run
from penstock.state.spine import Match, SpineVersion, collect

# The residual condition over the columns of the left side, then of the right side; NULL does not match.
Residual = Callable[[Sequence[pa.Array], Tick], pa.Array]
_MANY = 32_768


@dataclass(frozen=True, slots=True)
class Matcher:
    """One side of a join (`own`) looking for its matches on the `other` side.

    `crossing` means that the keys are part of the residual condition, and every pair is looked at.
    """

    own: Arrangement
    other: Arrangement
    null_safe: tuple[bool, ...]
    residual: Residual | None
    own_is_left: bool = True
    crossing: bool = False

    def mirrored(self) -> Matcher:
        """The same join seen from the other side."""
        return Matcher(
            self.other, self.own, self.null_safe, self.residual, not self.own_is_left, self.crossing
        )

    def matchable(self, keys: Sequence[pa.Array]) -> Bools | None:
        """Which keys can match at all: those without NULL where it matters; None means all of them."""
        valid: Bools | None = None
        for key, safe in zip(keys, self.null_safe, strict=True):
            nulls = None if safe or self.crossing else null_mask(key)
            if nulls is not None:
                valid = ~nulls if valid is None else valid & ~nulls
        return valid

    def matches(
        self, delta: Delta, version: SpineVersion, tick: Tick, words: Hashes | None = None
    ) -> Iterator[Match]:
        """Pairs of rows of `delta`, which is of the own side, and rows of a version of the other side.

        `words` are those of the delta's rows when they are the rows of a run of the own side.
        """
        if self.residual is None:
            yield from self._candidates(delta, version, words)
            return
        try:
            matches = [
                (match, self._passed(delta, match, tick)) for match in self._candidates(delta, version, words)
            ]
        except DataError:
            matches = self._passed_alive(delta, list(self._candidates(delta, version, words)), tick)
        for match, passed in matches:
            if passed.all():
                yield match
            elif passed.any():
                yield Match(match.left[passed], match.run, match.right[passed])

    def _passed(self, delta: Delta, match: Match, tick: Tick) -> Bools:
        """For which pairs the residual condition is TRUE."""
        other = [view.gather(match.right) for view in match.run.views]
        return self._condition(gather(delta.columns, match.left), other, tick)

    def _condition(self, own: Sequence[pa.Array], other: Sequence[pa.Array], tick: Tick) -> Bools:
        assert self.residual is not None
        columns = (*own, *other) if self.own_is_left else (*other, *own)
        return true_mask(self.residual(columns, tick))

    def _passed_alive(
        self, delta: Delta, candidates: Sequence[Match], tick: Tick
    ) -> list[tuple[Match, Bools]]:
        """The same, asked only for pairs with a row that is there: a deleted one is in one run, and taken back in another."""
        left = np.concatenate([match.left for match in candidates])
        weights = np.concatenate([match.run.weights.take(match.right) for match in candidates])
        other = [
            concat_columns([match.run.views[at].gather(match.right) for match in candidates])
            for at in range(len(self.other.types))
        ]
        pairs = [pa.array(left), *other]
        order, starts = group_rows(hash_rows(pairs, len(left)), pairs, as_rows=True)
        sums = np.add.reduceat(weights[order], starts, dtype=np.int64)
        alive = np.empty(len(left), np.bool_)
        alive[order] = np.repeat(sums != 0, np.diff(np.append(starts, len(left))))
        at = np.flatnonzero(alive)
        passed = np.zeros(len(left), np.bool_)
        if len(at):
            passed[at] = self._condition(gather(delta.columns, left[at]), gather(other, at), tick)
        ends = np.cumsum([len(match.left) for match in candidates])
        return list(zip(candidates, np.split(passed, ends[:-1]), strict=True))

    def joined(self, run: Run, version: SpineVersion, tick: Tick) -> Delta:
        """The rows of a run of the own side with those that they match: left columns, then right columns."""
        own = run.delta()
        matches = list(self.matches(own, version, tick, run.words))
        if matches and len(own) >= _MANY:
            return self._many(run, matches)
        at, matched = collect(matches, self.other.types)
        rows = own.take(at)
        columns = (rows.columns, matched.columns) if self.own_is_left else (matched.columns, rows.columns)
        return Delta((*columns[0], *columns[1]), rows.weights * matched.weights)

    def _many(self, run: Run, matches: Sequence[Match]) -> Delta:
        """The same for many pairs, each written where it stays."""
        own = [join_pieces([(column, match.left) for match in matches]) for column in run.views]
        width = range(len(self.other.types))
        matched = [join_pieces([(match.run.views[at], match.right) for match in matches]) for at in width]
        weights = np.empty(sum(len(match.left) for match in matches), np.int64)
        end = 0
        for match in matches:
            piece = weights[end : end + len(match.left)]
            piece[:] = run.weights.take(match.left)
            piece *= match.run.weights.take(match.right)
            end += len(match.left)
        columns = (own, matched) if self.own_is_left else (matched, own)
        return Delta((*columns[0], *columns[1]), weights)

    def counts(self, delta: Delta, version: SpineVersion, tick: Tick) -> Weights:
        """How many rows of the other side each row of `delta` matches."""
        counts = np.zeros(len(delta), np.int64)
        for match in self.matches(delta, version, tick):
            np.add.at(counts, match.left, match.run.weights.take(match.right))
        return counts

    def _candidates(self, delta: Delta, version: SpineVersion, words: Hashes | None) -> Iterator[Match]:
        if self.crossing:
            yield from version.cross(len(delta))
            return
        keys = self.own.key_of(delta)
        possible = self.matchable(keys)
        if possible is None or possible.all():
            yield from version.probe(keys, len(delta), words)
            return
        chosen = np.flatnonzero(possible)
        chosen_words = None if words is None else words[chosen]
        for match in version.probe(gather(keys, chosen), len(chosen), chosen_words):
            yield Match(chosen[match.left], match.run, match.right)
