"""A source: where deltas of users enter the circuit, checked against the rows that are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.data.arrays import Bools, Positions
from penstock.data.collation import Normalise
from penstock.data.column_view import ColumnView, gather, null_mask
from penstock.data.consolidate import consolidate
from penstock.data.delta import Delta, concat, empty
from penstock.data.equality import equal_rows, group_rows
from penstock.data.event_time import micros
from penstock.data.hashing import hash_rows, hash_wide
from penstock.data.tick import Tick
from penstock.errors import DataError
from penstock.operators.base import Operator
from penstock.operators.contents import Contents, of_arrangement, through
from penstock.operators.linear import Select
from penstock.operators.sample import sample
from penstock.state.arrangement import Arrangement
from penstock.state.narrow import all_one
from penstock.state.spine import saved_keys
from penstock.state.state import Image, State

OnMissing = Literal["reject", "quarantine", "ignore"]
_MANY = 32_768


class Source(Operator):
    """The rows of a source, with or without a primary key.

    Rule without a key: S+ = S- + consolidate(dS). A retraction of a row that is not there (or not so often) rejects the tick, or
    is left out and goes to `missing` with `on_missing="quarantine"`, and nowhere with "ignore".

    Rule with a key: rows of the delta are events in the order of their positions. An insert replaces the row of its key, the
    last insert of a key wins, a retraction removes the row of its key whatever its other columns say; it must find one, stored
    or inserted before it, and several retractions of a key count as one. One exception makes a delta and its negative
    inverse of each other: a retraction of exactly the stored row comes before the inserts of other rows with that
    key, wherever it stands. The output is -old +new per changed key.

    With `retained` the source stores and passes on only those columns (the primary key must be among them); a 128-bit
    hash of all columns then tells rows apart. `normalise` has, for key columns that are compared by a collation, what
    makes keys of their texts, which are stored beside them. With `event_time` rows of times behind the watermark go
    when runs are merged: no change of them is accepted any more, and the source can then not be read. Cost: delta.
    """

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        types: Sequence[pa.DataType],
        *,
        primary_key: Sequence[int] | None = None,
        on_missing: OnMissing = "reject",
        retained: Sequence[int] | None = None,
        event_time: int | None = None,
        normalise: Mapping[int, Normalise] | None = None,
    ) -> None:
        self._name = name
        self._names = tuple(names)
        self._on_missing = on_missing
        self._key = tuple(primary_key) if primary_key else None
        self._retained = None if retained is None else tuple(retained)
        self.columns = tuple(range(len(types))) if self._retained is None else self._retained
        self._nothing = empty(types)
        self.missing = self._nothing
        stored_types = [types[column] for column in self.columns]
        keys = None if self._key is None else [self.columns.index(column) for column in self._key]
        if self._retained is not None:
            stored_types += [pa.uint64(), pa.uint64()]
            keys = [len(stored_types) - 2, len(stored_types) - 1] if keys is None else keys
        self._normalise = dict(normalise or {})
        for column, of_text in self._normalise.items():
            assert keys is not None
            assert self._key is not None, "only key columns are normalised"
            keys[self._key.index(column)] = len(stored_types)
            stored_types.append(of_text(pa.array([], types[column])).type)
        self._time = None if event_time is None else self.columns.index(event_time)
        self._watermark: int | None = None
        self.arrangement = Arrangement(stored_types, keys, None if self._time is None else self._open_rows)

    @property
    def frees(self) -> bool:
        """Whether rows leave that have not been taken back."""
        return self._time is not None

    def _open_rows(self, columns: Sequence[ColumnView], rows: Positions) -> Bools:
        """Which rows are not behind the watermark."""
        assert self._time is not None
        if self._watermark is None:
            return np.ones(len(rows), np.bool_)
        times, valid = micros(columns[self._time].gather(rows))
        return ~valid | (times >= self._watermark)

    def indexed_by(self, columns: Sequence[int]) -> Arrangement | None:
        """The arrangement of whole rows when it is, or can be, one by these columns; None when it cannot.

        An index by a key and a hash of the row serves as well as one by a hash of the row alone, so a source without
        a primary key takes the first key that is asked for, whether or not it has rows. Cost, when it has: data,
        once.
        """
        if self._retained is not None:
            return None
        if self._key is None and self.arrangement.keys is None:
            self.arrangement = self._arranged_by(columns)
            self.changed_shape()
        return self.arrangement if self.arrangement.keys == tuple(columns) else None

    def _arranged_by(self, columns: Sequence[int]) -> Arrangement:
        arrangement = Arrangement(self.arrangement.types, columns)
        rows = self.arrangement.before().rows()
        if len(rows):
            arrangement.apply(rows)
            arrangement.commit()
        return arrangement

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        if self._time is not None:
            self._watermark = dict(tick.watermarks).get(self._name)
        if self._key is None and (stored := self._plain_change(delta)) is not None:
            self.missing = self._nothing
            return stored.select(range(len(self.columns)))
        changed, missing = self._rows_change(delta) if self._key is None else self._keyed_change(delta)
        if len(missing) and self._on_missing == "reject":
            raise DataError(
                f"{len(missing)} retracted rows are not in source {self._name!r}, or not so often: "
                f"{sample(missing, self._names)}",
                code="DATA_MISSING_ROW",
                hint="retract rows exactly as they were inserted, or register the source with on_missing_delete='quarantine'",
                where=f"source {self._name!r}",
            )
        self.missing = missing if self._on_missing == "quarantine" else self._nothing
        self.arrangement.apply(changed)
        return changed.select(range(len(self.columns)))

    def states(self) -> Iterator[tuple[str, State]]:
        yield "rows", self.arrangement

    def load(self, image: Image) -> None:
        """Be what `save` gave, by the keys that the source had taken then."""
        keys = saved_keys(image.parts["rows"].parts["rows"])
        if self._key is None and self._retained is None and keys != self.arrangement.keys:
            self.arrangement = Arrangement(self.arrangement.types, keys)
            self.changed_shape()
        super().load(image)

    def rollback(self) -> None:
        super().rollback()
        self.missing = self._nothing

    def rows(self) -> Delta:
        """All committed rows (their retained columns) with their multiplicity. Cost: data."""
        return self.contents().now()

    def contents(self) -> Contents:
        """The rows, now or as a version."""
        return through(Select(range(len(self.columns))), lambda: of_arrangement(self.arrangement))

    def stored(self) -> Callable[[], Delta]:
        """A function that gives all rows as they are now, with the hash that tells rows apart whose columns are not all kept."""
        width = len(self.columns) + (0 if self._retained is None else 2)
        rows = self.arrangement.before().rows
        return lambda: rows().select(range(width))

    def put(self, rows: Delta) -> None:
        """Have these rows, as `stored` gave them; called between ticks, on a source without rows. Cost: data."""
        at = {column: position for position, column in enumerate(self.columns)}
        keys = (of_text(rows.columns[at[column]]) for column, of_text in self._normalise.items())
        self.arrangement.apply(Delta((*rows.columns, *keys), rows.weights))
        self.arrangement.commit()

    def lookup(self, keys: Sequence[pa.Array]) -> Delta:
        """The committed rows with these primary keys. Cost: the keys."""
        assert self._key is not None, "only sources with a primary key can be looked up"
        keys = self._comparable(keys)
        _, rows = self.arrangement.before().lookup(keys, len(keys[0]))
        return consolidate(rows).select(range(len(self.columns)))

    def _stored(self, delta: Delta) -> Delta:
        """The rows as the arrangement stores them."""
        keys = [of_text(delta.columns[column]) for column, of_text in self._normalise.items()]
        if self._retained is None:
            return Delta((*delta.columns, *keys), delta.weights) if keys else delta
        low, high = hash_wide(delta.columns, len(delta))
        columns = (delta.columns[column] for column in self._retained)
        return Delta((*columns, pa.array(low), pa.array(high), *keys), delta.weights)

    def _comparable(self, keys: Sequence[pa.Array]) -> list[pa.Array]:
        """Columns of the primary key as they are compared."""
        assert self._key is not None
        return [
            self._normalise[column](key) if column in self._normalise else key
            for column, key in zip(self._key, keys, strict=True)
        ]

    def _plain_change(self, delta: Delta) -> Delta | None:
        """Stage a change of different rows, or of many, whose retractions are all there, the usual one; None when it
        is another."""
        stored = self._stored(delta)
        run = self.arrangement.sorted(stored)
        if len(run) < len(delta) and len(run) < _MANY:
            return None
        retracted = (run.weights < 0).nonzero()[0]
        if len(retracted):
            multiplicity = self.arrangement.before().multiplicity_of(run, retracted)
            if (multiplicity + run.weights[retracted] < 0).any():
                return None
        self.arrangement.apply_run(run)
        # Many rows go on in the order of the index, which keeps equal keys together; a few as they came.
        if len(run) < _MANY:
            return stored
        if len(run) == len(delta) and all_one(stored.weights):
            return Delta(run.columns, stored.weights)
        return run.delta()

    def _rows_change(self, delta: Delta) -> tuple[Delta, Delta]:
        delta = consolidate(delta)
        stored = self._stored(delta)
        retracted = np.flatnonzero(delta.weights < 0)
        if len(retracted) == 0:
            return stored, self._nothing
        multiplicity = self.arrangement.before().multiplicity(stored.take(retracted))
        lacking = np.minimum(multiplicity + delta.weights[retracted], 0)
        short = np.flatnonzero(lacking)
        if len(short) == 0:
            return stored, self._nothing
        weights = delta.weights.copy()
        weights[retracted] -= lacking
        missing = Delta(delta.take(retracted[short]).columns, lacking[short])
        remaining = np.flatnonzero(weights)
        return Delta(stored.columns, weights).take(remaining), missing

    def _keyed_change(self, delta: Delta) -> tuple[Delta, Delta]:
        assert self._key is not None
        delta = delta if delta.weights.all() else delta.take(np.flatnonzero(delta.weights))
        if len(delta) == 0:
            return self._stored(delta), delta
        keys = [delta.columns[column] for column in self._key]
        self._refuse_null_keys(delta, keys)
        keys = self._comparable(keys)
        order, starts = group_rows(hash_rows(keys), keys)
        group = np.empty(len(delta), np.int64)
        group[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
        first = order[starts]
        stored = self._stored(delta)
        old, old_positions = self._old_rows(gather(keys, first), len(starts))
        events = _Events(delta.weights > 0, group, len(starts), old_positions)
        same = np.zeros(len(delta), np.bool_)
        with_old = np.flatnonzero(old_positions[group] >= 0)
        same[with_old] = equal_rows(
            stored.columns, with_old, old.columns, old_positions[group[with_old]], as_rows=True
        )
        winner, missing = events.settle(same)
        # A row that is replaced by itself has not changed; all others differ from each other, by their keys or columns.
        unchanged = (winner >= 0) & same[winner]
        changed = np.flatnonzero(((winner >= 0) | events.removed) & ~unchanged)
        inserts = stored.take(winner[changed][winner[changed] >= 0])
        inserts = Delta(inserts.columns, np.ones(len(inserts), np.int64))
        replaced = old_positions[changed]
        retracts = old.take(replaced[replaced >= 0])
        return concat([-retracts, inserts]), delta.take(missing)

    def _old_rows(self, keys: Sequence[pa.Array], count: int) -> tuple[Delta, Positions]:
        """The stored rows of these keys, and for every key the position of its row among them, or -1."""
        key, rows = self.arrangement.before().lookup(keys, count)
        # A key may have retractions that have not met their row yet; one that comes once has none.
        several = np.bincount(key, minlength=count)[key] > 1
        if several.any():
            marked = Delta((*rows.columns, pa.array(key)), rows.weights)
            marked = concat(
                [marked.take(np.flatnonzero(~several)), consolidate(marked.take(np.flatnonzero(several)))]
            )
            rows, key = marked.select(range(len(rows.columns))), marked.columns[-1].to_numpy()
        at = np.full(count, -1, np.int64)
        at[key] = np.arange(len(rows))
        return rows, at

    def _refuse_null_keys(self, delta: Delta, keys: Sequence[pa.Array]) -> None:
        for key in keys:
            nulls = null_mask(key)
            if nulls is not None:
                raise DataError(
                    f"NULL in the primary key of source {self._name!r}: "
                    f"{sample(delta.take(np.flatnonzero(nulls)), self._names)}",
                    code="DATA_NULL_KEY",
                    hint="every column of a primary key needs a value",
                    where=f"source {self._name!r}",
                )


class _Events:
    """The events of a batch by key: which insert wins, and which retractions find nothing."""

    def __init__(self, inserted: Bools, group: Positions, groups: int, old: Positions) -> None:
        self._inserted, self._group, self._groups, self._old = inserted, group, groups, old
        self.removed = np.zeros(groups, np.bool_)

    def settle(self, same: Bools) -> tuple[Positions, Positions]:
        """Return (the position of each key's winning insert or -1, the retractions that are missing their row).

        `same` marks the events whose row is exactly the stored one.
        """
        inserted, group = self._inserted, self._group
        at = np.arange(len(group))
        inserts, retracts = at[inserted], at[~inserted]
        last = np.full(self._groups, -1, np.int64)
        np.maximum.at(last, group[inserts], inserts)
        first = np.full(self._groups, len(group), np.int64)
        np.minimum.at(first, group[inserts], inserts)
        owner = group[retracts]
        # A retraction of the stored row does not undo an insert of another row.
        undoes = (retracts > last[owner]) & ~(same[retracts] & ~same[last[owner]] & (last[owner] >= 0))
        self.removed[owner] = True
        winner = last.copy()
        winner[owner[undoes]] = -1
        missing = retracts[(self._old[owner] < 0) & (retracts < first[owner])]
        return winner, missing
