"""The hash of rows: stable, blind to layout, equal for what Spark groups together."""

from __future__ import annotations

import datetime
import decimal
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.hashing import (
    MOST_SHARDS,
    canonical_keys,
    canonical_pairs,
    hash_rows,
    hash_wide,
    shard_of,
    tells_apart,
)
from penstock.state import slots
from penstock.state.run import row_words
from twin.collisions import weakened

D = decimal.Decimal
SAMPLES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None, True]),
    "tinyint": (pa.int8(), [-1, 0, None, 127]),
    "int": (pa.int32(), [-5, 0, None, 2**31 - 1]),
    "bigint": (pa.int64(), [-5, 0, None, 2**63 - 1]),
    "float": (pa.float32(), [1.5, math.nan, None, -math.inf]),
    "double": (pa.float64(), [1.5, math.nan, None, -0.0]),
    "decimal": (pa.decimal128(20, 2), [D("1.10"), D("-3.25"), None, D("99999999999999.99")]),
    "date": (pa.date32(), [datetime.date(2024, 2, 29), datetime.date(1969, 1, 1), None, None]),
    "timestamp": (pa.timestamp("us", "UTC"), [0, 1_700_000_000_000_000, None, -1]),
    "string": (pa.large_string(), ["", "a", None, "eight by", "nine bytes", "ü" * 40, "long " * 60]),
    "binary": (pa.large_binary(), [b"", b"\0", None, b"\0\0", b"12345678" * 20]),
    "list": (pa.large_list(pa.int64()), [[], [1], None, [1, None], [None, 1], [2, 1]]),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.large_string())]),
        [{"a": 1, "b": "x"}, None, {"a": None, "b": None}, {"a": 1, "b": None}],
    ),
    "map": (pa.map_(pa.large_string(), pa.int64()), [[], None, [("a", 1), ("b", 2)], [("a", 2), ("b", 1)]]),
    "void": (pa.null(), [None, None]),
    "smallint": (pa.int16(), [-5, 0, None, 2**15 - 1]),
    "wide decimal": (pa.decimal128(38, 0), [D(10**37), D(-1), None, D(0)]),
    "timestamp_ntz": (pa.timestamp("us"), [0, 1_700_000_000_000_000, None, -1]),
    "interval of days": (pa.duration("us"), [0, 86_400_000_000, None, -1]),
    "nested list": (
        pa.large_list(pa.large_list(pa.float64())),
        [[], [[]], None, [[0.0, math.nan], None], [[-0.0, math.nan], None]],
    ),
    "list of structs": (
        pa.large_list(pa.struct([("a", pa.decimal128(10, 2))])),
        [[{"a": D("1.10")}], [None], None, [{"a": None}]],
    ),
    "map of lists": (
        pa.map_(pa.int64(), pa.large_list(pa.large_string())),
        [[(1, ["x", None])], [(1, None)], None, [(2, []), (1, ["y"])]],
    ),
}

# What the hash gave when the state format was fixed; a change here breaks every saved state.
GOLDEN: dict[str, list[Any]] = {
    "bool": [2529863805897459961, 7702444535040731170, 314446321636222473, 2529863805897459961],
    "tinyint": [6566748642544568926, 7702444535040731170, 314446321636222473, 9774454022234237039],
    "int": [4031003308148213398, 7702444535040731170, 314446321636222473, 15424440335548884175],
    "bigint": [4031003308148213398, 7702444535040731170, 314446321636222473, 14796025918420004722],
    "float": [8159540132907139434, 6115321934501400012, 314446321636222473, 1151586885799236715],
    "double": [8159540132907139434, 6115321934501400012, 314446321636222473, 7702444535040731170],
    "decimal": [3439652139692430627, 6139671699822658902, 314446321636222473, 17806426943648069345],
    "date": [7508981747307260169, 5135242075572009693, 314446321636222473, 314446321636222473],
    "timestamp": [7702444535040731170, 10018461565213295722, 314446321636222473, 6566748642544568926],
    "string": [
        7702444535040731170,
        4271598311027978878,
        314446321636222473,
        16656285965493128772,
        6482364410695449053,
        12011183398666685619,
        1096281846960598531,
    ],
    "binary": [
        7702444535040731170,
        6011280517404692672,
        314446321636222473,
        421683839694441021,
        14950099502999775541,
    ],
    "list": [
        7702444535040731170,
        3490385629232651759,
        314446321636222473,
        13655769412107057719,
        7226418941995409551,
        163808970094465960,
    ],
    "struct": [14152714152603407544, 314446321636222473, 5686174651046672208, 442085874825320475],
    "map": [7702444535040731170, 314446321636222473, 17117907997958756519, 2027885221627131845],
    "void": [314446321636222473, 314446321636222473],
    "smallint": [4031003308148213398, 7702444535040731170, 314446321636222473, 10830221307476628974],
    "wide decimal": [13014552837038744567, 4947330019314968169, 314446321636222473, 7702444535040731170],
    "timestamp_ntz": [7702444535040731170, 10018461565213295722, 314446321636222473, 6566748642544568926],
    "interval of days": [7702444535040731170, 8724012748307198449, 314446321636222473, 6566748642544568926],
    "nested list": [
        7702444535040731170,
        8373996748984571065,
        314446321636222473,
        6526206164615358237,
        6526206164615358237,
    ],
    "list of structs": [971012074840296141, 6734419269011551622, 314446321636222473, 17041901917458959526],
    "map of lists": [2956171573818272235, 16028073852365897153, 314446321636222473, 5061791935849552793],
    "wide": [[14246912503046394266, 6523594721932515892], [7731720769731372399, 8185228117989088477]],
}

# The shards of these samples, of 8 and of 100, when the state format was fixed; a change here moves rows of saved state.
SHARDS: dict[str, tuple[list[int], list[int]]] = {
    "bool": ([0, 5, 6, 0], [88, 61, 70, 88]),
    "tinyint": ([0, 5, 6, 4], [40, 61, 70, 64]),
    "int": ([6, 5, 6, 3], [34, 61, 70, 3]),
    "bigint": ([6, 5, 6, 2], [34, 61, 70, 2]),
    "float": ([0, 1, 6, 0], [64, 21, 70, 24]),
    "double": ([0, 1, 6, 5], [64, 21, 70, 61]),
    "decimal": ([1, 1, 6, 7], [17, 77, 70, 95]),
    "date": ([1, 6, 6, 6], [29, 50, 70, 70]),
    "timestamp": ([5, 6, 6, 0], [61, 58, 70, 40]),
    "string": ([5, 7, 6, 2, 4, 1, 5], [61, 95, 70, 42, 68, 57, 29]),
    "binary": ([5, 5, 6, 0, 1], [61, 13, 70, 88, 37]),
    "list": ([5, 7, 6, 7, 3, 1], [61, 27, 70, 79, 31, 85]),
    "struct": ([1, 6, 6, 1], [25, 70, 86, 65]),
    "map": ([5, 6, 4, 0], [61, 70, 60, 80]),
    "void": ([6, 6], [70, 70]),
    "smallint": ([6, 5, 6, 7], [34, 61, 70, 63]),
    "wide decimal": ([2, 3, 6, 5], [86, 67, 70, 61]),
    "timestamp_ntz": ([5, 6, 6, 0], [61, 58, 70, 40]),
    "interval of days": ([5, 6, 6, 0], [61, 30, 70, 40]),
    "nested list": ([5, 5, 6, 4, 4], [61, 93, 70, 8, 8]),
    "list of structs": ([1, 1, 6, 7], [13, 49, 70, 3]),
    "map of lists": ([0, 3, 6, 7], [60, 75, 70, 71]),
}


def hashes(kind: pa.DataType, values: list[Any]) -> list[int]:
    return [int(value) for value in hash_rows([pa.array(values, kind)])]


@pytest.mark.parametrize("name", SAMPLES)
def test_hashes_never_change(name: str) -> None:
    kind, values = SAMPLES[name]
    assert hashes(kind, values) == GOLDEN[name]


def test_the_wide_hash_never_changes() -> None:
    low, high = hash_wide([pa.array([1, None]), pa.array(["x", "y"])])
    assert [[int(a), int(b)] for a, b in zip(low, high, strict=True)] == GOLDEN["wide"]


@pytest.mark.parametrize("name", SAMPLES)
def test_shards_never_change(name: str) -> None:
    kind, values = SAMPLES[name]
    hashed = hash_rows([pa.array(values, kind)])
    assert (shard_of(hashed, 8).tolist(), shard_of(hashed, 100).tolist()) == SHARDS[name]
    assert shard_of(hashed, 65_536).tolist() == [(int(value) >> 24) & 0xFFFF for value in hashed]
    assert shard_of(hashed, 1).tolist() == [0] * len(values)


def test_the_shard_of_several_columns_never_changes() -> None:
    hashed = hash_rows([pa.array([1, None, 3]), pa.array(["x", "y", None])])
    assert shard_of(hashed, 8).tolist() == [2, 6, 0]


def test_another_process_gives_the_same_hash() -> None:
    code = "import pyarrow as pa; from penstock.data.hashing import hash_rows; print(hash_rows([pa.array(['a', None])])[0])"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(process.stdout) == hashes(pa.large_string(), ["a"])[0]


@pytest.mark.parametrize("name", SAMPLES)
def test_layout_does_not_matter(name: str) -> None:
    kind, values = SAMPLES[name]
    array = pa.array(values, kind)
    expected = hash_rows([array])
    padded = pa.concat_arrays([pa.array(values[-1:], kind), array, pa.array(values[:1], kind)])
    assert (hash_rows([padded.slice(1, len(values))]) == expected).all()
    one_by_one = [hash_rows([array.slice(at, 1)])[0] for at in range(len(array))]
    assert (np.array(one_by_one) == expected).all()
    valid = [value for value in values if value is not None]
    if valid:
        without_bitmap = pa.array(valid, kind)
        with_bitmap = pa.array([*valid, None], kind).slice(0, len(valid))
        assert (hash_rows([without_bitmap]) == hash_rows([with_bitmap])).all()


def test_chunks_of_long_columns_hash_alike() -> None:
    values = pa.array([f"row {at}" * (at % 5) for at in range(70_001)], pa.large_string())
    hashed = hash_rows([values])
    assert (hash_rows([values.slice(40_000, 10)]) == hashed[40_000:40_010]).all()
    assert len(np.unique(hashed)) == len(set(values.to_pylist()))


def test_text_types_of_any_width_hash_alike() -> None:
    values = ["", "short", None, "a text of more than sixteen bytes", "x" * 300]
    expected = hashes(pa.large_string(), values)
    assert hashes(pa.string(), values) == expected
    assert hashes(pa.string_view(), values) == expected
    assert (
        hashes(pa.binary(), [value.encode() if value is not None else None for value in values]) == expected
    )


def test_short_and_long_texts_use_one_formula() -> None:
    short = ["", "a", "12345678", "123456789"]
    assert hashes(pa.large_string(), [*short, "y" * 500])[:4] == hashes(pa.large_string(), short)


def test_integers_hash_by_value() -> None:
    assert hashes(pa.int32(), [-7, 3]) == hashes(pa.int64(), [-7, 3]) == hashes(pa.int8(), [-7, 3])


def test_zeros_and_nans_are_one_value() -> None:
    payload = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF8000000000000], np.uint64).view(
        np.float64
    )
    assert len(set(hash_rows([pa.array(payload)]))) == 1
    assert len(set(hashes(pa.float64(), [0.0, -0.0]))) == 1
    assert len(set(hashes(pa.large_list(pa.float64()), [[0.0], [-0.0]]))) == 1


def test_maps_hash_without_order() -> None:
    kind = pa.map_(pa.large_string(), pa.int64())
    first, second, other = hashes(kind, [[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 2), ("b", 1)]])
    assert first == second != other


def test_nested_values_under_null_do_not_count() -> None:
    lists = pa.ListArray.from_arrays([0, 2, 2], pa.array([1, 2]), mask=pa.array([True, False]))
    assert hash_rows([lists])[0] == hashes(pa.list_(pa.int64()), [None])[0]


def test_positions_of_columns_count() -> None:
    a, b = pa.array([1, 2]), pa.array([2, 1])
    assert (hash_rows([a, b]) != hash_rows([b, a])).all()
    assert hash_rows([a, b])[0] == hash_rows([b, a])[1]


def test_no_columns_hash_to_one_constant() -> None:
    assert len(hash_rows([], 3)) == 3
    assert len(set(hash_rows([], 3))) == 1
    assert len(hash_rows([])) == 0
    assert len(hash_rows([pa.array([], pa.large_string())])) == 0


def test_hashes_spread_over_all_bits() -> None:
    hashed = hash_rows([pa.array(range(100_000))])
    assert len(np.unique(hashed)) == 100_000
    assert np.bincount((hashed >> np.uint64(56)).astype(np.int64), minlength=256).max() < 600


def test_types_that_cannot_be_hashed_are_named() -> None:
    with pytest.raises(TypeError, match="dictionary"):
        hash_rows([pa.array(["a"]).dictionary_encode()])


@pytest.mark.parametrize("name", SAMPLES)
def test_the_words_of_a_run_have_the_shards_of_their_keys(name: str) -> None:
    kind, values = SAMPLES[name]
    key, other = pa.array(values, kind), pa.array(range(len(values)))
    by_key = row_words([other, key], [1], len(values))
    by_row = row_words([key, other], None, len(values))
    for shards in (2, 3, 8, 100, MOST_SHARDS):
        assert (shard_of(by_key, shards) == shard_of(hash_rows([key]), shards)).all()
        assert (shard_of(by_row, shards) == shard_of(hash_rows([key, other]), shards)).all()


def test_many_words_have_the_shards_of_their_keys() -> None:
    keys, texts = pa.array(np.arange(70_000) % 9_001), pa.array([f"{at}" for at in range(70_000)])
    words = row_words([texts, keys], [1, 0], 70_000)
    assert (shard_of(words, 100) == shard_of(hash_rows([keys, texts]), 100)).all()


# The 0.999 quantile of chi-square for shards - 1 degrees of freedom: hashes are fixed, so that nothing is left to chance.
CHI_SQUARE = {2: 10.8, 3: 13.8, 8: 24.3, 100: 148.2}
KEYS = {
    "numbers in a row": pa.array(range(200_000)),
    "multiples of 1024": pa.array(np.arange(200_000) * 1_024),
    "texts": pa.array([f"customer-{at}" for at in range(200_000)]),
    "doubles": pa.array(np.arange(200_000) / 8),
    "decimals": pa.array(range(200_000)).cast(pa.decimal128(38, 2)),
    "lists": pa.ListArray.from_arrays(np.arange(0, 400_001, 2), pa.array(range(400_000))),
}


@pytest.mark.parametrize("shards", CHI_SQUARE)
@pytest.mark.parametrize("name", KEYS)
def test_shards_are_even(name: str, shards: int) -> None:
    hashed = hash_rows([KEYS[name]])
    counts = np.bincount(shard_of(hashed, shards), minlength=shards)
    expected = len(hashed) / shards
    assert ((counts - expected) ** 2 / expected).sum() < CHI_SQUARE[shards]


@pytest.mark.parametrize("shards", [2, 3, 7, 100, 655, 1_000, 40_000, MOST_SHARDS])
def test_shards_have_equal_parts_of_the_bits(shards: int) -> None:
    every_value = np.arange(65_536, dtype=np.uint64) << np.uint64(24)
    counts = np.bincount(shard_of(every_value, shards), minlength=shards)
    smallest = 65_536 // shards
    assert counts.min() == smallest
    assert counts.max() - smallest == (65_536 % shards > 0)
    if shards <= 655:
        assert counts.max() <= 1.01 * smallest


def test_other_bits_do_not_choose_the_shard() -> None:
    outside = np.array([0, 0xFFFFFF, 0xFFFFFF0000000000, 0xFFFFFF0000FFFFFF], np.uint64)
    assert shard_of(outside, MOST_SHARDS).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("shards", [-1, 0, MOST_SHARDS + 1])
def test_a_number_of_shards_that_cannot_be_is_refused(shards: int) -> None:
    with pytest.raises(ValueError, match="1 to 65,536"):
        shard_of(np.zeros(1, np.uint64), shards)


def test_keys_have_one_order() -> None:
    assert canonical_keys([2, 0, 1]) == canonical_keys([1, 2, 0, 1]) == (0, 1, 2)
    assert canonical_keys([]) == ()


def test_pairs_follow_the_left_column_then_the_right_one() -> None:
    first = canonical_pairs((3, 1, 1), (0, 5, 2), (True, False, False))
    assert (first.left, first.right, first.null_safe) == ((1, 1, 3), (2, 5, 0), (False, False, True))
    assert canonical_pairs((1, 3, 1, 3), (2, 0, 5, 0), (False, True, False, True)) == first
    assert canonical_pairs((), ()).left == ()


def test_both_inputs_of_a_join_have_the_shard_of_a_key() -> None:
    left = [pa.array([1, None, 3]), pa.array(["x", "y", None])]
    right = [pa.array(["x", "y", None], pa.string()), pa.array([1, None, 3], pa.int32())]
    pairs = canonical_pairs((1, 0), (0, 1))
    by_left = hash_rows([left[at] for at in pairs.left])
    by_right = hash_rows([right[at] for at in pairs.right])
    assert (shard_of(by_left, 100) == shard_of(by_right, 100)).all()


def test_tests_can_weaken_hashes() -> None:
    column = pa.array([1, 2, 3])
    strong = hash_rows([column])
    with weakened(0xFF00):
        weak = hash_rows([column])
        assert (vars(slots)["hash_rows"]([column]) == weak).all()
        assert (weak == strong & np.uint64(0xFF00)).all()
        assert not tells_apart([column])
    assert (hash_rows([column]) == strong).all()
    assert (vars(slots)["hash_rows"]([column]) == strong).all()
    assert tells_apart([column])
