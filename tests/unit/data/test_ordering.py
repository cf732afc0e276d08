"""Order-preserving words and row sorting against Python's own comparison."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.data.ordering import (
    compare_words,
    decode,
    encode,
    is_fixed,
    prefix,
    prefix_words,
    rank_rows,
    sort_rows,
)
from penstock.plan.node import SortKey

NAN = float("nan")
TIME = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "tinyint": (pa.int8(), [-128, -1, 0, 1, 127]),
    "int": (pa.int32(), [-(2**31), -5, 0, 7, 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1]),
    "float": (pa.float32(), [NAN, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 1e-45]),
    "double": (pa.float64(), [NAN, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 1e300, -1e300]),
    "decimal": (pa.decimal128(10, 2), [decimal.Decimal(v) for v in ("-1.50", "0.00", "0.01", "99999999.99")]),
    "wide decimal": (
        pa.decimal128(38, 0),
        [decimal.Decimal(v) for v in (-(10**37), -1, 0, 1, 2**64, 10**37)],
    ),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        [TIME, TIME - dt.timedelta(days=30000), TIME + dt.timedelta(1)],
    ),
    "string": (pa.large_string(), ["", "a", "a\0", "ab", "abcdefgh", "abcdefghi", "é", "z", "日本", "😀"]),
    "binary": (pa.large_binary(), [b"", b"\0", b"\xff", b"abcdefgh\0", b"abcdefgh"]),
    "array": (pa.list_(pa.int64()), [[], [1], [1, None], [1, 2], [2]]),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.large_string())]),
        [{"a": 1, "b": None}, {"a": 1, "b": "x"}, {"a": None, "b": "z"}],
    ),
}


def plain(value: Any) -> Any:
    """A Python key in Spark's order, for values that are not NULL."""
    if isinstance(value, float):
        return (1, 0.0) if value != value else (0, value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [(0,) if item is None else (1, plain(item)) for item in value]
    return value


def compare(left: Any, right: Any, key: SortKey) -> int:
    if left is None or right is None:
        found = (right is None) - (left is None)
        return found if key.nulls_first else -found
    a, b = plain(left), plain(right)
    found = (a > b) - (a < b)
    return -found if key.descending else found


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_rows_sort_as_spark_sorts_them(name: str, descending: bool, nulls_first: bool) -> None:
    kind, values = VALUES[name]
    shuffled = random.Random(1)
    rows = [*values, None] * 4
    shuffled.shuffle(rows)
    tie = list(range(len(rows)))
    shuffled.shuffle(tie)
    key = SortKey(0, descending, nulls_first)
    columns = [pa.array(rows, kind), pa.array(tie, pa.int64())]
    found = sort_rows(columns, [key]).tolist()

    def by_value(a: int, b: int) -> int:
        return compare(rows[a], rows[b], key) or tie[a] - tie[b]

    expected = sorted(range(len(rows)), key=functools.cmp_to_key(by_value))
    # -0.0 and 0.0 are equal to Spark; the whole row then decides.
    if name in ("float", "double"):
        assert [plain(rows[at]) if rows[at] is not None else None for at in found] == [
            plain(rows[at]) if rows[at] is not None else None for at in expected
        ]
    else:
        assert found == expected
    words = prefix(columns, [key])
    in_order = list(zip(*(word[found].tolist() for word in words), strict=True))
    assert in_order == sorted(in_order)
    assert len(words) == prefix_words([kind, pa.int64()], [key])


@pytest.mark.parametrize("name", [name for name, (kind, _) in VALUES.items() if is_fixed(kind)])
def test_words_give_values_back(name: str) -> None:
    kind, values = VALUES[name]
    column = pa.array([*values, None], kind).slice(1)
    back = decode(
        encode(column, merge_zeros=False), kind, np.array([v is not None for v in column.to_pylist()])
    )
    assert [repr(value) for value in back.to_pylist()] == [repr(value) for value in column.to_pylist()]


def test_groups_come_first_and_peers_share_a_class() -> None:
    groups = np.array([2, 1, 2, 1, 2])
    columns = [pa.array([5, 3, 5, 1, 4]), pa.array(["b", "x", "a", "y", "c"], pa.large_string())]
    order, peers = rank_rows(columns, [SortKey(0)], groups)
    assert order.tolist() == [3, 1, 4, 2, 0]
    assert [peers[i] == peers[i + 1] for i in range(4)] == [False, False, False, True]
    order, peers = rank_rows(columns, [], groups)
    assert [peers[i] == peers[i + 1] for i in range(4)] == [True, False, True, True]
    assert order.tolist() == [3, 1, 4, 2, 0]


def test_the_whole_row_breaks_ties_even_of_zeros_maps_and_nulls() -> None:
    maps = pa.array([[("b", 1), ("a", 2)], [("a", 1)], None], pa.map_(pa.large_string(), pa.int64()))
    assert sort_rows([maps], []).tolist() == [2, 1, 0]
    zeros = pa.array([0.0, -0.0, 0.0])
    assert sort_rows([zeros], [SortKey(0)]).tolist() == [1, 0, 2]
    nothing = pa.nulls(2)
    assert sort_rows([nothing, pa.array([2, 1])], [SortKey(0)]).tolist() == [1, 0]
    assert sort_rows([pa.array([], pa.int64())], [SortKey(0)]).tolist() == []


def test_many_random_rows() -> None:
    rng = random.Random(2)
    rows = [
        (rng.choice([None, 1, 2, 3]), rng.choice([None, "a", "b", "aa"]), rng.choice([0.5, NAN, -1.0, None]))
        for _ in range(500)
    ]
    keys = [SortKey(1, True, False), SortKey(0, False, False)]
    columns = [
        pa.array([row[i] for row in rows], kind)
        for i, kind in enumerate((pa.int64(), pa.large_string(), pa.float64()))
    ]
    whole = [*keys, SortKey(0), SortKey(1), SortKey(2)]

    def by_keys(a: tuple[Any, ...], b: tuple[Any, ...]) -> int:
        return next((c for k in whole if (c := compare(a[k.column], b[k.column], k))), 0)

    expected = sorted(rows, key=functools.cmp_to_key(by_keys))
    order = sort_rows(columns, keys)
    found = [rows[at] for at in order]
    in_order = list(zip(*(word[order].tolist() for word in prefix(columns, keys)), strict=True))
    assert in_order == sorted(in_order)
    assert repr(found) == repr(expected)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_rows_of_words_compare_as_tuples(width: int) -> None:
    random_words = np.random.default_rng(width)
    left, right = random_words.integers(0, 3, (2, width, 500)).astype(np.uint64)
    less, equal = compare_words(left, right)
    pairs = list(zip(zip(*left.tolist(), strict=True), zip(*right.tolist(), strict=True), strict=True))
    assert less.tolist() == [one < other for one, other in pairs]
    assert equal.tolist() == [one == other for one, other in pairs]
