"""Keys of any width: no tick pays for a large join or copy, which go on where they were when they are saved in the middle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.state.heap import Heap
from penstock.state.limits import LIMITS
from penstock.state.slots import Slots
from penstock.state.text_writer import TextWriter
from seed import SEED
from twin.faults import broken_at
from twin.rigs import image_bits, through_bytes
from twin.rows import small_state
from twin.tick import end_tick

TEXT = pa.large_string()
LIST = pa.list_(pa.int64())
TICK = 1_000
MOST = 12 << 20  # bytes that are copied in a tick: those of 100,000 keys


def keys(first: int, amount: int, kind: pa.DataType) -> pa.Array:
    """Keys of some 130 bytes."""
    numbers = np.arange(first, first + amount)
    if kind == TEXT:
        return pa.array([f"{number:120}" for number in numbers.tolist()], kind)
    return pa.ListArray.from_arrays(np.arange(0, 16 * amount + 1, 16, dtype=np.int32), np.repeat(numbers, 16))


class Copied:
    """Bytes of keys that are copied."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.size = 0
        concat, append, take = pa.concat_arrays, TextWriter.append, Heap.take

        def counted_concat(chunks: Any, *options: Any) -> pa.Array:
            joined = concat(chunks, *options)
            self.size += joined.nbytes
            return joined

        def counted_append(writer: TextWriter, piece: pa.Array) -> None:
            self.size += piece.nbytes
            append(writer, piece)

        def counted_take(heap: Heap, addresses: Any) -> pa.Array:
            values = take(heap, addresses)
            self.size += values.nbytes
            return values

        patch.setattr(pa, "concat_arrays", counted_concat)
        patch.setattr(TextWriter, "append", counted_append)
        patch.setattr(Heap, "take", counted_take)

    def by(self, action: Callable[[], None]) -> int:
        before = self.size
        action()
        return self.size - before


@pytest.mark.parametrize("kind", [TEXT, LIST], ids=str)
def test_no_tick_pays_for_a_large_join(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    slots, copied = Slots([kind]), Copied(monkeypatch)
    slots.resolve([keys(0, 300_000, kind)])
    end_tick(slots)
    by_tick = []
    for number in range(100):
        slots.resolve([keys(300_000 + number * TICK, TICK, kind)])
        slots.commit()
        by_tick.append(copied.by(partial(slots.maintain, LIMITS.fuel)))
    size = slots.keys(slots.live())[0].nbytes
    assert max(by_tick) < MOST < size // 2
    if kind == TEXT:
        assert sum(by_tick) > size, "and all of them were joined in the end"
    for first in (0, 299_500, 399_000):
        some = keys(first, 1_000, kind)
        assert slots.keys(slots.find([some]))[0].equals(some)


@pytest.mark.parametrize("kind", [TEXT, LIST], ids=str)
def test_no_tick_pays_for_a_copy_of_all_live_keys(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    live, ticks = 200_000, 300
    slots, copied = Slots([kind]), Copied(monkeypatch)
    slots.resolve([keys(0, live, kind)])
    end_tick(slots)
    size = slots.keys(slots.live())[0].nbytes
    sizes, by_tick = [], []
    for number in range(ticks):
        slots.release(slots.find([keys(number * TICK, TICK, kind)]))
        slots.resolve([keys(live + number * TICK, TICK, kind)])
        slots.commit()
        by_tick.append(copied.by(partial(slots.maintain, LIMITS.fuel)))
        sizes.append(slots.memory())
    assert max(by_tick) < MOST < size // 2
    assert sizes[-1] < 0.8 * max(sizes), "and what was dead has gone in the end"
    wanted = keys(ticks * TICK, live, kind)
    assert (slots.find([wanted]) >= 0).all()
    assert slots.keys(slots.find([wanted]))[0].equals(wanted)
    assert (slots.find([keys(0, ticks * TICK, kind)]) == -1).all()


class Keys:
    """Keys that come and go, and what they should be."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.slots = Slots([kind, pa.int64()])
        self.live: list[int] = []
        self._next = 0

    def tick(self, new: int, gone: int) -> None:
        dead, self.live = self.live[:gone], self.live[gone:]
        self.slots.release(self.slots.find(self.columns(dead), len(dead)))
        added = list(range(self._next, self._next + new))
        self._next += new
        self.slots.resolve(self.columns(added), new)
        self.live += added
        self.slots.commit()

    def columns(self, numbers: list[int]) -> list[pa.Array]:
        return [
            pa.array([self._value(number) for number in numbers], self.kind),
            pa.array(numbers, pa.int64()),
        ]

    def _value(self, number: int) -> Any:
        if number % 5 == 0:
            return None
        return f"key {number}" * (number % 3) if self.kind == TEXT else [number] * (number % 3)

    def check(self) -> None:
        found = self.slots.find(self.columns(self.live), len(self.live))
        assert (found >= 0).all()
        assert len(self.slots) == len(self.live)
        for stored, column in zip(self.slots.keys(found), self.columns(self.live), strict=True):
            assert stored.to_pylist() == column.to_pylist()


@pytest.mark.parametrize("kind", [TEXT, LIST], ids=str)
def test_keys_are_saved_in_the_middle_of_joins_and_copies(kind: pa.DataType) -> None:
    middle = set()
    with small_state():
        one, other = Keys(kind), Keys(kind)
        for number in range(120):
            for subject in (one, other):
                subject.tick(3, 0 if number < 20 else 3)
                subject.slots.maintain(LIMITS.fuel)
                subject.check()
            image = other.slots.save()
            heap = image.parts["key 0"].parts["heap"].values
            middle |= {name for name in ("join", "copy", "below") if heap[name] is not None}
            loaded = Slots([kind, pa.int64()])
            loaded.load(through_bytes(image))
            other.slots = loaded
            assert image_bits(loaded.save().parts["key 0"]) == image_bits(one.slots.save().parts["key 0"])
    assert middle == ({"join", "copy", "below"} if kind == TEXT else {"below"})


# A generator is closed while it fails.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", [TEXT, LIST], ids=str)
def test_a_fault_at_any_call_of_joins_and_copies_changes_no_key(kind: pa.DataType) -> None:
    with small_state():
        for start in (18, 23):
            for call in count(1):
                subject = Keys(kind)
                for number in range(start):
                    subject.tick(2, 0 if number < 16 else 2)
                    subject.slots.maintain(LIMITS.fuel)
                subject.tick(2, 2)
                broken = broken_at(call, partial(subject.slots.maintain, LIMITS.fuel))
                subject.slots.resolve(subject.columns([10**6]), 1)
                subject.slots.rollback()
                subject.check()
                for _ in range(4):
                    subject.slots.maintain(LIMITS.fuel)
                    subject.tick(2, 2)
                subject.check()
                if not broken:
                    break


@pytest.mark.parametrize("saved", [False, True])
def test_a_copy_of_no_value_takes_no_address(saved: bool) -> None:
    """All keys are dead: what comes next has the addresses behind them, also when that is saved before the copy ends."""
    heap = Heap(TEXT)
    heap.append(pa.array(["x", "y"], TEXT))
    heap.commit()
    heap.begin_copy(0)
    start = heap.append(pa.array(["a", "b"], TEXT))
    heap.commit()
    if saved:
        other = Heap(TEXT)
        other.load(through_bytes(heap.save()))
        heap = other
    heap.end_copy()
    assert heap.take(np.arange(start, start + 2)).to_pylist() == ["a", "b"]
    heap.begin_copy(1)
    assert heap.take(heap.copy(np.array([start + 1]))).to_pylist() == ["b"]


@pytest.mark.parametrize("kind", [TEXT, LIST], ids=str)
def test_any_history_of_keys_maintenance_and_saving(kind: pa.DataType) -> None:
    """All keys may die at once, maintenance may be left out, and any moment may be saved."""
    draw = Random(SEED)
    for _ in range(40):
        with small_state():
            keys_of = Keys(kind)
            for _ in range(60):
                live = len(keys_of.live)
                keys_of.tick(
                    draw.choice([0, 0, 1, 3, 9]), draw.choice([0, min(1, live), min(3, live), live, live])
                )
                if draw.random() < 0.8:
                    keys_of.slots.maintain(LIMITS.fuel)
                if draw.random() < 0.4:
                    loaded = Slots([kind, pa.int64()])
                    loaded.load(through_bytes(keys_of.slots.save()))
                    keys_of.slots = loaded
                keys_of.check()
