"""Rows in one canonical form, so that two engines' answers can be compared as text."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

Canonical = tuple[Any, ...]

# For sums of doubles, which are rounded once in the flow and at every addition in Spark.
RELATIVE, ABSOLUTE = 1e-9, 1e-9


def schema(of: pa.Schema) -> list[list[str]]:
    """Return names and types; 64-bit offsets, nullability and the names of nested parts do not count."""
    return [[field.name, kind(field.type)] for field in of]


def kind(of: pa.DataType) -> str:
    """Return the type as text, the same for Spark's Arrow types and the kernel's."""
    t = pa.types
    if t.is_large_string(of) or t.is_string_view(of):
        return "string"
    if t.is_large_binary(of) or t.is_binary_view(of):
        return "binary"
    if t.is_list(of) or t.is_large_list(of):
        return f"list<{kind(of.value_type)}>"
    if t.is_map(of):
        return f"map<{kind(of.key_type)}, {kind(of.item_type)}>"
    if t.is_struct(of):
        fields = (of.field(index) for index in range(of.num_fields))
        return f"struct<{', '.join(f'{field.name}: {kind(field.type)}' for field in fields)}>"
    if t.is_timestamp(of):
        return "timestamp" if of.tz else "timestamp_ntz"
    return str(of)


def rows(table: pa.Table, *, ordered: bool = False) -> list[Canonical]:
    """Return the rows of a table, sorted unless their order counts."""
    columns = [[_value(value, field.type) for value in column.to_pylist()] for field, column in _parts(table)]
    in_order = list(zip(*columns, strict=True)) if columns else [()] * table.num_rows
    return in_order if ordered else sorted(in_order, key=text)


def weights(table: pa.Table) -> Counter[str]:
    """Return the weight of every row of a delta, by the row's text."""
    by_row: Counter[str] = Counter()
    for row in rows(table, ordered=True):
        by_row[text(row[:-1])] += row[-1]
    return by_row


def multiset(of: Iterable[Canonical]) -> Counter[str]:
    """Return how often each row is there, by the row's text."""
    return Counter(text(row) for row in of)


def text(row: Canonical) -> str:
    """Return a row as one line of JSON."""
    return json.dumps(row, ensure_ascii=False)


def through_json(of: Iterable[Canonical]) -> list[Canonical]:
    """Return rows as they are read back from a recording, with lists where tuples were."""
    return [tuple(json.loads(text(row))) for row in of]


def close(got: list[Canonical], expected: list[Canonical], loose: tuple[int, ...]) -> bool:
    """Return whether two answers are the same, with the columns in `loose` compared as floats within tolerance."""
    if not loose:
        return got == expected
    if len(got) != len(expected):
        return False
    pairs = zip(_by_rest(got, loose), _by_rest(expected, loose), strict=True)
    return all(_same(one, other, loose) for one, other in pairs)


def _by_rest(of: list[Canonical], loose: tuple[int, ...]) -> list[Canonical]:
    """Sort by the exact columns first, then by the rounded loose ones: sorting by text would part close floats."""

    def key(row: Canonical) -> tuple[str, tuple[float, ...]]:
        exact = text(tuple(value for index, value in enumerate(row) if index not in loose))
        return exact, tuple(_order(row[index]) for index in loose)

    return sorted(of, key=key)


def _order(value: Any) -> float:
    if value is None:
        return -math.inf
    number = float(value)
    return math.inf if math.isnan(number) else number


def _same(one: Canonical, other: Canonical, loose: tuple[int, ...]) -> bool:
    for index, (left, right) in enumerate(zip(one, other, strict=True)):
        if index not in loose or left is None or right is None:
            if left != right:
                return False
            continue
        first, second = float(left), float(right)
        both_nan = math.isnan(first) and math.isnan(second)
        if not both_nan and not math.isclose(first, second, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            return False
    return True


def _parts(table: pa.Table) -> Iterable[tuple[pa.Field, pa.ChunkedArray]]:
    return zip(table.schema, table.columns, strict=True)


def _value(value: Any, of: pa.DataType) -> Any:
    t = pa.types
    if value is None:
        return None
    if t.is_floating(of):
        return "NaN" if math.isnan(value) else repr(value)
    if t.is_integer(of) or t.is_boolean(of) or t.is_string(of) or t.is_large_string(of):
        return value
    if t.is_binary(of) or t.is_large_binary(of):
        return value.hex()
    if t.is_timestamp(of):
        return _instant(value)
    if t.is_map(of):
        pairs = [[_value(key, of.key_type), _value(item, of.item_type)] for key, item in value]
        return sorted(pairs, key=json.dumps)
    if t.is_list(of) or t.is_large_list(of):
        return [_value(item, of.value_type) for item in value]
    if t.is_struct(of):
        fields = (of.field(index) for index in range(of.num_fields))
        return [_value(value[field.name], field.type) for field in fields]
    return str(value)


def _instant(value: datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return value.isoformat()
