"""The parts that most aggregate functions share: counts, sums, counted values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.data.column_view import Positions
from penstock.data.ordering import Key
from penstock.functions.aggregates.base import Ints, Parts, Rows, Selection, doubles, integers
from penstock.functions.exact import DecimalSums, FloatSums, IntegerSums, decimal_words
from penstock.plan.node import SortKey
from penstock.state.dense import Dense
from penstock.state.multiset import Multiset, Read, multiset
from penstock.state.sorted_runs import Run


class CountPart:
    """The number of rows."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = Dense(np.int64)

    def reserve(self, size: int) -> None:
        self.values.reserve(size)

    def update(self, rows: Rows) -> None:
        self.values.touch(rows.touched)
        np.add.at(self.values.data, rows.slots, rows.weights)

    def at(self, slots: Positions) -> Ints:
        """The counts at slots."""
        return self.values.data[slots]

    def commit(self) -> None:
        self.values.commit()

    def rollback(self) -> None:
        self.values.rollback()

    def memory(self) -> int:
        return self.values.memory()


class FloatSumPart:
    """The exact sum of a float column, or of the product of two; NaN and the infinities are counted apart."""

    __slots__ = ("_columns", "_counts", "_known", "_means", "_odd", "_read", "_size", "_touched", "sums")

    def __init__(self, *columns: int) -> None:
        self._columns = columns
        self.sums = FloatSums(products=len(columns) == 2)
        self._odd: Dense | None = None
        self._size = 0
        # What was read since it last changed: a tick reads every touched group twice.
        self._read: Dense | None = None
        self._means: Dense | None = None
        self._known = Dense(np.bool_)
        self._counts: CountPart | None = None
        self._touched = np.zeros(0, np.int64)

    def ask_sums(self) -> None:
        """Be ready to give sums."""
        self._read = self._read or Dense(np.float64)

    def ask_means(self, counts: CountPart) -> None:
        """Be ready to give sums over these counts."""
        self._means, self._counts = self._means or Dense(np.float64), counts

    def _kept(self) -> Iterator[Dense]:
        if self._read is not None:
            yield self._read
        if self._means is not None:
            yield self._means

    def reserve(self, size: int) -> None:
        self._size = size
        self.sums.reserve(size)
        if self._odd is not None:
            self._odd.reserve(size)
        for kept in self._kept():
            kept.reserve(size)
            self._known.reserve(size)

    def update(self, rows: Rows) -> None:
        self._forget(rows.touched)
        factors = [doubles(rows.columns[index]) for index in self._columns]
        finite = np.isfinite(factors[0])
        if len(factors) == 2:
            finite &= np.isfinite(factors[1])
        if finite.all():
            self.sums.update(rows.slots, rows.touched, factors, rows.weights)
            return
        slots, weights = rows.slots[finite], rows.weights[finite]
        self.sums.update(slots, rows.touched, [factor[finite] for factor in factors], weights)
        if len(factors) == 1:
            self._count_odd(rows, factors[0], ~finite)

    def _count_odd(self, rows: Rows, values: npt.NDArray[np.float64], odd: npt.NDArray[np.bool_]) -> None:
        if self._odd is None:
            self._odd = Dense(np.int64, 3)
            self._odd.reserve(self._size)
        self._odd.touch(rows.touched)
        values = values[odd]
        which = np.where(np.isnan(values), 0, np.where(values > 0, 1, 2))
        np.add.at(self._odd.data.reshape(-1), rows.slots[odd] * 3 + which, rows.weights[odd])

    def put(self, limbs: Ints, odd: Ints | None, outside: dict[int, int]) -> None:
        """Set the sums of the first slots: their limbs, how often NaN, +inf and -inf count, and what lies outside of the limbs."""
        self.sums.put(limbs, outside)
        if odd is not None:
            self._odd = Dense(np.int64, 3)
            self._odd.reserve(max(self._size, len(odd)))
            self._odd.data[: len(odd)] = odd

    def _forget(self, touched: Positions) -> None:
        self._touched = touched
        if self._read is not None or self._means is not None:
            self._known.data[touched] = False

    def doubles(self, slots: Positions) -> npt.NDArray[np.float64]:
        """The sums at slots, rounded once; `ask_sums` comes first."""
        assert self._read is not None
        self._refresh(slots)
        return self._read.data[slots]

    def means(self, slots: Positions) -> npt.NDArray[np.float64]:
        """The sums over the counts at slots, rounded once; `ask_means` comes first."""
        assert self._means is not None
        self._refresh(slots)
        return self._means.data[slots]

    def _refresh(self, slots: Positions) -> None:
        """Compute what is asked for at slots where it is not known."""
        missing = (~self._known.data[slots]).nonzero()[0]
        if len(missing) == 0:
            return
        slots = slots if len(missing) == len(slots) else slots[missing]
        if self._counts is None:
            found = self.sums.doubles(slots)[np.newaxis]
        else:
            counts = np.maximum(self._counts.at(slots), 1)
            found = (
                self.sums.means(slots, counts)[np.newaxis]
                if self._read is None
                else self.sums.both(slots, counts)
            )
        if self._odd is not None:
            odd = self._odd.data[slots] > 0
            found[:, odd[:, 1]] = np.inf
            found[:, odd[:, 2]] = -np.inf
            found[:, odd[:, 0] | (odd[:, 1] & odd[:, 2])] = np.nan
        for kept, values in zip(self._kept(), found, strict=True):
            kept.data[slots] = values
        self._known.data[slots] = True

    def odd(self, slots: Positions) -> npt.NDArray[np.bool_]:
        """Where a value is NaN or infinite."""
        if self._odd is None:
            return np.zeros(len(slots), np.bool_)
        return np.asarray((self._odd.data[slots] > 0).any(axis=1), np.bool_)

    def commit(self) -> None:
        self.sums.commit()
        if self._odd is not None:
            self._odd.commit()

    def rollback(self) -> None:
        self.sums.rollback()
        if self._odd is not None:
            self._odd.rollback()
        self._forget(self._touched)

    def memory(self) -> int:
        kept = sum(dense.memory() for dense in self._kept())
        return (
            self.sums.memory()
            + self._known.memory()
            + kept
            + (0 if self._odd is None else self._odd.memory())
        )


class IntegerSumPart(IntegerSums):
    """The exact sum of an integer or interval column."""

    __slots__ = ()

    def update(self, rows: Rows) -> None:  # type: ignore[override]  # takes the rows of a selection
        super().update(rows.slots, rows.touched, integers(rows.columns[0]), rows.weights)


class DecimalSumPart(DecimalSums):
    """The exact sum of a decimal column."""

    __slots__ = ()

    def update(self, rows: Rows) -> None:  # type: ignore[override]  # takes the rows of a selection
        super().update(rows.slots, rows.touched, decimal_words(rows.columns[0]), rows.weights)


class MultisetPart:
    """All values (or rows) of each group, counted, in order."""

    __slots__ = ("changed", "held")

    def __init__(self, kinds: Sequence[pa.DataType], keys: Sequence[Key]) -> None:
        self.held: Multiset = multiset(kinds, keys)
        self.changed: Run | None = None

    def reserve(self, size: int) -> None:
        """Nothing is kept by slot."""

    def update(self, rows: Rows) -> None:
        self.changed = self.held.stage(rows.slots, rows.columns, rows.weights)

    def read(self, slots: Positions) -> Read:
        """All values of the groups at slots, in order."""
        return self.held.read(slots)

    def commit(self) -> None:
        self.changed = None
        self.held.commit()

    def rollback(self) -> None:
        self.changed = None
        self.held.rollback()

    def memory(self) -> int:
        return self.held.memory()


def count_of(parts: Parts, chosen: Selection) -> CountPart:
    """The shared count of a selection's rows."""
    return parts.share(chosen, CountPart, "count")


def float_sum_of(parts: Parts, chosen: Selection, *columns: int) -> FloatSumPart:
    """The shared exact sum of a float argument, or of the product of two."""
    return parts.share(chosen, lambda: FloatSumPart(*columns), "float sum", *columns)


def multiset_of(parts: Parts, chosen: Selection, keys: Sequence[SortKey] = ()) -> MultisetPart:
    """The shared counted rows of a selection, in the order of keys over its columns."""
    order = tuple(keys) or (SortKey(0),)
    return parts.share(chosen, lambda: MultisetPart(parts.kinds(chosen), order), "multiset", order)
