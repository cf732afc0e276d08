"""Slot arrays: writes that can be undone, versions that ticks do not change, slots that were written, files that stay as they are."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import StateError
from penstock.state import space
from penstock.state.limits import LIMITS
from penstock.state.slot_array import ChangedSlots, MappedRows, SlotArray
from penstock.state.state import Image


@pytest.mark.parametrize("width", [0, 3])
def test_a_write_is_final_or_undone(width: int) -> None:
    array = SlotArray(np.int64, width)
    array.reserve(300)
    array.commit()
    ones = np.ones((2, width) if width else 2, np.int64)
    array.put(np.array([1, 299]), ones)
    array.commit()
    array.put(np.array([299, 5]), 7 * ones)
    array.put(np.array([299, 1]), 8 * ones)
    array.reserve(400)
    array.append(300, 9 * ones)
    array.rollback()
    assert array.size == 300
    assert array.data[[1, 299]].tolist() == ones.tolist()
    assert not array.data[5].any()
    assert not array.data[300:302].any()


def test_values_are_added_by_group() -> None:
    array = SlotArray(np.int64)
    array.reserve(10)
    before, after = array.add(np.array([3, 7]), np.array([0, 1, 0, 0]), np.array([1, 10, 2, 3]))
    assert before.tolist() == [0, 0]
    assert after.tolist() == [6, 10]
    assert array.data[[3, 7]].tolist() == [6, 10]


def test_growth_moves_nothing_once_space_is_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "RESERVE_FROM", 1 << 12)
    monkeypatch.setattr(space, "RESERVED", 1 << 24)
    array = SlotArray(np.int64, 2)
    array.reserve(1_000)
    first = array.data
    array.put(np.array([999]), np.array([[1, 2]]))
    array.reserve(100_000)
    assert array.data.base is first.base or np.shares_memory(array.data, first)
    assert array.data[999].tolist() == [1, 2]
    array.reserve(3_000_000)  # more than was reserved
    assert not np.shares_memory(array.data, first)
    assert array.data[999].tolist() == [1, 2]
    assert first[999].tolist() == [1, 2]


def test_without_address_space_arrays_grow_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "_reserve", lambda size: None)
    array = SlotArray(np.int64)
    array.reserve(200)
    array.put(np.array([150]), np.array([5]))
    array.reserve(1 << 20)
    assert array.data[150] == 5
    assert not array.data[200:].any()


def test_a_version_stays_what_it_was() -> None:
    array = SlotArray(np.int64)
    array.reserve(10)
    array.put(np.arange(10), np.arange(10))
    array.commit()
    version = array.version()
    array.put(np.array([2, 5]), np.array([20, 50]))
    array.commit()
    later = array.version()
    array.put(np.array([5, 6]), np.array([51, 61]))
    array.rollback()
    array.put(np.array([5]), np.array([52]))
    array.reserve(100)
    array.append(10, np.arange(90))
    array.commit()
    assert version.rows(0, 10).tolist() == list(range(10))
    assert version.rows(4, 6).tolist() == [4, 5]
    assert later.rows(0, 10).tolist() == [0, 1, 20, 3, 4, 50, 6, 7, 8, 9]


def test_nothing_is_kept_for_a_version_that_nobody_has() -> None:
    array = SlotArray(np.int64)
    array.reserve(10)
    version, other = array.version(), array.version()
    array.put(np.array([1]), np.array([1]))
    images = version.images
    del version
    array.put(np.array([2]), np.array([2]))
    array.append(5, np.array([5]))
    assert [slots.tolist() for slots, _ in images] == [[1]]
    assert [slots.tolist() for slots, _ in other.images] == [[1], [2], [5]]


def test_a_version_is_read_while_ticks_write() -> None:
    array = SlotArray(np.int64)
    size = 50_000
    array.reserve(size)
    array.put(np.arange(size), np.arange(size))
    array.commit()
    version = array.version()
    ended = threading.Event()

    def ticks() -> None:
        random = np.random.default_rng(1)
        try:
            for number in range(300):
                slots = random.choice(size, 500, replace=False)
                array.put(slots, np.full(500, -1))
                array.reserve(size + 1_000 * number)
                if number % 3:
                    array.commit()
                else:
                    array.rollback()
        finally:
            ended.set()

    thread = threading.Thread(target=ticks)
    thread.start()
    reads = 0
    while not ended.is_set() or reads < 3:
        assert (version.rows(0, size) == np.arange(size)).all()
        reads += 1
    thread.join()


def test_changed_slots_are_those_of_committed_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "fold_from", 4)
    array = SlotArray(np.int64)
    array.reserve(10)
    array.put(np.array([9]), np.array([1]))
    array.commit()
    assert array.track("one") is None
    array.put(np.array([1, 3]), np.array([1, 1]))
    array.commit()
    array.put(np.array([4, 5]), np.array([1, 1]))
    array.rollback()
    array.maintain(1)
    array.put(np.array([3, 8]), np.array([1, 1]))
    array.reserve(12)
    array.append(10, np.array([1, 1]))
    array.commit()
    array.maintain(1)
    assert array.track("other") is None, "each checkpoint has changes of its own"
    changed = array.track("one")
    assert changed is not None
    assert changed.slots().tolist() == [1, 3, 8, 10, 11]
    array.put(np.array([2]), np.array([1]))
    array.commit()
    for checkpoint in ("one", "other"):
        changed = array.track(checkpoint)
        assert changed is not None
        assert changed.slots().tolist() == [2]


def test_many_changed_slots_are_kept_once() -> None:
    changed = ChangedSlots()
    slots = np.random.default_rng(2).integers(0, 1_000_000, 200_000)
    for part in np.split(slots, 200):
        changed.add(part)
        changed.maintain()
    assert changed.slots().tolist() == np.unique(slots).tolist()


def test_a_commit_needs_no_memory_for_the_changed_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*arguments: Any, **options: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(LIMITS, "fold_from", 4)
    array = SlotArray(np.int64)
    array.reserve(300)
    array.track("one")
    array.put(np.arange(200), np.arange(200))
    with monkeypatch.context() as short:
        for name in ("concatenate", "zeros", "empty"):
            short.setattr(np, name, no_memory)
        array.commit()
        with pytest.raises(MemoryError):
            array.maintain(1)
    array.put(np.array([250]), np.array([1]))
    array.commit()
    array.maintain(1)
    changed = array.track("one")
    assert changed is not None
    assert changed.slots().tolist() == [*range(200), 250]


def load_file(array: SlotArray, path: Path, size: int, slots: Any, rows: Any) -> None:
    """Let an array be the rows of a file, with some slots written over."""
    shape = (size, *array.data.shape[1:])
    most = max(size, int(slots.max()) + 1)
    saved = MappedRows(path, 0, array.data.dtype, shape, most, ((slots, rows),))
    array.load(Image(arrays={"rows": saved}))


@pytest.mark.parametrize("size", [0, 10, 300, 5_000])
def test_a_restored_array_is_a_private_map_of_its_file(size: int, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    saved = np.arange(2 * size, dtype=np.int64).reshape(size, 2)
    saved.tofile(path)
    array = SlotArray(np.int64, 2)
    changed = np.array([size, 3])
    load_file(array, path, size, changed, np.array([[1, 1], [2, 2]]))
    expected = np.zeros((max(size, 3) + 1, 2), np.int64)
    expected[:size] = saved
    expected[changed] = [[1, 1], [2, 2]]
    array.put(np.array([1]), np.array([[7, 7]]))
    array.rollback()
    assert array.size == len(expected)
    assert array.data[: array.size].tolist() == expected.tolist()
    assert not array.data[array.size :].any()
    array.put(np.array([0]), np.array([[9, 9]]))
    array.reserve(100_000)
    array.put(np.array([99_999]), np.array([[8, 8]]))
    array.commit()
    assert array.data[[0, 99_999]].tolist() == [[9, 9], [8, 8]]
    assert np.fromfile(path, np.int64).tolist() == saved.reshape(-1).tolist()


def test_a_rollback_behind_a_load_takes_back_the_tick_alone(tmp_path: Path) -> None:
    loaded, restored = SlotArray(np.int64), SlotArray(np.int64)
    loaded.load(Image(arrays={"rows": np.arange(3)}))
    (tmp_path / "rows").write_bytes(np.arange(2).tobytes())
    load_file(restored, tmp_path / "rows", 2, np.array([2]), np.array([2]))
    for array in (loaded, restored):
        array.put(np.array([1]), 9)
        array.reserve(4)
        array.rollback()
        assert array.data[: array.size].tolist() == [0, 1, 2]


def test_rows_of_another_kind_are_refused() -> None:
    array = SlotArray(np.int64)
    with pytest.raises(StateError, match="int32") as refused:
        array.load(Image(arrays={"rows": np.zeros(3, np.int32)}))
    assert refused.value.code == "STATE_SHAPE"


def test_a_rejected_tick_leaves_what_was_loaded(tmp_path: Path) -> None:
    saved = SlotArray(np.int64)
    saved.reserve(3)
    saved.put(np.arange(3), np.array([4, 5, 6]))
    saved.commit()
    loaded, mapped = SlotArray(np.int64), SlotArray(np.int64)
    loaded.load(saved.save())
    saved.data[:3].tofile(tmp_path / "rows")
    load_file(mapped, tmp_path / "rows", 3, np.array([3]), np.array([7]))
    for array, rows in ((loaded, [4, 5, 6]), (mapped, [4, 5, 6, 7])):
        array.put(np.array([0]), np.array([9]))
        array.rollback()
        assert array.data[: array.size].tolist() == rows
