"""BIT_AND, BIT_OR, BIT_XOR: how often each bit is set.

Invertible. State: 8 bytes per bit and group. Cost: delta times the width of the type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np

from penstock.data.arrays import Ints, Positions
from penstock.functions.aggregates.base import Function, Parts, Rows, integers, selection
from penstock.functions.aggregates.parts import count_of
from penstock.functions.aggregates.result import Numbers
from penstock.plan.node import AggregateCall
from penstock.state.slot_array import SlotArray
from penstock.state.state import Composite, State


class BitPart(Composite):
    """Counts of set bits."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._counts = SlotArray(np.int64, width)

    def states(self) -> Iterator[tuple[str, State]]:
        yield "bits", self._counts

    def reserve(self, size: int) -> None:
        self._counts.reserve(size)

    def update(self, rows: Rows) -> None:
        old = self._counts.data[rows.touched]
        new = old.copy()
        values, flat = integers(rows.columns[0]), new.reshape(-1)
        for bit in range(self._width):
            is_set = (values >> np.int64(bit)) & np.int64(1)
            np.add.at(flat, rows.groups * self._width + bit, is_set * rows.weights)
        self._counts.put(rows.touched, new, old)

    def merge(self, other: Self, slots: Positions, others: Positions) -> None:
        old = self._counts.data[slots]
        self._counts.put(slots, old + other._counts.data[others], old)

    def at(self, slots: Positions) -> Ints:
        """One row of counts per slot."""
        return self._counts.data[slots]


class _Bits:
    def __init__(self, call: AggregateCall, parts: Parts, mode: str) -> None:
        chosen = selection(call)
        self._kind = parts.types[call.args[0]]
        self._mode = mode
        self._count = count_of(parts, chosen)
        self._bits = parts.share(chosen, lambda: BitPart(self._kind.bit_width), "bits")

    def result(self, slots: Positions) -> Numbers:
        total, counts = self._count.at(slots), self._bits.at(slots)
        if self._mode == "and":
            chosen = counts == total[:, None]
        else:
            chosen = (counts & np.int64(1)) == 1 if self._mode == "xor" else counts > 0
        powers = np.uint64(1) << np.arange(counts.shape[1], dtype=np.uint64)
        words = np.where(chosen, powers, np.uint64(0)).sum(axis=1, dtype=np.uint64)
        return Numbers(words.astype(f"u{self._kind.bit_width // 8}"), total > 0, self._kind)


def make_and(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `bit_and`."""
    return _Bits(call, parts, "and")


def make_or(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `bit_or`."""
    return _Bits(call, parts, "or")


def make_xor(call: AggregateCall, parts: Parts) -> Function:
    """Spark's `bit_xor`."""
    return _Bits(call, parts, "xor")
