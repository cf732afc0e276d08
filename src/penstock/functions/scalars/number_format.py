"""to_char and to_number: numbers by a format of Spark's, such as '$99,999.00S'; the format is constant and was looked
at by Spark."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from penstock.data.types import decimal_parts, kernel_type
from penstock.functions.scalars.base import (
    BeyondKernel,
    Build,
    ByRow,
    Compiled,
    Scalar,
    both,
    constant,
    literal_args,
    rows_of,
)
from penstock.plan.expression import Call

_WHITESPACE = frozenset(" \t\n\x0b\f\r\x1c\x1d\x1e\x1f")
_WIDE = Context(prec=100)


@dataclass(frozen=True, slots=True)
class Digits:
    """A run of 0 and 9: as many digits exactly when it begins with 0 before the point, at most as many otherwise."""

    exact: bool
    count: int


# Runs of digits with commas between them, or one of: . $ S MI < >
Group = tuple[Digits | None, ...]  # None is a comma
Token = Group | str


def tokens_of(text: str) -> tuple[Token, ...]:
    """The tokens of a format; PR at its end is a bracket at both ends.

    >>> tokens_of("$9,00.9pr")
    ('<', '$', (Digits(exact=False, count=1), None, Digits(exact=True, count=2)), '.', (Digits(exact=False, count=1),), '>')
    """
    upper = text.upper()
    tokens: list[Token] = []
    group: list[Digits | None] = []
    at, behind_point, wrapped = 0, False, False

    def end_group() -> None:
        if group:
            tokens.append(tuple(group))
            group.clear()

    while at < len(upper):
        char = upper[at]
        if char in "09":
            end = at
            while end < len(upper) and upper[end] in "09":
                end += 1
            group.append(Digits(char == "0" and not behind_point, end - at))
            at = end
            continue
        if char in ",G":
            group.append(None)
            at += 1
            continue
        end_group()
        if upper.startswith("PR", at):
            wrapped = True
            tokens.append(">")
            at += 2
        elif upper.startswith("MI", at):
            tokens.append("MI")
            at += 2
        else:
            behind_point |= char in ".D"
            tokens.append("." if char == "D" else char)
            at += 1
    end_group()
    return ("<", *tokens) if wrapped else tuple(tokens)


# ------------------------------------------------------------------ reading


def read(text: str, tokens: tuple[Token, ...], scale: int) -> Decimal | None:
    """The number that a text is by a format, None when it does not fit."""
    before, after = "", ""
    at, negative, opened, closed, behind_point = 0, False, False, False, False
    for token in tokens:
        char = text[at : at + 1]
        if isinstance(token, tuple):
            run = _read_group(token, text, at)
            if run is None:
                return None
            at, digits = run
            if behind_point:
                after += digits
            else:
                before += digits
            continue
        if token == "$":
            if char not in ("", "$"):
                return None
        elif token == ".":
            behind_point |= char == "."
        elif token in ("S", "MI"):
            negative ^= char == "-"
        elif token == "<":
            opened = char == "<"
        elif char == ">":
            if not opened:
                return None
            closed, negative = True, not negative
        wanted = {"S": "+-", "MI": "-"}.get(token, token)
        at += char != "" and char in wanted
    if at < len(text) or opened != closed:
        return None
    if not before and not after:
        raise BeyondKernel(f"{text!r} has no digits")
    unscaled = int((before or "0") + after.ljust(scale, "0"))
    return Decimal(-unscaled if negative else unscaled).scaleb(-scale, _WIDE)


def _read_group(group: Group, text: str, at: int) -> tuple[int, str] | None:
    """The place behind runs of digits and the digits, None when a run has not as many as its format wants."""
    runs = [0]
    digits = ""
    while at < len(text):
        char = text[at]
        if char == ",":
            runs.append(0)
        elif "0" <= char <= "9":
            digits += char
            runs[-1] += 1
        elif char not in _WHITESPACE:
            break
        at += 1
    expected = [part for part in group if part is not None]
    if len(runs) > len(expected):
        return None
    counts = [0] * (len(expected) - len(runs)) + runs
    fits = all(
        count == part.count if part.exact else count <= part.count
        for count, part in zip(counts, expected, strict=True)
    )
    return (at, digits) if fits else None


# ------------------------------------------------------------------ writing


def written(number: Decimal, tokens: tuple[Token, ...]) -> str:
    """A number by a format; # for digits that it has no place for."""
    before, after = _placed(number, tokens)
    negative = number < 0
    text = ""
    behind_point = False
    for token in tokens:
        if isinstance(token, tuple):
            for part in token:
                if part is None:
                    text = text + "," if text[-1:].isdigit() else _with_space(text)
                elif behind_point:
                    text, after = text + after[: part.count], after[part.count :]
                else:
                    run, before = before[: part.count], before[part.count :]
                    for char in run:
                        text = (
                            text + ("0" if char == " " else char)
                            if char != " " or part.exact
                            else _with_space(text)
                        )
        elif token == ".":
            text = (text[:-1] + "0" if text.endswith(" ") else text) + "."
            behind_point = True
        elif token == "$":
            text += "$"
        elif token == "S":
            text = _before_spaces(_without_lone_point(text), "-" if negative else "+")
        elif token == "MI":
            text = _before_spaces(_without_lone_point(text), "-") if negative else text + " "
        elif token == "<":
            text += "<" if negative else ""
        else:
            text = _without_lone_point(text)
            text = _before_spaces(text, ">") if negative else text + "  "
    text = _without_lone_point(text)
    return "0" if text in ("", "+", "-") else text


def _placed(number: Decimal, tokens: tuple[Token, ...]) -> tuple[str, str]:
    """The digits before and behind the point, as many as the format has places."""
    before, _, after = format(abs(number), "f").partition(".")
    before, after = before.lstrip("0"), after.rstrip("0")
    point = tokens.index(".") if "." in tokens else len(tokens)
    places, decimals = (
        sum(part.count for token in side if isinstance(token, tuple) for part in token if part is not None)
        for side in (tokens[:point], tokens[point:])
    )
    if places < len(before) or decimals < len(after):
        before, after = "#" * places, "#" * decimals
    return before.rjust(places), after.ljust(decimals, "0")


def _before_spaces(text: str, char: str) -> str:
    """A sign, in front of the spaces at the end."""
    bare = text.rstrip(" ")
    if not bare:
        return char + text
    return bare + char + text[len(bare) :]


def _with_space(text: str) -> str:
    """A space, in front of the signs at the end."""
    bare = text.rstrip("+-<")
    return bare + " " + text[len(bare) :]


def _without_lone_point(text: str) -> str:
    at = text.find(".")
    lone = at >= 0 and text[at + 1 : at + 2] in ("", " ")
    return text[:at] + " " + text[at + 1 :] if lone else text


# ------------------------------------------------------------------ functions


def _to_number(*, fails: bool) -> Build:
    def build(call: Call, args: tuple[Compiled, ...]) -> Compiled:
        tokens = tokens_of(constant(call, 1))
        parts = decimal_parts(call.type)
        assert parts is not None
        precision, scale = parts
        kind = kernel_type(call.type)

        def twin(text: str) -> Decimal | None:
            if not text.isascii():
                raise BeyondKernel(f"{text!r} may have digits of another script")
            number = read(text, tokens, scale)
            if number is None and fails:
                raise BeyondKernel(f"{text!r} does not fit its format")
            if number is not None and number and number.adjusted() >= precision - scale:
                raise BeyondKernel(f"{text!r} has more digits than its format")
            return number

        return lambda columns, length, tick: rows_of(
            call, twin, [args[0](columns, length, tick)], length, kind
        )

    return build


def _to_char(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    tokens = tokens_of(constant(call, 1))

    def twin(number: Any) -> str:
        return written(number, tokens)

    return lambda columns, length, tick: rows_of(
        call, twin, [args[0](columns, length, tick)], length, pa.large_string()
    )


def _text_check(call: Call) -> str | None:
    if call.args[0].type != "string" or not constant(call, 1).isascii():
        return f"{call.name} over {call.args[0].type}"
    return ByRow("a text that does not fit the format, or with digits of another script")


def _number_check(call: Call) -> str | None:
    if decimal_parts(call.args[0].type) is None or not constant(call, 1).isascii():
        return f"{call.name} over {call.args[0].type}"
    return None


FUNCTIONS: dict[str, Scalar] = {
    "ToNumber": Scalar(_to_number(fails=True), both(literal_args(1), _text_check)),
    "TryToNumber": Scalar(_to_number(fails=False), both(literal_args(1), _text_check)),
    "ToCharacter": Scalar(_to_char, both(literal_args(1), _number_check)),
}
