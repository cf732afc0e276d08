"""Columns of Arrow from the values of an answer in JSON, exactly of the types of the schema.

The host has checked whether a value is a number, a text, an object, and so on. What is left are texts: of decimals,
times, dates and binaries.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as t

from penstock.data.schema import type_to_ddl
from penstock.transforms.json_columns.kind import is_bytes, is_list, is_text

SHOWN = 60
_ZONE = r"\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_TOO_FINE = r"(\.\d{6})\d+"
_EXACT = Context(prec=100)
_ONE_AT_A_TIME = (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError)


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """One column, or a part of one; NULL instead of what is bad."""

    values: pa.Array
    bad: Mapping[int, str] = field(default_factory=dict)
    """What is wrong, by the number of the value."""


def decode_column(values: Sequence[Any], kind: pa.DataType, *, zone: str) -> DecodedColumn:
    """Return a column of an answer as Arrow has it; times without a zone of their own are in `zone`."""
    if is_text(kind):
        # Several times as fast as into texts with short offsets.
        return DecodedColumn(pa.array(values, pa.large_string()).cast(kind))
    if t.is_floating(kind):
        return DecodedColumn(_floats(values, kind))
    if t.is_decimal(kind):
        return _texts(values, kind, lambda texts: texts.cast(kind), lambda text: _decimal(text, kind))
    if t.is_timestamp(kind):
        return _texts(values, kind, lambda texts: _times(texts, kind, zone), None)
    if t.is_date(kind):
        return _texts(values, kind, lambda texts: texts.cast(kind), None)
    if is_bytes(kind):
        return _texts(values, kind, None, _binary)
    if is_list(kind):
        return _lists(values, kind, zone=zone)
    if t.is_map(kind):
        return _maps(values, kind, zone=zone)
    if t.is_struct(kind):
        return _structs(values, kind, zone=zone)
    return DecodedColumn(pa.array(values, kind))


def _floats(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, pa.float64()).cast(kind, safe=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # NaN, infinities and -0 come as texts.
        numbers = [None if value is None else float(value) for value in values]
        return pa.array(numbers, pa.float64()).cast(kind, safe=False)


def _texts(
    values: Sequence[str | None],
    kind: pa.DataType,
    convert_all: Callable[[pa.Array], pa.Array] | None,
    convert: Callable[[str], Any] | None,
) -> DecodedColumn:
    """Values that come as texts; one at a time when all at once they are refused."""
    if convert_all is not None:
        try:
            return DecodedColumn(convert_all(pa.array(values, pa.large_string())))
        except _ONE_AT_A_TIME:
            pass
    results: list[Any] = []
    bad: dict[int, str] = {}
    for index, text in enumerate(values):
        try:
            results.append(None if text is None else _convert_text(text, kind, convert_all, convert))
        except (*_ONE_AT_A_TIME, ArithmeticError, ValueError):
            results.append(None)
            assert text is not None
            shown = repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
            bad[index] = f"is {type_to_ddl(kind)} and got {shown}"
    return DecodedColumn(pa.array(results, kind), bad)


def _convert_text(
    text: str,
    kind: pa.DataType,
    convert_all: Callable[[pa.Array], pa.Array] | None,
    convert: Callable[[str], Any] | None,
) -> Any:
    if convert is not None:
        return convert(text)
    assert convert_all is not None
    return convert_all(pa.array([text], pa.large_string()))[0]


def _decimal(text: str, kind: pa.DataType) -> Decimal:
    """A decimal rounded to its scale, as Spark's CAST does it."""
    number = Decimal(text.strip())
    if not number.is_finite():
        raise InvalidOperation
    rounded = number.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, _EXACT)
    if rounded.adjusted() >= kind.precision - kind.scale and rounded != 0:
        raise InvalidOperation
    return rounded


def _binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


def _times(texts: pa.Array, kind: pa.DataType, zone: str) -> pa.Array:
    texts = pc.replace_substring_regex(texts, _TOO_FINE, r"\1")
    if kind.tz is None:
        return texts.cast(kind)
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        has_zone = pc.match_substring_regex(texts, _ZONE)
        nothing = pa.scalar(None, texts.type)
        zoned = pc.if_else(has_zone, texts, nothing).cast(kind)
        local = pc.if_else(has_zone, nothing, texts).cast(pa.timestamp("us"))
        moments = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest").cast(kind)
        return pc.coalesce(zoned, moments)


def _lists(values: Sequence[Sequence[Any] | None], kind: pa.DataType, *, zone: str) -> DecodedColumn:
    offsets, items = _flat(values)
    inner = decode_column(items, kind.value_type, zone=zone)
    lists = pa.ListArray.from_arrays(_with_nulls(offsets, values), inner.values).cast(kind)
    return DecodedColumn(lists, _owners(inner.bad, offsets))


def _maps(values: Sequence[Sequence[Any] | None], kind: pa.DataType, *, zone: str) -> DecodedColumn:
    offsets, pairs = _flat(values)
    keys = decode_column([pair[0] for pair in pairs], kind.key_type, zone=zone)
    items = decode_column([pair[1] for pair in pairs], kind.item_type, zone=zone)
    bad = _owners({**keys.bad, **items.bad}, offsets)
    if keys.bad:
        # A map has no NULL among its keys; the row is an error anyway.
        return DecodedColumn(pa.nulls(len(values), kind), bad)
    maps = pa.MapArray.from_arrays(_with_nulls(offsets, values), keys.values, items.values).cast(kind)
    return DecodedColumn(maps, bad)


def _structs(values: Sequence[Sequence[Any] | None], kind: pa.DataType, *, zone: str) -> DecodedColumn:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    parts = [
        decode_column([None if row is None else row[at] for row in values], inner.type, zone=zone)
        for at, inner in enumerate(fields)
    ]
    is_null = pa.array([row is None for row in values], pa.bool_())
    # The parts may hold NULL where the type says there is none; the row says what is wrong then.
    nullable = [inner.with_nullable(True) for inner in fields]
    structs = pa.StructArray.from_arrays([part.values for part in parts], fields=nullable, mask=is_null)
    bad = {index: text for part in parts for index, text in part.bad.items()}
    return DecodedColumn(structs, bad)


def _flat(values: Sequence[Sequence[Any] | None]) -> tuple[list[int], list[Any]]:
    lengths = (0 if value is None else len(value) for value in values)
    return list(accumulate(lengths, initial=0)), list(chain.from_iterable(value or () for value in values))


def _with_nulls(offsets: Sequence[int], values: Sequence[Any]) -> pa.Array:
    """Offsets of arrays or maps, NULL where these are."""
    starts = [None if value is None else offset for offset, value in zip(offsets[:-1], values, strict=True)]
    return pa.array([*starts, offsets[-1]], pa.int32())


def _owners(bad: Mapping[int, str], offsets: Sequence[int]) -> dict[int, str]:
    return {int(np.searchsorted(offsets, index, side="right")) - 1: text for index, text in bad.items()}
