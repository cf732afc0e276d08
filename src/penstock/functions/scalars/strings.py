"""Text, by code points and bytes as Spark's UTF8_BINARY collation has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.scalars.base import (
    LEAST_INT,
    SPARK,
    AnsiError,
    Build,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    array,
    constant,
    only,
    row_wise,
    rows_of,
)
from penstock.plan.expression import Call, Literal

_TEXT = only("string")


# Letters that got a case with Unicode 16, which Spark's ICU knows and an older Python does not: lower, upper.
_NEW_PAIRS = [
    (0x019B, 0xA7DC),
    (0x0264, 0xA7CB),
    (0x1C8A, 0x1C89),
    (0xA7CD, 0xA7CC),
    (0xA7DB, 0xA7DA),
    *((0x10D70 + index, 0x10D50 + index) for index in range(22)),
]
_NEW_UPPER = dict(_NEW_PAIRS)
_NEW_LOWER = {upper: lower for lower, upper in _NEW_PAIRS}


def _upper(text: str) -> str:
    return text.translate(_NEW_UPPER).upper()


def _lower(text: str) -> str:
    return text.lower().translate(_NEW_LOWER)


def _initcap(text: str) -> str:
    """The first character of every word, which begins behind a blank, in title case, the others in lower case."""
    # Of the same length as the text, with sigma as its place in the word asks for it.
    lowered = text.replace("İ", "I").lower() if "Σ" in text else ""
    parts: list[str] = []
    begins = True
    for place, char in enumerate(text):
        if begins:
            parts.append(char.translate(_NEW_UPPER) if ord(char) in _NEW_UPPER else char.title())
        else:
            parts.append(lowered[place] if char == "Σ" else _lower(char))
        begins = char == " "
    return "".join(parts)


def _case_mapping(of_ascii: Any, twin: Callable[[str], str]) -> Build:
    """Arrow for ASCII text, Python's full case mapping for the rest (Arrow maps one character to one).

    Arrow's functions for ASCII misread an array whose first text does not begin at 0, as one that is cast from a
    slice; those for UTF-8 do not.
    """

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        (argument,) = args

        def run(columns: Columns, length: int, tick: TickLike) -> Datum:
            value = argument(columns, length, tick)
            if (
                pc.all(pc.string_is_ascii(value), min_count=0).as_py()
                if isinstance(value, pa.Array)
                else False
            ):
                return of_ascii(value)
            return rows_of(call, twin, [value], length, pa.large_string())

        return run

    return build


def _substring(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    kind = pa.large_string()
    if all(isinstance(item, Literal) and item.value is not None for item in call.args[1:]):
        position, count = constant(call, 1), constant(call, 2)
        stop: int | None
        if count <= 0:
            start, stop = 0, 0
        elif position >= 0:
            start = max(position - 1, 0)
            stop = start + count
        else:
            start = position
            stop = position + count if position + count < 0 else None
        (argument, *_) = args
        return lambda columns, length, tick: pc.utf8_slice_codeunits(
            argument(columns, length, tick), start=start, stop=stop
        )

    def twin(text: str, position: int, count: int) -> str:
        if position > len(text):
            return ""
        start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
        return text[max(start, 0) : max(start + count, 0)]

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        return rows_of(call, twin, [item(columns, length, tick) for item in args], length, kind)

    return run


def _length(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    count = pc.utf8_length if call.args[0].type == "string" else pc.binary_length
    return lambda columns, length, tick: pc.cast(count(argument(columns, length, tick)), pa.int32())


def _octet_length(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    return lambda columns, length, tick: pc.cast(
        pc.binary_length(argument(columns, length, tick)), pa.int32()
    )


def _bit_length(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    eight = pa.scalar(8, pa.int32())
    return lambda columns, length, tick: pc.multiply(
        pc.cast(pc.binary_length(argument(columns, length, tick)), pa.int32()), eight
    )


def _concat(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    glue = pa.scalar("", pa.large_string()) if call.type == "string" else pa.scalar(b"", pa.large_binary())
    if not args:
        return lambda columns, length, tick: glue
    return lambda columns, length, tick: pc.binary_join_element_wise(
        *(item(columns, length, tick) for item in args), glue
    )


def _search(arrow: Any, twin: Callable[[Any, Any], bool]) -> Build:
    """STARTS WITH, ENDS WITH, CONTAINS: Arrow for a constant, row by row otherwise."""

    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        text_of, pattern_of = args
        wanted = call.args[1]
        if isinstance(wanted, Literal) and wanted.value is not None:
            return lambda columns, length, tick: arrow(text_of(columns, length, tick), pattern=wanted.value)
        return lambda columns, length, tick: rows_of(
            call,
            twin,
            [text_of(columns, length, tick), pattern_of(columns, length, tick)],
            length,
            pa.bool_(),
        )

    return build


def _trim(arrow: Any, twin: Callable[[str, str], str]) -> Build:
    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        (argument, *_) = args
        if len(args) == 1 or isinstance(call.args[1], Literal):
            characters = " " if len(args) == 1 else constant(call, 1)
            if characters is None:
                return lambda columns, length, tick: pa.scalar(None, pa.large_string())
            if characters == "":
                return argument
            return lambda columns, length, tick: arrow(argument(columns, length, tick), characters=characters)
        return row_wise(twin)(call, args)

    return build


def _replace(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    if all(isinstance(item, Literal) and item.value is not None for item in call.args[1:]):
        search, replacement = constant(call, 1), constant(call, 2)
        (argument, *_) = args
        if search == "":
            return argument
        return lambda columns, length, tick: pc.replace_substring(
            argument(columns, length, tick), pattern=search, replacement=replacement
        )

    def twin(text: str, search: str, replacement: str) -> str:
        return text if search == "" else text.replace(search, replacement)

    return row_wise(twin)(call, args)


def _locate(search: str | None, text: str | None, start: int | None) -> int | None:
    if start is None:
        return 0
    if search is None or text is None:
        return None
    if start < 1:
        return 0
    if search == "":
        return 1
    return text.find(search, start - 1) + 1


def _located(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    """Row by row, NULL too: from a place that is NULL on, nothing is found."""

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        rows = [array(item(columns, length, tick), length).to_pylist() for item in args]
        return pa.array([_locate(*row) for row in zip(*rows, strict=True)], pa.int32())

    return run


def _split(text: str, delimiter: str) -> list[str]:
    return [text] if delimiter == "" else text.split(delimiter)


def _translate(text: str, matching: str, replacing: str) -> str:
    table: dict[int, str | None] = {}
    for index, char in enumerate(matching):
        table.setdefault(ord(char), replacing[index] if index < len(replacing) else None)
    return text.translate(table)


def _ascii(text: str) -> int:
    return ord(text[0]) if text else 0


def _substring_index(text: str, delimiter: str, count: int) -> str:
    """What is before the delimiter at which a count from the left ends, or behind that from the right; delimiters may overlap."""
    if delimiter == "" or count == 0:
        return ""
    if count > 0:
        at = -1
        for _ in range(count):
            at = text.find(delimiter, at + 1)
            if at < 0:
                return text
        return text[:at]
    if count == LEAST_INT:
        raise AnsiError(f"there are no {count} delimiters", SPARK)
    at = len(text) - len(delimiter) + 1
    for _ in range(-count):
        at = text.rfind(delimiter, 0, at - 1 + len(delimiter)) if at > 0 else -1
        if at < 0:
            return text
    return text[at + len(delimiter) :]


def _hex_text(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    def twin(value: Any) -> str:
        if isinstance(value, int):
            return format(value & (2**64 - 1), "X")
        return (value.encode() if isinstance(value, str) else value).hex().upper()

    return row_wise(twin)(call, args)


def _binary_or_text(call: Call) -> str | None:
    kinds = {item.type for item in call.args}
    return (
        None if kinds in ({"string"}, {"binary"}, set()) else f"{call.name} over {', '.join(sorted(kinds))}"
    )


def _reverse(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    (argument,) = args
    return lambda columns, length, tick: pc.utf8_reverse(argument(columns, length, tick))


FUNCTIONS: dict[str, Scalar] = {
    "Upper": Scalar(_case_mapping(pc.utf8_upper, _upper), _TEXT),
    "Lower": Scalar(_case_mapping(pc.utf8_lower, _lower), _TEXT),
    "InitCap": Scalar(row_wise(_initcap), _TEXT),
    "Substring": Scalar(_substring, only("string", first=1)),
    "Length": Scalar(_length, only("string", "binary")),
    "OctetLength": Scalar(_octet_length, only("string", "binary")),
    "BitLength": Scalar(_bit_length, only("string", "binary")),
    "Concat": Scalar(_concat, _binary_or_text),
    "StartsWith": Scalar(_search(pc.starts_with, str.startswith), _TEXT),
    "EndsWith": Scalar(_search(pc.ends_with, str.endswith), _TEXT),
    "Contains": Scalar(_search(pc.match_substring, lambda text, part: part in text), _TEXT),
    "StringTrim": Scalar(
        _trim(pc.utf8_trim, lambda text, chars: text.strip(chars) if chars else text), _TEXT
    ),
    "StringTrimLeft": Scalar(
        _trim(pc.utf8_ltrim, lambda text, chars: text.lstrip(chars) if chars else text), _TEXT
    ),
    "StringTrimRight": Scalar(
        _trim(pc.utf8_rtrim, lambda text, chars: text.rstrip(chars) if chars else text), _TEXT
    ),
    "StringReplace": Scalar(_replace, _TEXT),
    "StringInstr": Scalar(row_wise(lambda text, part: text.find(part) + 1), _TEXT),
    "StringLocate": Scalar(_located, only("string", first=2)),
    "Reverse": Scalar(_reverse, _TEXT),
    "StringSplitSQL": Scalar(row_wise(_split), _TEXT),
    "StringTranslate": Scalar(row_wise(_translate), _TEXT),
    "SubstringIndex": Scalar(row_wise(_substring_index), only("string", first=2)),
    "Ascii": Scalar(row_wise(_ascii), _TEXT),
    "Hex": Scalar(_hex_text, only("string", "binary", "bigint")),
}
