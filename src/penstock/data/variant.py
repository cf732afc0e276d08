"""VARIANT values: JSON text as the two binaries in which Spark keeps it, byte for byte what `parse_json` makes of it.

A value is a header byte and data; an object has the numbers of its keys in a dictionary, which is the metadata. Integers take the
fewest of 1, 2, 4 or 8 bytes; other numbers without an exponent are decimals of at most 38 digits, the rest doubles.
"""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.errors import DataError

_OBJECT, _ARRAY = 2, 3
_NULL, _TRUE, _FALSE, _DOUBLE, _LONG_TEXT = 0, 1, 2, 7, 16
_INTEGERS = ((3, 1), (4, 2), (5, 4), (6, 8))  # type, bytes
_DECIMALS = ((8, 9, 4), (9, 18, 8), (10, 38, 16))  # type, digits, bytes
_SHORT_TEXT = 63
_VERSION = 1
_MOST_BYTES = 128 * 1024 * 1024


class Variant(NamedTuple):
    """A value and the dictionary of its keys."""

    value: bytes
    metadata: bytes


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, in their order."""


def parse_json(text: str) -> Variant:
    """Return JSON text as a VARIANT; ValueError when it is not JSON.

    >>> parse_json('{"b": [1, 2.50]}').metadata
    b'\\x01\\x01\\x00\\x01b'
    """
    try:
        tree = json.loads(
            text, object_pairs_hook=_Pairs, parse_int=_number, parse_float=_number, parse_constant=_refuse
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    keys: dict[str, int] = {}
    value = _encode(tree, keys)
    metadata = _dictionary([_bytes(key) for key in keys])
    if max(len(value), len(metadata)) > _MOST_BYTES:
        raise ValueError("a VARIANT has at most 128 MiB")
    return Variant(value, metadata)


def from_json(column: pa.Array, *, name: str, where: str) -> pa.Array:
    """Return a column of JSON text as VARIANTs; text that is not JSON is an error."""
    values: list[bytes | None] = []
    dictionaries: list[bytes | None] = []
    for number, text in enumerate(column.to_pylist(), start=1):
        try:
            value, metadata = (None, None) if text is None else parse_json(text)
        except ValueError as error:
            raise DataError(
                f"column '{name}' is a VARIANT, and row {number} is no JSON text: {text[:100]!r}: {error}",
                code="DATA_TYPE",
                where=where,
                hint="feed JSON text (a string is '\"text\"'), PySpark's VariantVal, or Arrow's struct of value and metadata",
            ) from None
        values.append(value)
        dictionaries.append(metadata)
    parts = [pa.array(part, pa.large_binary()) for part in (values, dictionaries)]
    return pa.StructArray.from_arrays(parts, ["value", "metadata"], mask=column.is_null())


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not in JSON")


def _number(text: str) -> int | float | Decimal:
    if text.lstrip("-").isdigit() and -(2**63) <= (integer := int(text)) < 2**63:
        return integer
    if "e" in text or "E" in text:
        return float(text)
    exact = Decimal(text)
    return exact if max(_precision(exact), _scale(exact)) <= 38 else float(text)


def _scale(number: Decimal) -> int:
    return -int(number.as_tuple().exponent)


def _precision(number: Decimal) -> int:
    return len(str(abs(_unscaled(number))))


def _unscaled(number: Decimal) -> int:
    sign, digits, _ = number.as_tuple()
    magnitude = int("".join(map(str, digits)))
    return -magnitude if sign else magnitude


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _encode(tree: Any, keys: dict[str, int]) -> bytes:
    match tree:
        case None:
            return _primitive(_NULL)
        case bool():
            return _primitive(_TRUE if tree else _FALSE)
        case int():
            kind, width = next(
                (kind, width)
                for kind, width in _INTEGERS
                if -(2 ** (8 * width - 1)) <= tree < 2 ** (8 * width - 1)
            )
            return _primitive(kind) + tree.to_bytes(width, "little", signed=True)
        case float():
            return _primitive(_DOUBLE) + struct.pack("<d", tree)
        case Decimal():
            return _decimal(tree)
        case str():
            text = _bytes(tree)
            if len(text) <= _SHORT_TEXT:
                return bytes([len(text) << 2 | 1]) + text
            return _primitive(_LONG_TEXT) + len(text).to_bytes(4, "little") + text
        case _Pairs():
            return _object(tree, keys)
    return _array([_encode(item, keys) for item in tree])


def _primitive(kind: int) -> bytes:
    return bytes([kind << 2])


def _decimal(number: Decimal) -> bytes:
    scale, precision = _scale(number), _precision(number)
    kind, width = next((kind, width) for kind, digits, width in _DECIMALS if max(scale, precision) <= digits)
    return _primitive(kind) + bytes([scale]) + _unscaled(number).to_bytes(width, "little", signed=True)


def _object(pairs: _Pairs, keys: dict[str, int]) -> bytes:
    offset, members = 0, []
    parts: list[bytes] = []
    for key, item in pairs:
        number = keys.setdefault(key, len(keys))
        part = _encode(item, keys)
        members.append((key.encode("utf-16-be", "surrogatepass"), number, offset))
        parts.append(part)
        offset += len(part)
    members.sort()
    if len({key for key, _, _ in members}) < len(members):
        raise ValueError("an object has a key twice")
    id_width = _width(max((number for _, number, _ in members), default=0))
    offset_width = _width(offset)
    large = len(members) > 255
    header = large << 6 | (id_width - 1) << 4 | (offset_width - 1) << 2 | _OBJECT
    return b"".join(
        (
            bytes([header]),
            len(members).to_bytes(4 if large else 1, "little"),
            *(number.to_bytes(id_width, "little") for _, number, _ in members),
            *(place.to_bytes(offset_width, "little") for _, _, place in members),
            offset.to_bytes(offset_width, "little"),
            *parts,
        )
    )


def _array(parts: list[bytes]) -> bytes:
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    width, large = _width(offsets[-1]), len(parts) > 255
    return b"".join(
        (
            bytes([large << 4 | (width - 1) << 2 | _ARRAY]),
            len(parts).to_bytes(4 if large else 1, "little"),
            *(offset.to_bytes(width, "little") for offset in offsets),
            *parts,
        )
    )


def _dictionary(keys: list[bytes]) -> bytes:
    offsets = [0]
    for key in keys:
        offsets.append(offsets[-1] + len(key))
    width = _width(max(offsets[-1], len(keys)))
    return b"".join(
        (
            bytes([_VERSION | (width - 1) << 6]),
            len(keys).to_bytes(width, "little"),
            *(offset.to_bytes(width, "little") for offset in offsets),
            *keys,
        )
    )


def _width(number: int) -> int:
    """The fewest bytes that hold a number."""
    return max(1, (number.bit_length() + 7) // 8)
