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

from penstock.data.hashing import hash_rows, hash_wide

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
    "wide": [[14246912503046394266, 6523594721932515892], [7731720769731372399, 8185228117989088477]],
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


def test_another_process_gives_the_same_hash() -> None:
    code = "import pyarrow as pa; from penstock.data.hashing import hash_rows; print(hash_rows([pa.array(['a', None])])[0])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(found.stdout) == hashes(pa.large_string(), ["a"])[0]


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
    whole = hash_rows([values])
    assert (hash_rows([values.slice(40_000, 10)]) == whole[40_000:40_010]).all()
    assert len(np.unique(whole)) == len(set(values.to_pylist()))


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
    found = hash_rows([pa.array(range(100_000))])
    assert len(np.unique(found)) == 100_000
    assert np.bincount((found >> np.uint64(56)).astype(np.int64), minlength=256).max() < 600


def test_types_that_cannot_be_hashed_are_named() -> None:
    with pytest.raises(TypeError, match="dictionary"):
        hash_rows([pa.array(["a"]).dictionary_encode()])
