"""The parts that most aggregate functions share: counts, sums, counted values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from penstock.data.arrays import Bools, Floats, Ints, Positions
from penstock.functions.aggregates.base import Parts, Rows, Selection, doubles, integers
from penstock.functions.exact import DecimalSums, FloatSums, IntegerSums, decimal_words
from penstock.plan.node import SortKey
from penstock.state.multiset import GroupRows, Multiset, multiset
from penstock.state.run import Run
from penstock.state.slot_array import SlotArray
from penstock.state.state import Composite, Image, State


class CountPart(Composite):
    """The number of rows."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = SlotArray(np.int64)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "counts", self.values

    def reserve(self, size: int) -> None:
        self.values.reserve(size)

    def update(self, rows: Rows) -> None:
        self.values.add(rows.touched, rows.groups, rows.weights)

    def merge(self, other: Self, slots: Positions, others: Positions) -> None:
        self.values.add(slots, np.arange(len(slots)), other.values.data[others])

    def at(self, slots: Positions) -> Ints:
        """The counts at slots."""
        return self.values.data[slots]


class FloatSumPart(Composite):
    """The exact sum of a float column, or of the product of two; NaN and the infinities are counted apart."""

    __slots__ = ("_cache", "_columns", "_counts", "_odd", "_touched", "sums")

    def __init__(self, *columns: int) -> None:
        self._columns = columns
        self.sums = FloatSums(products=len(columns) == 2)
        self._odd = SlotArray(
            np.int64, 3
        )  # NaN, +inf, -inf; as long as the sums once there was any, else empty
        self._cache = _Rounded()
        self._counts: CountPart | None = None
        self._touched = np.zeros(0, np.int64)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "sums", self.sums
        yield "odd", self._odd

    def ask_sums(self) -> None:
        """Be ready to give sums."""
        self._cache.ask("sums")

    def ask_means(self, counts: CountPart) -> None:
        """Be ready to give sums over these counts."""
        self._cache.ask("means")
        self._counts = counts

    def reserve(self, size: int) -> None:
        self.sums.reserve(size)
        if self._odd.size:
            self._odd.reserve(size)
        self._cache.reserve(size)

    def update(self, rows: Rows) -> None:
        self._forget(rows.touched)
        factors = [doubles(rows.columns[index]) for index in self._columns]
        finite = np.isfinite(factors[0])
        if len(factors) == 2:
            finite &= np.isfinite(factors[1])
        if finite.all():
            self.sums.add(rows.touched, rows.groups, factors, rows.weights)
            return
        groups, weights = rows.groups[finite], rows.weights[finite]
        self.sums.add(rows.touched, groups, [factor[finite] for factor in factors], weights)
        if len(factors) == 1:
            self._count_odd(rows, factors[0], ~finite)

    def _count_odd(self, rows: Rows, values: Floats, odd: Bools) -> None:
        self._odd.reserve(self.sums.sums.rows.size)
        values = values[odd]
        which = np.where(np.isnan(values), 0, np.where(values > 0, 1, 2))
        old = self._odd.data[rows.touched]
        new = old.copy()
        np.add.at(new, (rows.groups[odd], which), rows.weights[odd])
        self._odd.put(rows.touched, new, old)

    def merge(self, other: Self, slots: Positions, others: Positions) -> None:
        self._forget(slots)
        self.sums.merge(other.sums, slots, others)
        if other._odd.size:
            self._odd.reserve(self.sums.sums.rows.size)
            old = self._odd.data[slots]
            self._odd.put(slots, old + other._odd.data[others], old)

    def put(self, limbs: Ints, odd: Ints | None, outside: dict[int, int]) -> None:
        """Set the sums of the first slots: their limbs, how often NaN, +inf and -inf count, and what lies outside of
        the limbs."""
        self.sums.put(limbs, outside)
        if odd is not None:
            self._odd.reserve(len(odd))
            self._odd.append(0, odd)

    def _forget(self, touched: Positions) -> None:
        self._touched = touched
        self._cache.forget(touched)

    def rollback(self) -> None:
        super().rollback()
        self._cache.forget(self._touched)

    def load(self, image: Image) -> None:
        super().load(image)
        self._cache.clear()
        self._cache.reserve(self.sums.sums.rows.size)

    def memory(self) -> int:
        return super().memory() + self._cache.memory()

    def doubles(self, slots: Positions) -> Floats:
        """The sums at slots, rounded once; `ask_sums` comes first."""
        self._refresh(slots)
        return self._cache.at("sums", slots)

    def means(self, slots: Positions) -> Floats:
        """The sums over the counts at slots, rounded once; `ask_means` comes first."""
        self._refresh(slots)
        return self._cache.at("means", slots)

    def _refresh(self, slots: Positions) -> None:
        """Compute what is asked for at slots where there is no valid value yet."""
        slots = self._cache.missing(slots)
        if len(slots) == 0:
            return
        if self._counts is None:
            rounded = self.sums.doubles(slots)[np.newaxis]
        else:
            counts = np.maximum(self._counts.at(slots), 1)
            both = self._cache.asked("sums")
            rounded = self.sums.both(slots, counts) if both else self.sums.means(slots, counts)[np.newaxis]
        if self._odd.size:
            odd = self._odd.data[slots] > 0
            rounded[:, odd[:, 1]] = np.inf
            rounded[:, odd[:, 2]] = -np.inf
            rounded[:, odd[:, 0] | (odd[:, 1] & odd[:, 2])] = np.nan
        self._cache.put(slots, rounded)

    def odd(self, slots: Positions) -> Bools:
        """Where a value is NaN or infinite."""
        if not self._odd.size:
            return np.zeros(len(slots), np.bool_)
        return np.asarray((self._odd.data[slots] > 0).any(axis=1), np.bool_)


class _Rounded:
    """Sums and means that were read since they last changed: a tick reads every touched group twice. It is no state."""

    __slots__ = ("_columns", "_valid")

    def __init__(self) -> None:
        self._columns: dict[str, Floats] = {}  # sums before means
        self._valid = np.zeros(0, np.bool_)

    def ask(self, name: str) -> None:
        """Hold sums, or means."""
        names = [other for other in ("sums", "means") if other == name or other in self._columns]
        self._columns = {other: np.zeros(len(self._valid)) for other in names}

    def asked(self, name: str) -> bool:
        """Whether it holds sums, or means."""
        return name in self._columns

    def reserve(self, size: int) -> None:
        """Make room for slots below `size`."""
        have = len(self._valid)
        if self._columns and size > have:
            room = max(size, 2 * have if have < 1 << 16 else have + have // 8)
            # The one that says how long they are comes last: memory may end in between.
            for column in self._columns.values():
                column.resize(room, refcheck=False)
            self._valid.resize(room, refcheck=False)

    def forget(self, slots: Positions) -> None:
        """The values of slots are old."""
        if self._columns:
            self._valid[slots] = False

    def clear(self) -> None:
        """Let no value be valid."""
        self._valid[:] = False

    def missing(self, slots: Positions) -> Positions:
        """The slots that have no valid values."""
        stale = (~self._valid[slots]).nonzero()[0]
        return slots if len(stale) == len(slots) else slots[stale]

    def put(self, slots: Positions, values: Floats) -> None:
        """Store a row of values for each column."""
        for column, row in zip(self._columns.values(), values, strict=True):
            column[slots] = row
        self._valid[slots] = True

    def at(self, name: str, slots: Positions) -> Floats:
        """Sums or means at slots."""
        return self._columns[name][slots]

    def memory(self) -> int:
        return int(self._valid.nbytes + sum(column.nbytes for column in self._columns.values()))


class IntegerSumPart(IntegerSums):
    """The exact sum of an integer or interval column."""

    __slots__ = ()

    def update(self, rows: Rows) -> None:
        self.add(rows.touched, rows.groups, integers(rows.columns[0]), rows.weights)


class DecimalSumPart(DecimalSums):
    """The exact sum of a decimal column."""

    __slots__ = ()

    def update(self, rows: Rows) -> None:
        self.add(rows.touched, rows.groups, decimal_words(rows.columns[0]), rows.weights)


class MultisetPart(Composite):
    """All values (or rows) of each group, counted, in order."""

    __slots__ = ("changed", "values")

    def __init__(self, values: Multiset) -> None:
        self.values = values
        self.changed: Run | None = None

    def states(self) -> Iterator[tuple[str, State]]:
        yield "values", self.values

    def reserve(self, size: int) -> None:
        """Nothing is stored by slot."""

    def update(self, rows: Rows) -> None:
        self.changed = self.values.stage(rows.slots, rows.columns, rows.weights)

    def merge(self, other: Self, slots: Positions, others: Positions) -> None:
        read = other.values.read(others)
        self.changed = self.values.stage(slots[read.groups], read.columns, read.counts)

    def read(self, slots: Positions) -> GroupRows:
        """All values of the groups at slots, in order."""
        return self.values.read(slots)

    def commit(self) -> None:
        super().commit()
        self.changed = None

    def rollback(self) -> None:
        super().rollback()
        self.changed = None


def count_of(parts: Parts, chosen: Selection) -> CountPart:
    """The shared count of a selection's rows."""
    return parts.share(chosen, CountPart, "count")


def float_sum_of(parts: Parts, chosen: Selection, *columns: int) -> FloatSumPart:
    """The shared exact sum of a float argument, or of the product of two."""
    return parts.share(chosen, lambda: FloatSumPart(*columns), "float sum", *columns)


def multiset_of(parts: Parts, chosen: Selection, keys: Sequence[SortKey] = ()) -> MultisetPart:
    """The shared counted rows of a selection, in the order of keys over its columns."""
    order = tuple(keys) or (SortKey(0),)
    return parts.share(chosen, lambda: MultisetPart(multiset(parts.kinds(chosen), order)), "multiset", order)
