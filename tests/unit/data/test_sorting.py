"""The order of words against NumPy's own stable sort."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.data import sorting
from penstock.data.equality import group_rows
from penstock.data.hashing import hash_rows, tells_apart
from penstock.data.ordering import sort_positions
from penstock.data.sorting import order_words
from twin.collisions import weakened

RANDOM = np.random.default_rng(3)
COUNTS = [0, 1, 2, 2_047, 2_048, 20_000, 600_000]


def words(kind: str, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    anything = RANDOM.integers(0, 2**64, count, dtype=np.uint64)
    match kind:
        case "random":
            return anything
        case "keys with rows":
            keys = anything[: count // 10 + 1] & np.uint64(0xFFFFFFFFFF000000)
            return keys[RANDOM.integers(0, max(len(keys), 1), count)] | (anything & np.uint64(0xFFFFFF))
        case "one key":
            return (anything & np.uint64(0xFFFFFF)) | np.uint64(0xABCDEF0000000000)
        case "one huge part":
            return np.where(anything & np.uint64(7) > 0, anything >> np.uint64(30), anything)
        case "few values":
            return anything & np.uint64(0x8000000000000003)
        case _:
            return np.full(count, 5, np.uint64)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "kind", ["random", "keys with rows", "one key", "one huge part", "few values", "all equal"]
)
def test_words_are_ordered_and_equal_ones_keep_their_order(kind: str, count: int) -> None:
    given = words(kind, count)
    order, ordered = order_words(given)
    assert (order == np.argsort(given, kind="stable")).all()
    assert (ordered == given[order]).all()


def test_parts_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "_PACK_FROM", 4)
    monkeypatch.setattr(sorting, "_PART_FROM", 8)
    for kind in ("random", "keys with rows", "one huge part", "few values"):
        given = words(kind, 3_000)
        assert (order_words(given)[0] == np.argsort(given, kind="stable")).all()


@pytest.mark.parametrize("count", [300, 5_000, 100_000])
@pytest.mark.parametrize("groups", [1, 7, 100_000])
@pytest.mark.parametrize("values", [3, 2**64])
def test_several_columns_are_sorted(count: int, groups: int, values: int) -> None:
    first = RANDOM.integers(0, groups, count)
    second = RANDOM.integers(0, values, count, dtype=np.uint64)
    ids = RANDOM.integers(0, count // 2, count)
    for keys in ((first, second), (first, second, ids), (first, second.view(np.int64), second, ids)):
        order = sort_positions(keys)
        expected = np.lexsort(tuple(reversed(keys)))
        assert all((key[order] == key[expected]).all() for key in keys)
    wide = first + (1 << 62) * (first % 2)
    assert (wide[sort_positions((wide, second))] == np.sort(wide)).all()


@pytest.mark.parametrize("mask", [3, 0xFFF0000000000000, 0xFFFFFFFFFFFFFFFF])
@pytest.mark.parametrize("distinct", [1, 40, 30_000])
def test_rows_of_one_hash_stay_different(mask: int, distinct: int) -> None:
    values = RANDOM.integers(0, distinct, 3_000 if mask == 3 else 30_000)
    column = pa.array([None if value == 1 else value for value in values.tolist()])
    with weakened(mask):
        order, starts = group_rows(hash_rows([column]), [column])
        assert tells_apart([column]) == (distinct == 1 and mask == 0xFFFFFFFFFFFFFFFF)
    groups = np.split(values[order], starts[1:])
    assert len(groups) == len(np.unique(values))
    assert all((group == group[0]).all() for group in groups)
    assert all((np.diff(part) > 0).all() for part in np.split(order, starts[1:]))


def test_only_the_hash_of_one_integer_decides() -> None:
    numbers = pa.array([1, 2, 3])
    assert tells_apart([numbers])
    assert tells_apart([numbers.cast(pa.timestamp("us"))])
    assert not tells_apart([numbers, numbers])
    for column in (pa.array([1, None]), pa.array([1.5]), pa.array(["a"]), numbers.cast(pa.decimal128(20, 0))):
        assert not tells_apart([column])


@pytest.mark.parametrize("mask", [0x3, 0xC000000000000000, 0xFFFFFFFFFFFFFFFF])
@pytest.mark.parametrize("count", [0, 1, 1_000, 150_000])
def test_order_of_hashes_is_ascending_and_stable(mask: int, count: int) -> None:
    with weakened(mask):
        values = hash_rows([pa.array(np.arange(count) % (count // 2 + 1))])
    assert (order_words(values)[0] == np.argsort(values, kind="stable")).all()


def test_order_repairs_ties_of_the_high_bits() -> None:
    values = np.repeat(np.arange(50_000, dtype=np.uint64) << np.uint64(40), 3)
    values += np.tile(np.array([2, 0, 1], np.uint64), 50_000)
    assert (order_words(values)[0] == np.argsort(values, kind="stable")).all()
