"""Further functions of text: joined, formatted, masked, compared and encoded as Spark does it."""

from __future__ import annotations

import unicodedata
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import pyarrow as pa

from penstock.functions.java_double import double_text
from penstock.functions.scalars.base import (
    INDEX,
    AnsiError,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    ansi_error,
    array,
    both,
    constant,
    only,
    row_wise,
    rows_of,
)
from penstock.plan.expression import Call, Literal

_STRING = pa.large_string()


# ------------------------------------------------------------------ joined


def _concat_ws(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    """Row by row: Arrow's join loses rows in which every part is NULL."""
    lists = [item.type != "string" for item in call.args[1:]]

    def joined(glue: str | None, row: tuple[Any, ...]) -> str | None:
        if glue is None:
            return None
        words: list[str] = []
        for part, is_list in zip(row, lists, strict=True):
            if part is None:
                continue
            if is_list:
                words.extend(word for word in part if word is not None)
            else:
                words.append(part)
        return glue.join(words)

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        glue, *parts = (array(item(columns, length, tick), length).to_pylist() for item in args)
        rows = zip(*parts, strict=True) if parts else [()] * length
        return pa.array([joined(*pair) for pair in zip(glue, rows, strict=True)], _STRING)

    return run


def _concat_ws_check(call: Call) -> str | None:
    for position, item in enumerate(call.args):
        if item.type != "string" and (position == 0 or item.type != "array<string>"):
            return f"concat_ws over {item.type}"
    return None


def _array_join(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    def twin(words: list[str | None], glue: str, instead: str | None = None) -> str:
        if instead is None:
            return glue.join(word for word in words if word is not None)
        return glue.join(instead if word is None else word for word in words)

    return row_wise(twin)(call, args)


def _array_join_check(call: Call) -> str | None:
    kinds = [item.type for item in call.args]
    return (
        None
        if kinds[0] == "array<string>" and set(kinds[1:]) == {"string"}
        else f"array_join over {kinds[0]}"
    )


def _elt(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    fails = bool(call.option("failOnError", False))
    count = len(args) - 1

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        index, *parts = (array(item(columns, length, tick), length).to_pylist() for item in args)
        rows: list[Any] = []
        for row, place in enumerate(index):
            if place is None or 1 <= place <= count:
                rows.append(None if place is None else parts[place - 1][row])
            elif fails:
                raise ansi_error(call, AnsiError(f"there is no element {place}", INDEX), (place,))
            else:
                rows.append(None)
        return pa.array(rows, _STRING if call.type == "string" else pa.large_binary())

    return run


def _find_in_set(wanted: str, words: str) -> int:
    if "," in wanted:
        return 0
    parts = words.split(",")
    return parts.index(wanted) + 1 if wanted in parts else 0


# ------------------------------------------------------------------ compared

_SOUNDS = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230127022455012623017202", strict=True))


def _soundex(text: str) -> str:
    first = text[:1].upper() if text[:1].isascii() else ""
    if first not in _SOUNDS or not text:
        return text
    code = first
    last = _SOUNDS[first]
    for char in text[1:]:
        sound = _SOUNDS.get(char.upper()) if char.isascii() else None
        if sound is None:
            last = "0"
        elif sound != "7":
            if sound != "0" and sound != last:
                code += sound
                if len(code) > 3:
                    break
            last = sound
    return code.ljust(4, "0")


def _levenshtein(shorter: str, longer: str, threshold: int | None = None) -> int:
    if len(shorter) > len(longer):
        shorter, longer = longer, shorter
    above = list(range(len(shorter) + 1))
    for row, wanted in enumerate(longer, 1):
        current = [row]
        for column, char in enumerate(shorter, 1):
            current.append(
                above[column - 1]
                if char == wanted
                else 1 + min(above[column - 1], above[column], current[column - 1])
            )
        above = current
    distance = above[-1]
    return distance if threshold is None or distance <= threshold else -1


def _threshold_check(call: Call) -> str | None:
    if len(call.args) > 2 and (not isinstance(call.args[2], Literal) or (call.args[2].value or 0) < 0):
        return "levenshtein with a threshold that is negative or not constant"
    return None


def _luhn(text: str) -> bool:
    if not text or not (text.isascii() and text.isdigit()):
        return False
    total = 0
    for place, char in enumerate(reversed(text)):
        digit = int(char)
        if place % 2:
            digit = digit * 2 - 9 if digit > 4 else digit * 2
        total += digit
    return total % 10 == 0


# ------------------------------------------------------------------ cut and replaced


def _substring_sql(text: Any, position: int, count: int) -> Any:
    if position > len(text):
        return text[:0]
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    stop = min(start + count, 2**31 - 1) if count >= 0 else start + count
    return text[max(start, 0) : max(stop, 0)]


def _overlay(text: Any, replacement: Any, position: int, count: int) -> Any:
    behind = _wrapped(position + (count if count >= 0 else len(replacement)))
    return (
        _substring_sql(text, 1, _wrapped(position - 1))
        + replacement
        + _substring_sql(text, behind, 2**31 - 1)
    )


def _wrapped(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def _chr(number: int) -> str:
    return "" if number < 0 else chr(number & 0xFF)


def _mask(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    letters = [
        constant(call, place) if isinstance(call.args[place], Literal) else None for place in range(1, 5)
    ]
    upper, lower, digit, other = (None if letter is None else letter[0] for letter in letters)
    by_category = {"Lu": upper, "Ll": lower, "Nd": digit}

    def masked(char: str) -> str:
        if ord(char) > 0xFFFF:
            return char if other is None else other * 2  # two characters for Java
        return by_category.get(unicodedata.category(char), other) or char

    def twin(text: str) -> str:
        return "".join(map(masked, text))

    (argument, *_) = args
    return lambda columns, length, tick: rows_of(
        call, twin, [argument(columns, length, tick)], length, _STRING
    )


def _mask_check(call: Call) -> str | None:
    for item in call.args[1:]:
        if not isinstance(item, Literal) or (
            item.value is not None and (not item.value or ord(item.value[0]) > 0xFFFF)
        ):
            return "mask with a character that is not constant"
    return None


# ------------------------------------------------------------------ formatted

_EXACT = Context(prec=1200, rounding=ROUND_HALF_EVEN)


_MOST_PLACES = 340  # that Java writes of a double or a long


def _format_number(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    java = int(call.option("java"))

    def twin(number: Any, places: int) -> str | None:
        if places < 0:
            return None
        if isinstance(number, float) and (number != number or number in (float("inf"), float("-inf"))):
            return "NaN" if number != number else "∞" if number > 0 else "-∞"
        exact = Decimal(number)
        if isinstance(number, float):
            # Java begins with the digits that it writes, and only asks for the number itself where those are half way.
            written = Decimal(double_text(number, java))
            exponent = written.as_tuple().exponent
            assert isinstance(exponent, int)
            exact = written if exponent >= -places else exact
        if not isinstance(number, Decimal):
            places = min(places, _MOST_PLACES)
        rounded = exact.quantize(Decimal(1).scaleb(-min(places, _MOST_PLACES)), context=_EXACT).copy_abs()
        text = f"{rounded:,f}{'0' * (places - _MOST_PLACES)}"
        negative = exact.is_signed() and (isinstance(number, float) or exact != 0)
        return f"-{text}" if negative else text

    return row_wise(twin)(call, args)


FUNCTIONS: dict[str, Scalar] = {
    "ConcatWs": Scalar(_concat_ws, _concat_ws_check),
    "ArrayJoin": Scalar(_array_join, _array_join_check),
    "Elt": Scalar(_elt, lambda call: only("string", "binary")(Call(call.name, call.args[1:], call.type))),
    "FindInSet": Scalar(row_wise(_find_in_set), only("string")),
    "SoundEx": Scalar(row_wise(_soundex), only("string")),
    "Levenshtein": Scalar(row_wise(_levenshtein), both(only("string", first=2), _threshold_check)),
    "ExpressionImplUtils.isLuhnNumber": Scalar(row_wise(_luhn), only("string")),
    "Overlay": Scalar(row_wise(_overlay), only("string", "binary", first=2)),
    "Chr": Scalar(row_wise(_chr), only("bigint")),
    "Mask": Scalar(_mask, _mask_check),
    "FormatNumber": Scalar(_format_number, lambda call: only("int")(Call("FormatNumber", call.args[1:], ""))),
}
