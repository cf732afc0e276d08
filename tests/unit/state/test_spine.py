"""Spines against a dictionary: look-ups, versions, merges in small steps, bulk loads."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.delta import Delta
from penstock.state.arrangement import Arrangement
from penstock.state.merge import Merge, merge_runs
from penstock.state.run import Run, find, make_run, row_words, sort_run
from penstock.state.spine import Spine, SpineVersion
from twin.collisions import weakened
from twin.rows import (
    MASKS,
    Multiset,
    add,
    canonical,
    delta_of,
    deltas,
    examples,
    histories,
    multiset,
    pairs,
    small_state,
    types_of,
)
from twin.tick import end_tick

SHAPES = [
    (("bigint", "string"), (0,)),
    (("double", "bool", "decimal"), (0, 2)),
    (("list", "bigint"), (0,)),
    (("map", "struct"), None),
    (("double", "string"), None),
    (("bigint", "bigint"), ()),
]


def check_version(version: SpineVersion, expected: Multiset, probes: Delta) -> None:
    assert multiset(version.rows()) == expected
    assert len(version.rows()) == len(expected)
    keys = range(len(version.types)) if version.keys is None else version.keys
    left, found = version.lookup([probes.columns[key] for key in keys], len(probes))
    whole = version.keys is None
    rows = [row for row, _ in pairs(probes)]
    naive = add(
        ((at, *stored), weight)
        for at, row in enumerate(rows)
        for stored, weight in expected.items()
        if all(canonical(row[key], whole) == canonical_key(stored[key], whole) for key in keys)
    )
    got = add(((at, *row), weight) for at, (row, weight) in zip(left.tolist(), pairs(found), strict=True))
    assert got == naive


def canonical_key(stored: object, whole: bool) -> object:
    """A stored value is canonical as a row already; as a key its two zeros are one."""
    if whole:
        return stored
    if isinstance(stored, tuple):
        return tuple(canonical_key(item, whole) for item in stored)
    return 0.0 if stored == "-0.0" else stored


@pytest.mark.parametrize(("names", "keys"), SHAPES)
@examples(15)
@given(data=st.data(), mask=st.sampled_from(MASKS))
def test_a_spine_is_its_multiset(
    data: st.DataObject, names: tuple[str, ...], keys: tuple[int, ...] | None, mask: int
) -> None:
    with weakened(mask), small_state():
        spine = Spine(types_of(names), keys)
        total: Multiset = {}
        for delta in data.draw(st.lists(deltas(names), max_size=5)):
            probes = data.draw(deltas(names, most=4))
            if data.draw(st.booleans(), label="fails first"):
                spine.stage(data.draw(deltas(names)))
                spine.rollback()
            spine.stage(delta)
            changed = add(total.items(), multiset(delta).items())
            assert multiset(spine.before().rows()) == total
            check_version(spine.after(), changed, probes)
            end_tick(spine)
            total = changed
            check_version(spine.before(), total, probes)
            assert spine.count == sum(total.values())
        spine.compact()
        assert multiset(spine.before().rows()) == total
        assert spine.before().entries == len(total)


@pytest.mark.parametrize(("names", "keys"), SHAPES)
@examples(15)
@given(data=st.data(), mask=st.sampled_from(MASKS))
def test_merging_adds_up(
    data: st.DataObject, names: tuple[str, ...], keys: tuple[int, ...] | None, mask: int
) -> None:
    with weakened(mask), small_state():
        parts = [data.draw(deltas(names, most=20)) for _ in range(data.draw(st.integers(1, 5)))]
        merged = merge_runs([sort_run(row_words(part.columns, keys, len(part)), part) for part in parts])
    assert multiset(merged.delta()) == multiset(*parts)
    assert len(merged) == len(multiset(*parts))
    assert all(x <= y for x, y in pairwise(merged.words.tolist()))
    with weakened(mask):
        assert (row_words(merged.columns, keys, len(merged)) == merged.words).all()


def big_run(count: int, *, first: int = 0, step: int = 1, weight: int = 1) -> Run:
    ids = np.arange(first, first + count * step, step)
    texts = pa.array([None if at % 5 == 0 else f"row {at}" for at in ids.tolist()], pa.large_string())
    delta = Delta((pa.array(ids), texts), np.full(count, weight, np.int64))
    return sort_run(row_words(delta.columns, (0,), count), delta)


def test_a_merge_stops_when_its_fuel_is_spent() -> None:
    older, newer = big_run(180_000), big_run(30_000, first=120_000, step=4, weight=-1)
    merge = Merge([older, newer])
    rounds = 0
    while not merge.advance(40_000):
        rounds += 1
        assert merge.memory() < older.memory() + newer.memory()
    assert rounds >= 3
    merged = merge.result(0)
    ids = np.sort(merged.columns[0].to_numpy()[np.asarray(merged.weights) == 1])
    gone = set(range(120_000, 180_000, 4))
    assert ids.tolist() == [at for at in range(180_000) if at not in gone]
    assert np.count_nonzero(merged.weights == -1) == 30_000 - len(gone)
    assert merged.table is not None


def test_offset_tables_find_what_binary_search_finds() -> None:
    run = big_run(210_000)
    assert run.table is not None
    plain = replace(run, table=None)
    inside = np.random.default_rng(1).choice(run.words, 500)
    outside = np.random.default_rng(2).integers(0, 2**64 - 1, 500, np.uint64)
    low = np.sort(np.concatenate([inside, outside, run.words[:1], run.words[-1:], [np.uint64(0)]]))
    for high in (low, low | np.uint64(0xFFFFFFFF)):
        for with_table, without in zip(find(run, low, high), find(plain, low, high), strict=True):
            assert with_table.tolist() == without.tolist()


def test_weights_grow_past_a_byte_and_past_an_int() -> None:
    types = [pa.int64()]
    spine = Spine(types, (0,))
    for weight in (100, 100, 2**31, 2**40):
        spine.stage(delta_of([((1,), weight)], types))
        end_tick(spine)
    assert multiset(spine.before().rows()) == {(1,): 200 + 2**31 + 2**40}
    assert spine.count == 200 + 2**31 + 2**40


def test_merges_widen_weights_on_the_way() -> None:
    types = [pa.int64()]
    with small_state():
        runs = []
        for weight in (100, 1000):
            delta = delta_of([((at,), weight if at > 20 else 100) for at in range(30)], types)
            runs.append(sort_run(row_words(delta.columns, (0,), 30), delta))
        merged = merge_runs(runs)
    assert multiset(merged.delta()) == {(at,): 1100 if at > 20 else 200 for at in range(30)}


def test_churn_leaves_few_runs_and_no_dead_rows() -> None:
    spine = Spine([pa.int64(), pa.int64()], (0,))
    generator = np.random.default_rng(3)

    def tick(ids: np.ndarray, weight: int) -> None:
        spine.stage(Delta((pa.array(ids), pa.array(ids * 2)), np.full(len(ids), weight, np.int64)))
        end_tick(spine)

    alive = np.arange(50_000)
    tick(alive, 1)
    for round_ in range(60):
        gone = generator.choice(alive, 1_000, replace=False)
        fresh = np.arange(1_000) + 50_000 + round_ * 1_000
        tick(gone, -1)
        tick(fresh, 1)
        alive = np.concatenate([np.setdiff1d(alive, gone), fresh])
    version = spine.before()
    assert spine.count == 50_000
    assert len(version.runs) <= 8
    assert version.entries < 2.5 * 50_000
    assert sorted(version.rows().columns[0].to_pylist()) == sorted(alive.tolist())
    assert spine.memory() < 4 * 50_000 * 25


def test_one_key_of_many_rows_merges_in_steps() -> None:
    with small_state():
        types = [pa.int64(), pa.int64()]
        deltas_ = [delta_of([((None, at), 1) for at in range(start, start + 40)], types) for start in (0, 20)]
        runs = [sort_run(row_words(delta.columns, (0,), len(delta)), delta) for delta in deltas_]
        merge = Merge(runs)
        assert not merge.advance(10)
        assert not merge.advance(10)


def test_an_arrangement_is_read_before_and_after() -> None:
    arrangement = Arrangement([pa.int64(), pa.large_string()], (0,))
    assert arrangement.keys == (0,)
    arrangement.apply(delta_of([((1, "a"), 1)], arrangement.types))
    end_tick(arrangement)
    arrangement.apply(delta_of([((1, "a"), -1), ((1, "b"), 1), ((None, "c"), 1)], arrangement.types))
    key = [pa.array([None, 1], pa.int64())]
    assert multiset(arrangement.before().lookup(key, 2)[1]) == {(1, "a"): 1}
    assert multiset(arrangement.after().lookup(key, 2)[1]) == {(1, "b"): 1, (None, "c"): 1}
    arrangement.rollback()
    assert multiset(arrangement.after().rows()) == {(1, "a"): 1}
    assert arrangement.count == 1
    assert arrangement.memory() > 0
    empty = Arrangement([pa.int64()], None).before()
    assert len(empty.rows()) == 0
    assert len(empty.lookup([pa.array([1])], 1)[0]) == 0


def test_zeros_meet_as_keys_and_not_as_rows() -> None:
    types = [pa.float64()]
    for keys, expected in (((0,), 2), (None, 1)):
        spine = Spine(types, keys)
        spine.stage(delta_of([((0.0,), 1), ((-0.0,), 1), ((math.nan,), 1)], types))
        end_tick(spine)
        left, _ = spine.before().lookup([pa.array([-0.0, math.nan])], 2)
        assert sorted(left.tolist()) == [0] * expected + [1]


@examples(20)
@given(history=histories(("bigint", "string"), ticks=6))
def test_a_version_that_was_read_does_not_change(history: list[Delta]) -> None:
    with small_state():
        spine = Spine(types_of(("bigint", "string")), (0,))
        versions: list[tuple[SpineVersion, Multiset]] = []
        total: Multiset = {}
        for delta in history:
            spine.stage(delta)
            end_tick(spine)
            total = add(total.items(), pairs(delta))
            versions.append((spine.before(), total))
        for version, expected in versions:
            assert multiset(version.rows()) == expected


def test_empty_runs_are_harmless() -> None:
    none = make_run(np.zeros(0, np.uint64), [pa.array([], pa.int64())], np.zeros(0, np.int8))
    some = big_run(3)
    assert len(find(none, some.words, some.words)[0]) == 0
    spine = Spine([pa.int64()], (0,))
    spine.stage(delta_of([((1,), 1), ((1,), -1)], [pa.int64()]))
    end_tick(spine)
    end_tick(spine)
    assert spine.before().runs == ()
