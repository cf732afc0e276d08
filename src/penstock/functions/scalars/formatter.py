"""format_string and printf: constant formats as java.util.Formatter writes them in Locale.US.

Dates, hashes and hexadecimal doubles (%t, %h, %a), and formats that Java refuses, are Spark's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.functions.java_double import SHORTEST, double_text, float_text, formatted_digits
from penstock.functions.scalars.base import (
    FLOATING,
    INTEGRAL,
    BeyondKernel,
    ByRow,
    Columns,
    Compiled,
    Datum,
    Scalar,
    TickLike,
    array,
    both,
    constant,
    is_decimal,
    literal_args,
)
from penstock.plan.expression import Call

_DIRECTIVE = re.compile(
    r"%(?:(?P<index>[1-9]\d{0,4})\$)?(?P<flags>[-#+ "
    r"0,(<]*)(?P<width>[1-9]\d{0,5})?(?:\.(?P<precision>\d{1,6}))?(?P<conversion>[bBsScdoxXeEfgG])"
    r"|%(?P<text>[%n])",
    re.ASCII,
)
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_LEAST_GENERAL = -4  # the decimal exponent below which %g is %e
_DEFAULT_PRECISION = 6

Write = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Directive:
    """One %: which argument, counted from 0, and how it is written; the conversion is a small letter."""

    argument: int
    conversion: str
    flags: str = ""
    width: int = 0
    precision: int | None = None
    upper: bool = False


def parse(pattern: str) -> tuple[str | Directive, ...] | None:
    """The parts of a format, None for one that only Java can write or refuse.

    >>> parse("%2$s: %<05d")
    (Directive(argument=1, conversion='s', flags='', width=0, precision=None, upper=False), ': ',
    Directive(argument=1, conversion='d', flags='0', width=5, precision=None, upper=False))
    """
    parts: list[str | Directive] = []
    at, ordinary, last = 0, -1, -1
    while at < len(pattern):
        end = pattern.find("%", at)
        end = len(pattern) if end < 0 else end
        if end > at:
            parts.append(pattern[at:end])
            at = end
            continue
        match = _DIRECTIVE.match(pattern, at)
        if match is None:
            return None
        at = match.end()
        if match["text"]:
            parts.append("%" if match["text"] == "%" else "\n")
            continue
        flags = match["flags"]
        if "<" in flags:
            if match["index"] or last < 0:
                return None
        elif match["index"]:
            last = int(match["index"]) - 1
        else:
            ordinary = last = ordinary + 1
        directive = Directive(
            last,
            match["conversion"].lower(),
            flags.replace("<", "", 1),
            int(match["width"] or 0),
            None if match["precision"] is None else int(match["precision"]),
            match["conversion"].isupper(),
        )
        if not _is_allowed(directive):
            return None
        parts.append(directive)
    return tuple(parts)


# By conversion: the flags that Java takes.
_FLAGS = {
    "b": "-",
    "s": "-",
    "c": "-",
    "d": "-+ 0,(",
    "o": "-#0",
    "x": "-#0",
    "e": "-#+ 0(",
    "f": "-#+ 0,(",
    "g": "-+ 0,(",
}


def _is_allowed(directive: Directive) -> bool:
    flags = set(directive.flags)
    return (
        len(flags) == len(directive.flags)
        and flags <= set(_FLAGS[directive.conversion])
        and not {"+", " "} <= flags
        and not {"-", "0"} <= flags
        and not (flags & {"-", "0"} and not directive.width)
        and not (directive.precision is not None and directive.conversion in "cdox")
    )


# ------------------------------------------------------------------ writing


def writer(directive: Directive, kind: str, java: int) -> Write | None:
    """How an argument of a type is written; None where the kernel does not, or Java refuses it.

    >>> writer(parse("%,.2f")[0], "double", 17)(-1234.565)
    '-1,234.57'
    """
    match directive.conversion:
        case "s" | "b":
            return _text_writer(directive, kind, java)
        case "c":
            # A bigint is no character.
            return _character(directive) if kind in INTEGRAL[:3] else None
        case "d":
            return _integer(directive) if kind in INTEGRAL else None
        case "o" | "x":
            return _bits(directive, _BITS[kind]) if kind in INTEGRAL else None
        case _:
            # Java's formats began to write the shortest digits some time after its doubles did.
            return _floating(directive) if kind in FLOATING and java < SHORTEST else None


def _justified(directive: Directive, text: str) -> str:
    """A text with spaces up to the width, in units of UTF-16."""
    missing = directive.width - (len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2)
    if missing <= 0:
        return text
    return text + " " * missing if "-" in directive.flags else " " * missing + text


def _as_text(directive: Directive, text: str) -> str:
    """A text by its width and precision; NULL is one for all conversions."""
    precision = directive.precision
    if precision is not None and (not text.isascii() or len(text) > precision):
        units = text.encode("utf-16-le")[: 2 * precision]
        text = units.decode("utf-16-le", "surrogatepass").encode("utf-8", "replace").decode()
    return _justified(directive, text.upper() if directive.upper else text)


def _text_writer(directive: Directive, kind: str, java: int) -> Write | None:
    if directive.conversion == "b":
        words = {True: "true", False: "false", None: "false"}
        is_boolean = kind == "boolean"
        return lambda value: _as_text(directive, words[value if is_boolean or value is None else True])
    spelled: Write
    if kind == "string":
        if directive.upper:
            return None
        spelled = str
    elif kind in INTEGRAL or is_decimal(kind):
        spelled = str
    elif kind == "boolean":
        spelled = {True: "true", False: "false"}.__getitem__
    elif kind == "double":
        spelled = lambda value: double_text(value, java)  # noqa: E731
    elif kind == "float":
        spelled = lambda value: float_text(value, java)  # noqa: E731
    else:
        return None
    return lambda value: _as_text(directive, "null" if value is None else spelled(value))


def _character(directive: Directive) -> Write:
    def write(value: Any) -> str:
        if value is None:
            return _as_text(directive, "null")
        if not 0 <= value <= 0x10FFFF or 0xD800 <= value <= 0xDFFF:
            raise BeyondKernel(f"{value} is no character")
        return _as_text(directive, chr(value))

    return write


def _signed(directive: Directive, negative: bool, magnitude: Callable[[str, int], str]) -> str:
    """A number with its sign; the magnitude is written behind the sign that it is given, up to a width."""
    flags = directive.flags
    bracketed = negative and "(" in flags
    positive = "+" if "+" in flags else " " if " " in flags else ""
    sign = "(" if bracketed else "-" if negative else positive
    text = magnitude(sign, directive.width - bracketed)
    return _justified(directive, text + ")" * bracketed)


def _magnitude(directive: Directive, sign: str, digits: str, width: int) -> str:
    """Digits with commas and zeros in front where the flags ask for them."""
    if "," in directive.flags:
        integral, point, fraction = digits.partition(".")
        digits = f"{int(integral):,d}{point}{fraction}"
    if "0" in directive.flags:
        digits = digits.rjust(width - len(sign), "0")
    return sign + digits


def _integer(directive: Directive) -> Write:
    def write(value: Any) -> str:
        if value is None:
            return _as_text(directive, "null")
        digits = str(abs(value))
        return _signed(directive, value < 0, lambda sign, width: _magnitude(directive, sign, digits, width))

    return write


def _bits(directive: Directive, bits: int) -> Write:
    base = "o" if directive.conversion == "o" else "X" if directive.upper else "x"
    prefix = ("0" if base == "o" else f"0{base}") if "#" in directive.flags else ""

    def write(value: Any) -> str:
        if value is None:
            return _as_text(directive, "null")
        digits = format(value % (1 << bits), base)
        if "0" in directive.flags:
            digits = digits.rjust(directive.width - len(prefix), "0")
        return _justified(directive, prefix + digits)

    return write


def _floating(directive: Directive) -> Write:
    def write(value: Any) -> str:
        if value is None:
            return _as_text(directive, "null")
        if value != value:
            return _justified(directive, "NAN" if directive.upper else "NaN")
        negative = math.copysign(1, value) < 0
        if math.isinf(value):
            word = "INFINITY" if directive.upper else "Infinity"
            return _signed(directive, negative, lambda sign, width: sign + word)
        digits, exponent = _digits(directive, abs(value))

        def magnitude(sign: str, width: int) -> str:
            return _magnitude(directive, sign, digits, width - len(exponent)) + exponent

        return _signed(directive, negative, magnitude)

    return write


def _digits(directive: Directive, value: float) -> tuple[str, str]:
    """The digits of a number that is not negative, and its exponent with an e in front of it, or nothing."""
    precision = _DEFAULT_PRECISION if directive.precision is None else directive.precision
    lone_point = "." if "#" in directive.flags and precision == 0 else ""
    digits, point = formatted_digits(value) if value else ("0", 1)
    if directive.conversion == "f":
        return _fixed(digits, point, precision) + lone_point, ""
    if directive.conversion == "e":
        mantissa, exponent = _scientific(digits, point, precision)
        return mantissa + lone_point, _exponent(directive, exponent)
    precision = precision or 1
    mantissa, exponent = _scientific(digits, point, precision - 1)
    if _LEAST_GENERAL <= exponent < precision:
        return _fixed(digits, point, precision - 1 - exponent), ""
    return mantissa, _exponent(directive, exponent)


def _fixed(digits: str, point: int, places: int) -> str:
    """The number 0.digits * 10**point up to a place behind the point, rounded half up."""
    unscaled, shift = int(digits), places + point - len(digits)
    if shift >= 0:
        unscaled *= 10**shift
    else:
        unit = 10**-shift
        unscaled = (2 * unscaled + unit) // (2 * unit)
    text = str(unscaled).rjust(places + 1, "0")
    return f"{text[:-places]}.{text[-places:]}" if places else text


def _scientific(digits: str, point: int, places: int) -> tuple[str, int]:
    """One digit before the point, some behind it, and the exponent."""
    text = _fixed(digits, 1, places)
    if text.startswith("10"):
        return _fixed("1", 1, places), point
    return text, point - 1


def _exponent(directive: Directive, exponent: int) -> str:
    return f"{'E' if directive.upper else 'e'}{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


# ------------------------------------------------------------------ the function


def _writers(call: Call) -> list[str | tuple[int, Write]] | str:
    """The parts of a call's format and how each argument is written; or why that is Spark's."""
    parts = parse(constant(call, 0))
    if parts is None:
        return "a format that only Java can write"
    java = int(call.option("java", SHORTEST))
    pieces: list[str | tuple[int, Write]] = []
    for part in parts:
        if isinstance(part, str):
            pieces.append(part)
            continue
        if part.argument >= len(call.args) - 1:
            return "a format with more directives than arguments"
        kind = call.args[part.argument + 1].type
        write = writer(part, kind, java)
        if write is None:
            return f"a format of {kind} by %{part.conversion}"
        pieces.append((part.argument, write))
    return pieces


def _format_string(call: Call, args: tuple[Compiled, ...]) -> Compiled:
    pieces = _writers(call)
    assert not isinstance(pieces, str), pieces

    def run(columns: Columns, length: int, tick: TickLike) -> Datum:
        values = [array(item(columns, length, tick), length).to_pylist() for item in args[1:]]
        texts = [
            "".join(piece if isinstance(piece, str) else piece[1](values[piece[0]][row]) for piece in pieces)
            for row in range(length)
        ]
        return pa.array(texts, pa.large_string())

    return run


def _check(call: Call) -> str | None:
    pieces = _writers(call)
    if isinstance(pieces, str):
        return pieces
    parts = parse(constant(call, 0)) or ()
    if any(isinstance(part, Directive) and part.conversion == "c" for part in parts):
        return ByRow("a number that is no character")
    return None


FUNCTIONS: dict[str, Scalar] = {
    "FormatString": Scalar(_format_string, both(literal_args(0), _check)),
}
