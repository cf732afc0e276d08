"""How the rows of one side that have a match, or have none, change: the core of semi, anti and outer joins.

Rule, with m(a) the number of matches of row a on the other side, and [m] whether that is as wanted:

    d = dA * [m+] + A- * ([m+] - [m-])

Only rows of A- whose m goes from zero to positive or back are read. Without a residual condition m depends on the key alone and
is stored as a count per key, so the cost is the delta plus the rows of keys that appear or disappear. With a residual condition
m is counted for the touched rows: the cost is the delta times the rows per key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from penstock.data.arrays import Bools, Positions
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, Weights, concat, empty
from penstock.data.tick import Tick
from penstock.errors import DataError
from penstock.operators.matching import Matcher
from penstock.state.run import Run
from penstock.state.spine import collect


@dataclass(frozen=True, slots=True)
class Presence:
    """The rows of the matcher's own side that have a match (`wanted`) or have none."""

    matcher: Matcher
    wanted: bool

    def change(self, own: Delta, other: Delta, tick: Tick, *, filling: bool) -> list[Delta]:
        """The change for these changes of the two sides; `filling` says that both were empty before."""
        try:
            return self._change(own, other, tick, filling=filling)
        except DataError:
            if self.matcher.residual is None or filling:
                raise
            return self._change_alive(own, other, tick)

    def _change_alive(self, own: Delta, other: Delta, tick: Tick) -> list[Delta]:
        """The same, asking the condition only for pairs that are there before the tick, or after it.

        d = A_ins*[c+ > 0] - A_del*[c- > 0] + A_stay*([c+ > 0] - [c- > 0])
        """
        matcher = self.matcher
        before, after = matcher.other.before(), matcher.other.after()
        own = consolidate(own)
        parts = []
        for rows, version in ((own.weights > 0, after), (own.weights < 0, before)):
            changed = own.take(np.flatnonzero(rows))
            has_match = matcher.counts(changed, version, tick) > 0
            parts.append(changed.take(np.flatnonzero(has_match == self.wanted)))
        staying_rows = self._staying_rows(own, other, tick)
        signs = np.sign(matcher.counts(staying_rows, after, tick)) - np.sign(
            matcher.counts(staying_rows, before, tick)
        )
        flips = staying_rows.take(np.flatnonzero(signs))
        signs = signs[signs != 0]
        parts.append(Delta(flips.columns, flips.weights * (signs if self.wanted else -signs)))
        return [part for part in parts if len(part)]

    def _staying_rows(self, own: Delta, other: Delta, tick: Tick) -> Delta:
        """The own rows with a key among the other side's changes that were there before and stay."""
        plain = replace(self.matcher.mirrored(), residual=None)
        touched: dict[int, tuple[Run, list[Positions]]] = {}
        for match in plain.matches(other, self.matcher.own.before(), tick):
            touched.setdefault(match.run.name, (match.run, []))[1].append(match.right)
        rows = [run.take(np.unique(np.concatenate(positions))) for run, positions in touched.values()]
        if not rows:
            return empty(self.matcher.own.types)
        deleted = own.take(np.flatnonzero(own.weights < 0))
        staying_rows = consolidate(concat([*rows, deleted]))
        return staying_rows.take(np.flatnonzero(staying_rows.weights > 0))

    def _change(self, own: Delta, other: Delta, tick: Tick, *, filling: bool) -> list[Delta]:
        parts = []
        if len(own):
            chosen = np.flatnonzero(self._has_match(own, tick) == self.wanted)
            parts.append(own if len(chosen) == len(own) else own.take(chosen))
        if len(other) and not filling:
            parts += self._flipped_rows(other, tick) if self.matcher.residual else self._flipped_keys()
        return parts

    def _has_match(self, own: Delta, tick: Tick) -> Bools:
        matcher = self.matcher
        if matcher.residual:
            matched: Bools = matcher.counts(own, matcher.other.after(), tick) > 0
            return matched
        keys = matcher.own.key_of(own)
        has = matcher.other.count_keys().after(keys, len(own)) > 0
        possible = matcher.matchable(keys)
        return has if possible is None else has & possible

    def _flipped_keys(self) -> list[Delta]:
        matcher = self.matcher
        flipped = matcher.other.count_keys().flipped()
        possible = matcher.matchable(flipped.columns)
        if possible is not None and not possible.all():
            flipped = flipped.take(np.flatnonzero(possible))
        matches = list(matcher.own.before().probe(flipped.columns, len(flipped)))
        if not matches:
            return []
        of_key, rows = collect(matches, matcher.own.types)
        signs = flipped.weights if self.wanted else -flipped.weights
        return [Delta(rows.columns, rows.weights * signs[of_key])]

    def _flipped_rows(self, other: Delta, tick: Tick) -> list[Delta]:
        matcher = self.matcher
        changes: dict[int, tuple[Run, list[Positions], list[Weights]]] = {}
        for match in matcher.mirrored().matches(other, matcher.own.before(), tick):
            _, rows, weights = changes.setdefault(match.run.name, (match.run, [], []))
            rows.append(match.right)
            weights.append(other.weights[match.left])
        parts = []
        for run, rows, weights in changes.values():
            at, inverse = np.unique(np.concatenate(rows), return_inverse=True)
            change = np.zeros(len(at), np.int64)
            np.add.at(change, inverse, np.concatenate(weights))
            touched = np.flatnonzero(change)
            at, change = at[touched], change[touched]
            columns = tuple(view.gather(at) for view in run.views)
            own = Delta(columns, run.weights.take(at).astype(np.int64))
            before = matcher.counts(own, matcher.other.before(), tick)
            signs = np.sign(before + change) - np.sign(before)
            flips = np.flatnonzero(signs)
            chosen = own.take(flips)
            parts.append(
                Delta(chosen.columns, chosen.weights * (signs[flips] if self.wanted else -signs[flips]))
            )
        return parts
