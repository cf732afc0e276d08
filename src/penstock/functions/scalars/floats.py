"""Floating numbers as text, digit by digit as the JVM reads and writes them.

Java before 19 writes digits until the number is told apart from its neighbours, but not always as few as would do: at
powers of two, for large whole numbers and in ties it writes more. Java 19 and later write the fewest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

SHORTEST = 19  # the first Java that writes the fewest digits

# What java.lang.String.trim takes away.
_TRIMMED = "".join(map(chr, range(0x21)))
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[dDfF]?")
# Java's own words, then those that Spark adds in any case.
_WORDS = {"NaN": math.nan, "+NaN": math.nan, "-NaN": math.nan}
_FOLDED_WORDS = {
    "nan": math.nan,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-infinity": -math.inf,
}
_LARGEST = float(np.finfo(np.float32).max)
# Half way from the largest float to what would come next.
_BEYOND_LARGEST = 2.0**128 - 2.0**103


# ------------------------------------------------------------------ reading


def read_double(text: str) -> float | None:
    """The double that a text stands for, None when it is no number.

    >>> read_double(" 1e3d"), read_double("0x1p4"), read_double("-inf"), read_double("1_000")
    (1000.0, 16.0, -inf, None)
    """
    trimmed = text.strip(_TRIMMED)
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed.rstrip("dDfF"))
    hexadecimal = _HEXADECIMAL.fullmatch(trimmed)
    if hexadecimal:
        return _hexadecimal(hexadecimal[1])
    return _word(trimmed)


def read_float(text: str) -> float | None:
    """The float that a text stands for, rounded once; None when it is no number."""
    trimmed = text.strip(_TRIMMED)
    hexadecimal = _HEXADECIMAL.fullmatch(trimmed)
    if hexadecimal is None and not _DECIMAL.fullmatch(trimmed):
        return _word(trimmed)
    digits = trimmed.rstrip("dDfF") if hexadecimal is None else hexadecimal[1]
    double = float(digits) if hexadecimal is None else _hexadecimal(digits)
    middle = _middle(double)
    if middle is None:
        with np.errstate(over="ignore"):
            return float(np.float32(double))
    low, high = middle
    written = Decimal(digits) if hexadecimal is None else _exact_hexadecimal(digits)
    if written == Decimal(double):
        with np.errstate(over="ignore"):
            return float(np.float32(double))
    return low if written < Decimal(double) else high


def _word(trimmed: str) -> float | None:
    return _WORDS.get(trimmed, _FOLDED_WORDS.get(trimmed.lower()))


def _hexadecimal(digits: str) -> float:
    try:
        return float.fromhex(digits)
    except OverflowError:
        return -math.inf if digits.startswith("-") else math.inf


def _exact_hexadecimal(digits: str) -> Decimal:
    mantissa, exponent = re.split("[pP]", digits.lstrip("+-")[2:])
    integral, _, fraction = mantissa.partition(".")
    # Only called for numbers next to a float, so that the exponent is small.
    power = int(exponent) - 4 * len(fraction)
    number = int(integral + fraction or "0", 16)
    exact = Decimal(number) * Decimal(2) ** power
    return -exact if digits.startswith("-") else exact


def _middle(double: float) -> tuple[float, float] | None:
    """The two floats between which a double is exactly half way."""
    if abs(double) == _BEYOND_LARGEST:
        return (_LARGEST, math.inf) if double > 0 else (-math.inf, -_LARGEST)
    if not math.isfinite(double) or double == 0:
        return None
    with np.errstate(over="ignore", under="ignore"):
        nearest = np.float32(double)
        if not np.isfinite(nearest) or float(nearest) == double:
            return None
        other = np.nextafter(nearest, np.float32(math.inf if double > float(nearest) else -math.inf))
    low, high = sorted((float(nearest), float(other)))
    return (low, high) if (low + high) / 2 == double else None


# ------------------------------------------------------------------ writing


def write_doubles(values: Sequence[float], java: int) -> list[str]:
    """The text of doubles."""
    return [
        repr(value)
        if 1e-3 <= abs(value) < 1e7 and math.frexp(value)[0] not in (0.5, -0.5)
        else _double(value, java)
        for value in values
    ]


def write_floats(values: Sequence[float], java: int) -> list[str]:
    """The text of floats, which are given as doubles."""
    return [
        str(np.float32(value))
        if 1e-3 <= abs(value) < 1e6 and math.frexp(value)[0] not in (0.5, -0.5)
        else _float(value, java)
        for value in values
    ]


def double_digits(value: float, java: int) -> tuple[str, int]:
    """The digits of a positive double and the power of ten that the first of them is one place below."""
    if java < SHORTEST and _needs_care(value, 53):
        mantissa, exponent = _parts(value, 53, -1074)
        return _generated(mantissa, exponent)
    digits, point = _split(repr(value))
    if len(digits) == 1:
        # At least two digits are looked at, and the nearest of those is taken.
        digits, point = _split(f"{value:.1e}")
    return digits, point


def _float_digits(value: float, java: int) -> tuple[str, int]:
    if java < SHORTEST and _needs_care(value, 24):
        mantissa, exponent = _parts(value, 24, -149)
        return _generated(mantissa, exponent)
    digits, point = _split(np.format_float_scientific(np.float32(value), unique=True))
    if len(digits) == 1:
        digits, point = _split(f"{value:.1e}")
    return digits, point


def _needs_care(value: float, bits: int) -> bool:
    """Whether Java before 19 may write other digits than the fewest."""
    smallest = 2.0**-1000 if bits == 53 else 2.0**-120
    return value >= 2.0 ** (bits - 1) or value < smallest or math.frexp(value)[0] == 0.5


def _double(value: float, java: int) -> str:
    return _special(value) or _signed(value, double_digits(abs(value), java))


def _float(value: float, java: int) -> str:
    return _special(value) or _signed(value, _float_digits(abs(value), java))


def _special(value: float) -> str | None:
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    return None


def _signed(value: float, parts: tuple[str, int]) -> str:
    digits, point = parts
    sign = "-" if value < 0 else ""
    if 0 < point < 8:
        integral = digits[:point].ljust(point, "0")
        return f"{sign}{integral}.{digits[point:] or '0'}"
    if -3 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _split(text: str) -> tuple[str, int]:
    """Digits without zeros around them, and the place of the point before them, of a number that Python has written."""
    mantissa, _, exponent = text.partition("e")
    integral, _, fraction = mantissa.partition(".")
    digits = (integral + fraction).lstrip("0")
    point = len(digits) - len(fraction) + int(exponent or 0)
    return digits.rstrip("0"), point


def _parts(value: float, bits: int, lowest: int) -> tuple[int, int]:
    """A positive number as mantissa times a power of two, the mantissa as wide as the type allows."""
    fraction, exponent = math.frexp(value)
    power = max(exponent - bits, lowest)
    return int(math.ldexp(fraction, exponent - power)), power


def _generated(mantissa: int, power: int) -> tuple[str, int]:
    """Digits as Java before 19 makes them: until what is left is below half a unit in the last place, on either side."""
    width = mantissa.bit_length()
    exponent = power + width - 1  # of the leading bit
    odd = mantissa >> ((mantissa & -mantissa).bit_length() - 1)
    odd_width = odd.bit_length()
    tiny = max(0, odd_width - exponent - 1)  # bits behind the binary point
    if tiny == 0 and exponent <= 62:
        return _integer(mantissa << power if power >= 0 else mantissa >> -power, exponent - width)
    leading = odd / 2.0 ** (odd_width - 1)
    point = math.floor((leading - 1.5) * 0.289529654 + 0.176091259 + exponent * 0.301029995663981)
    fives, ten_fives = max(0, -point), max(0, point)
    twos, ten_twos, unit_twos = fives + tiny + exponent, ten_fives + tiny, fives + tiny + exponent - width
    twos -= odd_width - 1
    common = min(twos, ten_twos)
    twos, ten_twos, unit_twos = twos - common, ten_twos - common, unit_twos - common
    if odd_width == 1:
        unit_twos -= 1
    if unit_twos < 0:
        twos, ten_twos, unit_twos = twos - unit_twos, ten_twos - unit_twos, 0
    rest_bits = odd_width + twos + _five_bits(fives)
    ten_bits = ten_twos + 1 + _five_bits(ten_fives + 1)
    machine = 32 if rest_bits < 32 and ten_bits < 32 else 64 if rest_bits < 64 and ten_bits < 64 else 0
    return _digits(odd * 5**fives << twos, 5**ten_fives << ten_twos, 5**fives << unit_twos, point, machine)


def _five_bits(exponent: int) -> int:
    """The bits of a power of five, as Java estimates them."""
    return (5**exponent).bit_length() if 0 < exponent < 27 else 3 * exponent


def _integer(number: int, excess: int) -> tuple[str, int]:
    """The digits of a whole number, rounded where they are beyond the mantissa."""
    insignificant = int((excess - 1) * 0.3010299956639812) if excess > 2 else 0
    if excess <= 0:
        insignificant = 0
    if insignificant:
        ten = 10**insignificant
        number = number // ten + (number % ten >= ten // 2)
    digits = str(number)
    return digits.rstrip("0"), len(digits) + insignificant


def _wrap(number: int, machine: int) -> int:
    """What a machine word makes of a number."""
    if not machine:
        return number
    half = 1 << (machine - 1)
    return (number + half) % (1 << machine) - half


def _digits(rest: int, divisor: int, unit: int, point: int, machine: int) -> tuple[str, int]:
    tens = divisor * 10

    def step(rest: int, unit: int) -> tuple[int, int, int, bool, bool]:
        digit, rest = divmod(rest, divisor)
        rest, unit = rest * 10, _wrap(unit * 10, machine)
        if machine and unit <= 0:
            return digit, rest, unit, True, True
        above = _wrap(rest + unit, machine) > tens if machine else rest + unit >= tens
        return digit, rest, unit, rest < unit, above

    digit, rest, unit, low, high = step(rest, unit)
    digits = []
    if digit == 0 and not high:
        point -= 1
    else:
        digits.append(digit)
    if point < -3 or point >= 8:
        low = high = False
    while not low and not high:
        digit, rest, unit, low, high = step(rest, unit)
        digits.append(digit)
    text = "".join(map(str, digits))
    if high and (not low or rest * 2 > tens or (rest * 2 == tens and digits[-1] % 2)):
        text, width = str(int(text) + 1).rjust(len(digits), "0"), len(digits)
        point += len(text) - width
        text = text[:width]
    stripped = text.lstrip("0")
    text, point = stripped, point - (len(text) - len(stripped))
    return text, point + 1
