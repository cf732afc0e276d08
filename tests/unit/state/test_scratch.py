"""Scratch files and the arrays in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.delta import Delta
from penstock.errors import StateError
from penstock.state.column_writer import ListWriter
from penstock.state.merge import Merge, merge_runs
from penstock.state.run import Run, row_words, sort_run
from penstock.state.scratch import Scratch, using, with_room
from penstock.state.slot_array import SlotArray
from twin.rows import small_state
from twin.scratch import FullDisk, tiny_scratch


def test_an_array_in_a_scratch_file_grows_where_it_is(tmp_path: Path) -> None:
    array, expected = SlotArray(np.int64, 3), np.zeros((0, 3), np.int64)
    scratch = tiny_scratch(tmp_path)
    for size in (10, 300, 70_000, 200_000):
        array.reserve(size)
        rows = np.arange(len(expected) * 3, size * 3).reshape(-1, 3)
        array.append(len(expected), rows)
        array.commit()
        expected = np.concatenate([expected, rows])
        for piece in array.pieces():
            piece.move(scratch)
        assert array.mapped() == array.memory() == expected.nbytes
        assert (array.data[:size] == expected).all()
        assert not array.data[size:].any()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_in_the_middle_of_a_tick_is_an_error_that_can_be_taken_back(tmp_path: Path) -> None:
    disk = FullDisk(3)
    array = SlotArray(np.int64)
    array.reserve(10)
    array.append(0, np.arange(10))
    array.commit()
    for piece in array.pieces():
        piece.move(tiny_scratch(tmp_path, disk))
    with pytest.raises(StateError, match="No space left") as refused:
        array.reserve(5_000)
    assert (refused.value.code, refused.value.where) == ("FLOW_SCRATCH", str(tmp_path))
    array.rollback()
    assert array.size == 10
    array.reserve(5_000)
    array.append(10, np.arange(10, 5_000))
    assert (array.data[:5_000] == np.arange(5_000)).all()


def vectors(count: int, *, first: int, width: int, nulls: bool) -> Run:
    """Lists of numbers by their ids: of one length, of several, and NULLs among them."""
    ids = np.arange(first, first + count)
    lists = [
        None if nulls and at % 7 == 0 else [at + part / 4 for part in range(width or at % 5)]
        for at in ids.tolist()
    ]
    delta = Delta((pa.array(lists, pa.large_list(pa.float64())), pa.array(ids)), np.ones(count, np.int64))
    return sort_run(row_words(delta.columns, (1,), count), delta)


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("width", [0, 3])
def test_lists_of_numbers_are_merged_in_scratch_files(width: int, nulls: bool, tmp_path: Path) -> None:
    runs = [vectors(3_000, first=first, width=width, nulls=nulls) for first in (0, 2_000, 4_500)]
    expected = merge_runs(runs).delta()
    scratch = tiny_scratch(tmp_path)
    with small_state():
        in_memory, moved = Merge(runs), Merge(runs)
        with using(scratch):
            in_files = Merge(runs)
        merges, rounds = (in_memory, moved, in_files), 0
        while not in_memory.finished:
            for merge in merges:
                merge.advance(500)
            rounds += 1
            if rounds == 3:
                moved.move(scratch)
        assert rounds > 5
    assert (in_memory.is_mapped, moved.is_mapped, in_files.is_mapped) == (False, True, True)
    for merge in merges:
        assert isinstance(merge._columns[0], ListWriter)
        result = merge.result(1)
        for column, other in zip(result.columns, expected.columns, strict=True):
            column.validate(full=True)
            assert column == other
        assert (result.weights == expected.weights).all()


def test_room_is_promised_until_the_budget_is_used_up(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, 1_000, least=100)
    assert with_room(10**9) is None
    with using(scratch):
        assert with_room(600) is None
        assert with_room(600) is scratch
        assert with_room(99) is None
        assert with_room(300) is None
        assert with_room(100) is scratch
    assert scratch.resident == 999
