"""Sources: what they take, what they refuse, and that a refused tick leaves no trace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.errors import DataError
from penstock.operators import source as module
from penstock.operators.source import Source
from twin.collisions import weakened
from twin.rows import (
    MASKS,
    Multiset,
    Row,
    add,
    delta_of,
    deltas,
    examples,
    multiset,
    pairs,
    small_state,
    types_of,
)
from twin.tick import end_tick

TICK = Tick(1, 0)
NAMES = ("id", "name")
TYPES = (pa.int64(), pa.large_string())


def rows(*items: tuple[Row, int]) -> Delta:
    return delta_of(items, TYPES)


def tick(source: Source, *items: tuple[Row, int]) -> Multiset:
    delta = source.step([rows(*items)], TICK)
    end_tick(source)
    return multiset(delta)


def plain(**options: Any) -> Source:
    return Source("people", NAMES, TYPES, **options)


def keyed(**options: Any) -> Source:
    return plain(primary_key=(0,), **options)


def test_rows_come_and_go() -> None:
    source = plain()
    assert tick(source, ((1, "a"), 1), ((1, "a"), 1), ((2, "b"), 1), ((2, "b"), -1)) == {(1, "a"): 2}
    assert tick(source, ((1, "a"), -1)) == {(1, "a"): -1}
    assert multiset(source.rows()) == {(1, "a"): 1}
    assert source.memory() > 0
    assert tick(source) == {}


def test_a_missing_row_rejects_the_tick_and_names_it() -> None:
    source = plain()
    tick(source, ((1, "a"), 1))
    with pytest.raises(DataError) as caught:
        source.step([rows(((5, "e"), 1), ((2, None), -1), ((1, "a"), -2))], TICK)
    source.rollback()
    assert caught.value.code == "DATA_MISSING_ROW"
    assert "2 retracted rows" in caught.value.message
    assert "(id=2, name=NULL)" in caught.value.message
    assert "'people'" in caught.value.message
    assert multiset(source.rows()) == {(1, "a"): 1}
    assert tick(source, ((1, "a"), -1)) == {(1, "a"): -1}


def test_missing_rows_go_to_quarantine() -> None:
    source = plain(on_missing="quarantine")
    tick(source, ((1, "a"), 2))
    assert tick(source, ((5, "e"), 1), ((2, None), -1), ((1, "a"), -3)) == {(5, "e"): 1, (1, "a"): -2}
    assert multiset(source.missing) == {(2, None): -1, (1, "a"): -1}
    assert tick(source, ((6, "f"), 1)) == {(6, "f"): 1}
    assert len(source.missing) == 0
    assert multiset(source.rows()) == {(5, "e"): 1, (6, "f"): 1}


def test_quarantine_is_forgotten_with_its_tick() -> None:
    source = plain(on_missing="quarantine")
    source.step([rows(((2, None), -1))], TICK)
    assert len(source.missing) == 1
    source.rollback()
    assert len(source.missing) == 0


def test_an_insert_of_a_known_key_replaces_its_row() -> None:
    source = keyed()
    assert tick(source, ((1, "a"), 1), ((2, "b"), 1)) == {(1, "a"): 1, (2, "b"): 1}
    assert tick(source, ((1, "c"), 1)) == {(1, "a"): -1, (1, "c"): 1}
    assert tick(source, ((1, "c"), 1)) == {}
    assert tick(source, ((2, None), -1)) == {(2, "b"): -1}
    assert multiset(source.rows()) == {(1, "c"): 1}
    assert multiset(source.lookup([pa.array([1, 2])])) == {(1, "c"): 1}


def test_the_last_insert_of_a_key_wins() -> None:
    source = keyed()
    assert tick(source, ((1, "x"), 1), ((1, "z"), 1), ((1, "y"), 1)) == {(1, "y"): 1}
    assert tick(source, ((1, "z"), 1), ((1, "y"), 1), ((1, "z"), 1)) == {(1, "y"): -1, (1, "z"): 1}


def test_events_of_a_key_are_taken_in_order() -> None:
    source = keyed()
    assert tick(source, ((1, "a"), 1), ((1, None), -1)) == {}
    assert tick(source, ((1, "a"), 1)) == {(1, "a"): 1}
    assert tick(source, ((1, None), -1), ((1, "b"), 1)) == {(1, "a"): -1, (1, "b"): 1}
    assert tick(source, ((1, "c"), 1), ((1, None), -1)) == {(1, "b"): -1}


def test_an_update_and_its_negative_are_inverse_in_any_order() -> None:
    source = keyed()
    tick(source, ((1, "old"), 1))
    for update in ([((1, "old"), -1), ((1, "new"), 1)], [((1, "new"), 1), ((1, "old"), -1)]):
        assert tick(source, *update) == {(1, "old"): -1, (1, "new"): 1}
        assert tick(source, *((row, -weight) for row, weight in update)) == {(1, "new"): -1, (1, "old"): 1}


def test_a_missing_key_is_refused() -> None:
    source = keyed()
    tick(source, ((1, "a"), 1))
    with pytest.raises(DataError, match="id=2"):
        source.step([rows(((2, "x"), -1))], TICK)
    source.rollback()
    with pytest.raises(DataError, match="id=3"):
        source.step([rows(((3, "x"), -1), ((3, "y"), 1))], TICK)
    source.rollback()
    lenient = keyed(on_missing="quarantine")
    assert tick(lenient, ((3, "x"), -1), ((3, "y"), 1)) == {(3, "y"): 1}
    assert multiset(lenient.missing) == {(3, "x"): -1}


def test_null_in_a_key_is_refused() -> None:
    source = keyed()
    with pytest.raises(DataError, match=r"NULL in the primary key.*name='n'") as caught:
        source.step([rows(((1, "a"), 1), ((None, "n"), 1))], TICK)
    assert caught.value.code == "DATA_NULL_KEY"


def test_only_used_columns_are_kept() -> None:
    types = (pa.int64(), pa.large_string(), pa.large_string())
    source = Source("people", ("id", "name", "note"), types, retained=(0,))
    assert source.columns == (0,)

    def change(*items: tuple[Row, int]) -> Multiset:
        delta = source.step([delta_of(items, types)], TICK)
        end_tick(source)
        return multiset(delta)

    assert change(((1, "a", "x"), 1), ((1, "b", "y"), 1)) == {(1,): 2}
    with pytest.raises(DataError, match="note='z'"):
        source.step([delta_of([((1, "a", "z"), -1)], types)], TICK)
    source.rollback()
    assert change(((1, "a", "x"), -1)) == {(1,): -1}
    assert multiset(source.rows()) == {(1,): 1}
    with_key = Source("people", ("id", "name", "note"), types, primary_key=(0,), retained=(0, 2))
    with_key.step([delta_of([((1, "a", "x"), 1)], types)], TICK)
    end_tick(with_key)
    assert multiset(with_key.step([delta_of([((1, "b", "x"), 1)], types)], TICK)) == {}
    end_tick(with_key)
    assert multiset(with_key.step([delta_of([((1, "b", "w"), 1), ((1, "b", "x"), -1)], types)], TICK)) == {
        (1, "x"): -1,
        (1, "w"): 1,
    }


@pytest.mark.parametrize("many", [1, module._MANY])
@pytest.mark.parametrize("used", [None, (1, 0)])
@examples(30)
@given(data=st.data(), mask=st.sampled_from(MASKS))
def test_a_source_is_its_multiset(
    data: st.DataObject, mask: int, used: tuple[int, ...] | None, many: int
) -> None:
    names = ("bigint", "double")
    with weakened(mask), small_state(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MANY", many)
        source = Source("s", ("a", "b"), types_of(names), retained=used)
        total: Multiset = {}
        for delta in data.draw(st.lists(deltas(names), max_size=6)):
            changed = add(total.items(), pairs(delta))
            if any(weight < 0 for weight in changed.values()):
                with pytest.raises(DataError):
                    source.step([delta], TICK)
                source.rollback()
                continue
            emitted = source.step([delta], TICK)
            end_tick(source)
            expected = multiset(delta)
            if used:
                expected = add(((row[1], row[0]), weight) for row, weight in expected.items())
            assert multiset(emitted) == expected
            total = changed
            kept = total if not used else add(((row[1], row[0]), weight) for row, weight in total.items())
            assert multiset(source.rows()) == kept


def settle(stored: dict[int, str | None], events: Iterable[tuple[Row, int]]) -> dict[int, str | None] | None:
    """The naive twin of a keyed source: the rows after a batch, or None when it must be refused."""
    result = dict(stored)
    inserted: set[int] = set()
    listed = [event for event in events if event[1]]
    for at, ((key, value), weight) in enumerate(listed):
        if weight > 0:
            result[key] = value
            inserted.add(key)
            continue
        if key not in stored and key not in inserted:
            return None
        if any(row[0] == key and count > 0 for (row, count) in listed[at + 1 :]):
            continue
        last = [row[1] for row, count in listed[:at] if row[0] == key and count > 0]
        if not (last and key in stored and value == stored[key] and last[-1] != value):
            result.pop(key, None)
    return result


@examples(60)
@given(data=st.data(), mask=st.sampled_from(MASKS))
def test_a_keyed_source_is_its_dictionary(data: st.DataObject, mask: int) -> None:
    event = st.tuples(st.tuples(st.integers(0, 2), st.sampled_from([None, "a", "b"])), st.integers(-1, 1))
    with weakened(mask), small_state():
        source = keyed()
        stored: dict[int, str | None] = {}
        for events in data.draw(st.lists(st.lists(event, max_size=6), max_size=5)):
            expected = settle(stored, events)
            if expected is None:
                with pytest.raises(DataError):
                    source.step([rows(*events)], TICK)
                source.rollback()
                continue
            emitted = source.step([rows(*events)], TICK)
            end_tick(source)
            after = dict.fromkeys(expected.items(), 1)
            before = ((item, -1) for item in stored.items())
            assert multiset(emitted) == add(after.items(), before)
            assert multiset(source.rows()) == after
            stored = expected
