"""Doubles and floats as Java writes them: Double.toString and Float.toString.

Since Java 19 the digits are the fewest that read back as the same number. Before, an older algorithm gave more than
that for some numbers: powers of two, large whole numbers, and others of 16 digits and more.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from fractions import Fraction

import numpy as np

SHORTEST = 19  # the first Java that writes the shortest digits
_MANTISSA = 52
_SINGLE_MANTISSA = 23


def double_text(value: float, java: int) -> str:
    """The text of a double.

    >>> double_text(1e7, 17), double_text(0.001, 17), double_text(2.0**-44, 17), double_text(2.0**-44, 21)
    ('1.0E7', '0.001', '5.6843418860808015E-14', '5.684341886080802E-14')
    """
    special = _special(value)
    if special is not None:
        return special
    digits, exponent = _digits(repr(abs(value)))
    if java >= SHORTEST:
        if len(digits) == 1:
            digits, exponent = _digits(f"{abs(value):.1e}")
    elif len(digits) > 15 or abs(value) >= 2.0**53 or math.frexp(value)[0] in (0.5, -0.5):
        digits, exponent = _older(*_double_bits(abs(value)))
    return _written(value, digits, exponent)


def float_text(value: float, java: int) -> str:
    """The text of a float.

    >>> float_text(0.1, 17), float_text(3.4028234663852886e38, 17)
    ('0.1', '3.4028235E38')
    """
    special = _special(value)
    if special is not None:
        return special
    if java >= SHORTEST:
        digits, exponent = _digits(np.format_float_scientific(np.float32(abs(value)), unique=True))
        if len(digits) == 1:
            digits, exponent = _digits(f"{abs(value):.1e}")
    else:
        digits, exponent = _older(*_single_bits(abs(value)))
    return _written(value, digits, exponent)


def formatted_digits(value: float) -> tuple[str, int]:
    """The digits that the formats of Java before 19 begin with, and where the point is; the number is above zero and finite.

    >>> formatted_digits(0.5), formatted_digits(2.0**-44)
    (('5', 0), ('56843418860808015', -13))
    """
    return _older(*_double_bits(value), least_digits=2)


def _special(value: float) -> str | None:
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1.0, value) < 0 else "0.0"
    return None


def _digits(text: str) -> tuple[str, int]:
    """The significant digits of a decimal text, and the place of the point relative to the first of them."""
    mantissa, _, power = text.partition("e")
    integral, _, fraction = mantissa.partition(".")
    digits = (integral + fraction).lstrip("0")
    point = len(integral.lstrip("0")) if integral.strip("0") else len(fraction.lstrip("0")) - len(fraction)
    return digits.rstrip("0") or "0", point + int(power or 0)


def _written(value: float, digits: str, point: int) -> str:
    sign = "-" if value < 0 else ""
    if 0 < point < 8:
        integral, fraction = digits[:point].ljust(point, "0"), digits[point:]
        return f"{sign}{integral}.{fraction or '0'}"
    if -3 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _double_bits(value: float) -> tuple[int, int, int]:
    """The 53 bits of a number from its first one on, its binary exponent, and how many of the bits are significant."""
    bits = int.from_bytes(struct.pack(">d", value), "big")
    exponent, fraction = bits >> _MANTISSA, bits & ((1 << _MANTISSA) - 1)
    if exponent:
        return fraction | 1 << _MANTISSA, exponent - 1023, _MANTISSA + 1
    missing = _MANTISSA + 1 - fraction.bit_length()
    return fraction << missing, 1 - missing - 1023, fraction.bit_length()


def _single_bits(value: float) -> tuple[int, int, int]:
    bits = int.from_bytes(struct.pack(">f", value), "big")
    exponent, fraction = bits >> _SINGLE_MANTISSA, bits & ((1 << _SINGLE_MANTISSA) - 1)
    wider = _MANTISSA - _SINGLE_MANTISSA
    if exponent:
        return (fraction | 1 << _SINGLE_MANTISSA) << wider, exponent - 127, _SINGLE_MANTISSA + 1
    missing = _SINGLE_MANTISSA + 1 - fraction.bit_length()
    return fraction << (missing + wider), 1 - missing - 127, fraction.bit_length()


def _older(bits: int, binary: int, significant: int, *, least_digits: int = 1) -> tuple[str, int]:
    """The digits that Java before 19 gives, and where the point is; numbers that are written with an exponent have
    two at least."""
    zeros = (bits & -bits).bit_length() - 1
    width = _MANTISSA + 1 - zeros
    tiny = max(0, width - binary - 1)
    if -21 <= binary <= 62 and tiny == 0 and width < 64:
        return _integer_digits(bits, binary, significant)
    return _generated_digits(bits >> zeros, width, binary, tiny, significant, bits, least_digits)


def _integer_digits(bits: int, binary: int, significant: int) -> tuple[str, int]:
    """A whole number: digits below the precision are cut off, rounded half up."""
    power = binary - significant - 1
    dropped = len(str(2**power)) - 1 if binary > significant and power > 1 else 0
    value = bits << (binary - _MANTISSA) if binary >= _MANTISSA else bits >> (_MANTISSA - binary)
    if dropped:
        unit = 10**dropped
        value, rest = divmod(value, unit)
        value += rest >= unit >> 1
    text = str(value)
    return text.rstrip("0"), len(text) + dropped


def _generated_digits(
    odd: int, width: int, binary: int, tiny: int, significant: int, bits: int, least_digits: int
) -> tuple[str, int]:
    """Digits one by one, until what is left is below half a unit in the last place of the number."""
    leading = struct.unpack(">d", ((1023 << _MANTISSA) | bits & ((1 << _MANTISSA) - 1)).to_bytes(8, "big"))[0]
    estimate = (leading - 1.5) * 0.289529654 + 0.176091259 + binary * 0.301029995663981
    decimal = math.floor(estimate)
    fives, fives_below = max(0, -decimal), max(0, decimal)
    twos, twos_below = fives + tiny + binary, fives_below + tiny
    half = twos - significant
    twos -= width - 1
    common = min(twos, twos_below)
    twos, twos_below, half = twos - common, twos_below - common, half - common
    if width == 1:
        half -= 1
    if half < 0:
        twos, twos_below, half = twos - half, twos_below - half, 0
    rest, below, near = odd * 5**fives << twos, 5**fives_below << twos_below, 5**fives << half
    most = max(width + twos + _bits_of_five(fives), twos_below + 1 + _bits_of_five(fives_below + 1))
    word = 32 if most < 32 else 64 if most < 64 else 0
    return _developed(rest, below, near, decimal, word=word, least_digits=least_digits)


def _bits_of_five(power: int) -> int:
    return (5**power).bit_length() if power < 28 else power * 3


def _wrapped(value: int, word: int) -> int:
    """A number as a machine word of so many bits has it; 0 bits for any size."""
    half = 1 << word >> 1
    return (value + half) % (1 << word) - half if word else value


def _developed(
    rest: int, below: int, near: int, decimal: int, *, word: int, least_digits: int
) -> tuple[str, int]:
    """The digits of rest / below, as far as `near` allows; in machine words for small numbers, with their overflow."""
    tens = below * 10
    digits: list[int] = []

    def following() -> tuple[int, bool, bool]:
        nonlocal rest, near
        digit, rest = divmod(rest, below)
        rest, near = rest * 10, _wrapped(near * 10, word)
        if digits and near <= 0:
            return digit, True, True
        # Machine words are compared by > at the upper end, numbers of any size by >=.
        above = _wrapped(rest + near, word)
        return digit, rest < near, above > tens or (not word and above == tens)

    digit, low, high = following()
    if digit == 0 and not high:
        decimal -= 1
    else:
        digits.append(digit)
    if decimal < -3 or decimal >= 8 or least_digits > 1:
        low = high = False  # at least one digit behind the point
    while not low and not high:
        digit, low, high = following()
        digits.append(digit)
    # Words of 32 bits are widened before they are compared, after they have overflowed.
    twice = _wrapped(_wrapped(2 * rest, word) - tens, word)
    if high and (not low or twice > 0 or (twice == 0 and digits[-1] % 2)):
        digits, decimal = _rounded_up(digits, decimal)
    return "".join(map(str, digits)).rstrip("0") or "0", decimal + 1


def _rounded_up(digits: list[int], decimal: int) -> tuple[list[int], int]:
    number = str(int("".join(map(str, digits))) + 1)
    if len(number) > len(digits) and digits[0] != 0:
        return [int(char) for char in number[:-1]], decimal + 1
    return [int(char) for char in number.rjust(len(digits), "0")], decimal


def nearest_float(text: str) -> float:
    """The float next to a decimal number, rounded once, as Float.parseFloat does.

    >>> nearest_float("1.1"), nearest_float("1e40")
    (1.100000023841858, inf)
    """
    middle = float(text)
    if math.isinf(middle) or middle == 0:
        return middle
    with np.errstate(over="ignore", under="ignore"):
        low = float(np.float32(math.nextafter(middle, -math.inf)))
        high = float(np.float32(math.nextafter(middle, math.inf)))
        nearest = float(np.float32(middle))
    if low == high:
        return nearest
    exact = Fraction(Decimal(text))
    if exact == Fraction(middle):
        return nearest
    # Only the nearest double is half way between two floats; the number itself is on one side of it.
    return low if exact < Fraction(middle) else high
