"""Scratch files and the arrays in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.errors import StateError
from penstock.state.scratch import Scratch, using, with_room
from penstock.state.slot_array import SlotArray
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
