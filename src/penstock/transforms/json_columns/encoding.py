"""Columns of Arrow as values for JSON.

DECIMAL is a text; times and dates are ISO texts, binaries base64, maps objects. NaN and infinities, for which JSON
has no numbers, are texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as t

from penstock.transforms.json_columns.kind import is_bytes, is_list

SAFE = (1 << 53) - 1
"""The largest integer up to which a Number of JavaScript holds every integer."""
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 to 9999
_DAY = 86_400_000_000
_UNSAFE = "is an integer that a Number does not hold exactly: set `bigint: true`, or cast it to STRING"
_OUT_OF_YEARS = "is not in the years 1 to 9999"


@dataclass(frozen=True, slots=True)
class EncodingStyle:
    """How values are written where there is a choice."""

    bigint: Literal["safe", "text", "number"] = "number"
    """A BIGINT as a number that is bad when JavaScript cannot hold it exactly, as a text, or as a number in any case."""
    micros: bool = False
    """Whether times always have six digits behind the seconds, or only where three do not say all."""


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """One column, or a part of one."""

    values: list[Any]
    special: bool = False
    """Whether there are texts instead of numbers."""
    bad: Mapping[int, str] = field(default_factory=dict)
    """What is wrong, by the number of the value."""


def encode_column(values: pa.Array, style: EncodingStyle) -> EncodedColumn:
    """Return a column as values for JSON."""
    kind = values.type
    if t.is_int64(kind):
        return _bigints(values, style)
    if t.is_floating(kind):
        return _floats(values)
    if t.is_decimal(kind):
        return EncodedColumn(_decimals(values))
    if t.is_timestamp(kind):
        return _times(values, style)
    if t.is_date(kind):
        return _dates(values)
    if is_bytes(kind):
        return EncodedColumn(_base64(values))
    if is_list(kind):
        return _lists(values, style)
    if t.is_map(kind):
        return _maps(values, style)
    if t.is_struct(kind):
        return _structs(values, style)
    return EncodedColumn(values.to_pylist())


def _bigints(values: pa.Array, style: EncodingStyle) -> EncodedColumn:
    if style.bigint == "text":
        return EncodedColumn(values.cast(pa.string()).to_pylist(), special=True)
    if style.bigint == "number":
        return EncodedColumn(values.to_pylist())
    unsafe = pc.or_(pc.less(values, -SAFE), pc.greater(values, SAFE))
    if not pc.any(unsafe).as_py():
        return EncodedColumn(values.to_pylist())
    bad = dict.fromkeys(_indices(unsafe), _UNSAFE)
    return EncodedColumn(values.to_pylist(), bad=bad)


def _floats(values: pa.Array) -> EncodedColumn:
    special = pc.invert(pc.is_finite(values))
    if not pc.any(special).as_py():
        return EncodedColumn(values.to_pylist())
    texts = [
        value if value is None or abs(value) < float("inf") else _special(value)
        for value in values.to_pylist()
    ]
    return EncodedColumn(texts, special=True)


def _special(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _decimals(values: pa.Array) -> list[str | None]:
    texts: list[str | None] = values.cast(pa.string()).to_pylist()
    if values.type.scale > 6:  # Arrow writes small ones with an exponent from there on
        return [f"{Decimal(text):f}" if text is not None and "E" in text else text for text in texts]
    return texts


def _times(values: pa.Array, style: EncodingStyle) -> EncodedColumn:
    import polars as pl

    zone = "Z" if values.type.tz else ""
    micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    outside = pc.or_(pc.less(micros, _FIRST_DAY * _DAY), pc.greater_equal(micros, (_LAST_DAY + 1) * _DAY))
    bad = _outside(outside)
    if bad:
        micros = pc.if_else(outside, pa.scalar(None, pa.int64()), micros)
    has_only_millis = pc.equal(pc.multiply(pc.divide(micros, 1000), 1000), micros)
    times: Any = pl.from_arrow(micros.cast(pa.timestamp("us")))
    if style.micros:
        return EncodedColumn(times.dt.strftime(f"%Y-%m-%dT%H:%M:%S%.6f{zone}").to_list(), bad=bad)
    if pc.all(has_only_millis).as_py() is not False:
        return EncodedColumn(times.dt.strftime(f"%Y-%m-%dT%H:%M:%S%.3f{zone}").to_list(), bad=bad)
    texts = times.dt.strftime("%Y-%m-%dT%H:%M:%S%.6f").to_list()
    return EncodedColumn(
        [
            text if text is None else (text[:-3] if is_short else text) + zone
            for text, is_short in zip(texts, has_only_millis.to_pylist(), strict=True)
        ],
        bad=bad,
    )


def _dates(values: pa.Array) -> EncodedColumn:
    days = values.cast(pa.date32()).cast(pa.int32())
    outside = pc.or_(pc.less(days, _FIRST_DAY), pc.greater(days, _LAST_DAY))
    bad = _outside(outside)
    return EncodedColumn(values.cast(pa.date32()).cast(pa.string()).to_pylist(), bad=bad)


def _outside(outside: pa.Array) -> dict[int, str]:
    return dict.fromkeys(_indices(outside), _OUT_OF_YEARS) if pc.any(outside).as_py() else {}


def _base64(values: pa.Array) -> list[str | None]:
    import polars as pl

    series: Any = pl.from_arrow(values.cast(pa.large_binary()))
    texts: list[str | None] = series.bin.encode("base64").to_list()
    return texts


def _lists(values: pa.Array, style: EncodingStyle) -> EncodedColumn:
    offsets = values.offsets.to_numpy()
    items = encode_column(values.values.slice(offsets[0], offsets[-1] - offsets[0]), style)
    return _cut(values, offsets - offsets[0], items, lambda start, end: items.values[start:end])


def _maps(values: pa.Array, style: EncodingStyle) -> EncodedColumn:
    offsets = values.offsets.to_numpy()
    first, count = offsets[0], offsets[-1] - offsets[0]
    keys = encode_column(values.keys.slice(first, count), replace(style, bigint="text"))
    items = encode_column(values.items.slice(first, count), style)
    names = [_field_name(key) for key in keys.values]
    both = EncodedColumn(items.values, items.special, {**keys.bad, **items.bad})

    def pairs(start: int, end: int) -> dict[str, Any]:
        return dict(zip(names[start:end], items.values[start:end], strict=True))

    return _cut(values, offsets - first, both, pairs)


def _field_name(key: Any) -> str:
    """A key as the name of a field of an object."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _cut(
    values: pa.Array, offsets: np.ndarray[Any, Any], items: EncodedColumn, piece: Callable[[int, int], Any]
) -> EncodedColumn:
    """Put the items of arrays or maps together again."""
    valid = values.is_valid().to_pylist()
    starts = offsets.tolist()
    joined = [
        piece(start, end) if is_valid else None
        for start, end, is_valid in zip(starts[:-1], starts[1:], valid, strict=True)
    ]
    bad: dict[int, str] = {}
    for index, text in items.bad.items():
        owner = int(np.searchsorted(offsets, index, side="right")) - 1
        if valid[owner]:
            bad[owner] = text
    return EncodedColumn(joined, items.special, bad)


def _structs(values: pa.Array, style: EncodingStyle) -> EncodedColumn:
    names = [values.type.field(index).name for index in range(values.type.num_fields)]
    parts = [encode_column(part, style) for part in values.flatten()]
    rows = zip(*(part.values for part in parts), strict=True) if parts else ((),) * len(values)
    objects = [
        dict(zip(names, row, strict=True)) if is_valid else None
        for row, is_valid in zip(rows, values.is_valid().to_pylist(), strict=True)
    ]
    bad = {index: text for part in parts for index, text in part.bad.items() if objects[index] is not None}
    return EncodedColumn(objects, any(part.special for part in parts), bad)


def _indices(mask: pa.Array) -> list[int]:
    indices: list[int] = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).tolist()
    return indices
