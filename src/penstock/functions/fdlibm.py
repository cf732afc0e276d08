"""Exponentials, logarithms and powers of doubles, bit for bit as Java's StrictMath.

StrictMath is specified as the results of the C library fdlibm. NumPy's and the platform's own functions differ from
it in the last bit now and then, so its algorithms are here, over whole arrays: the argument is reduced to a small
range, a polynomial is evaluated there, in the same order of operations, and the exponent is put back. All branches
are computed and the right one is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import numpy as np
import numpy.typing as npt

from penstock.data.arrays import Bools, Floats, Ints

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_TWO_54 = 1.80143985094819840000e16
_LOW_BITS = np.int64(0xFFFFFFFF)
_EXP = (
    1.66666666666666019037e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)


def _quiet(function: Callable[..., Floats]) -> Callable[..., Floats]:
    """Infinities and NaN are results here, and say nothing to the user."""

    @wraps(function)
    def run(*values: Floats) -> Floats:
        with np.errstate(all="ignore"):
            return function(*values)

    return run


def _bits(values: Floats) -> Ints:
    return np.ascontiguousarray(values).view(np.int64)


def _high(values: Floats) -> Ints:
    """The upper 32 bits: sign, exponent and the first bits of the fraction."""
    return _bits(values) >> 32


def _with_high(values: Floats, high: Ints) -> Floats:
    return ((high << 32) | (_bits(values) & _LOW_BITS)).view(np.float64)


def _upper_half(values: Floats) -> Floats:
    """The value with the lower 32 bits cleared."""
    return (_bits(values) & ~_LOW_BITS).view(np.float64)


def _scaled(values: Floats, exponent: Ints) -> Floats:
    """Values near 1 times a power of two, rounded once where the result is subnormal."""
    bits = _bits(values)
    normal = (bits + (exponent << 52)).view(np.float64)
    tiny = (bits + ((exponent + 1000) << 52)).view(np.float64) * 2.0**-1000
    return np.where(exponent >= -1021, normal, tiny)


def _polynomial(t: Floats) -> Floats:
    p1, p2, p3, p4, p5 = _EXP
    return t * (p1 + t * (p2 + t * (p3 + t * (p4 + t * p5))))


@_quiet
def exp(x: Floats) -> Floats:
    """e to the power of x."""
    size = _high(x) & 0x7FFFFFFF
    sign = np.where(np.signbit(x), -1, 1)
    reduced, near = size > 0x3FD62E42, size < 0x3FF0A2B2
    clean = np.where(np.isfinite(x) & (np.abs(x) < 1000), x, 0.0)
    k = np.where(near, sign, (1.44269504088896338700 * clean + 0.5 * sign).astype(np.int64))
    k = np.where(reduced, k, 0)
    high = clean - k * _LN2_HIGH
    low = k * _LN2_LOW
    rest = np.where(reduced, high - low, clean)
    t = rest * rest
    c = rest - _polynomial(t)
    small = 1.0 - ((rest * c) / (c - 2.0) - rest)
    large = _scaled(1.0 - ((low - (rest * c) / (2.0 - c)) - high), k)
    result = np.where(reduced, large, np.where(size < 0x3E300000, 1.0 + clean, small))
    result = np.where(x > 7.09782712893383973096e02, np.inf, result)
    result = np.where(x < -7.45133219101941108420e02, 0.0, result)
    return np.where(np.isnan(x), x, result)


_LOG = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)


def _parts(x: Floats) -> tuple[Floats, Ints]:
    """A positive finite number, made normal, and the exponent that was taken out for that."""
    tiny = x < 2.2250738585072014e-308
    return np.where(tiny, x * _TWO_54, x), np.where(tiny, -54, 0)


@_quiet
def log(x: Floats) -> Floats:
    """The natural logarithm; NaN below zero, minus infinity at zero."""
    usable = np.isfinite(x) & (x > 0)
    y, k = _parts(np.where(usable, x, 1.0))
    high = _high(y)
    k = k + (high >> 20) - 1023
    high = high & 0xFFFFF
    half = (high + 0x95F64) & 0x100000
    y = _with_high(y, high | (half ^ 0x3FF00000))
    k = k + (half >> 20)
    f = y - 1.0
    dk = k.astype(np.float64)
    result = np.where((0xFFFFF & (2 + high)) < 3, _log_near_one(f, dk), _log_elsewhere(f, dk, high))
    return _at_the_ends(x, result)


def _log_near_one(f: Floats, dk: Floats) -> Floats:
    r = f * f * (0.5 - 0.33333333333333333 * f)
    result = np.where(dk == 0, f - r, dk * _LN2_HIGH - ((r - dk * _LN2_LOW) - f))
    power = np.where(dk == 0, 0.0, dk * _LN2_HIGH + dk * _LN2_LOW)
    return np.where(f == 0, power, result)


def _log_elsewhere(f: Floats, dk: Floats, high: Ints) -> Floats:
    g1, g2, g3, g4, g5, g6, g7 = _LOG
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    t1 = w * (g2 + w * (g4 + w * g6))
    t2 = z * (g1 + w * (g3 + w * (g5 + w * g7)))
    r = t2 + t1
    square = 0.5 * f * f
    inner = np.where(
        dk == 0,
        f - (square - s * (square + r)),
        dk * _LN2_HIGH - ((square - (s * (square + r) + dk * _LN2_LOW)) - f),
    )
    outer = np.where(dk == 0, f - s * (f - r), dk * _LN2_HIGH - ((s * (f - r) - dk * _LN2_LOW) - f))
    return np.where(((high - 0x6147A) | (0x6B851 - high)) > 0, inner, outer)


def _at_the_ends(x: Floats, result: Floats) -> Floats:
    """A logarithm where its argument is no positive finite number."""
    result = np.where(x == 0, -np.inf, result)
    result = np.where((x < 0) | np.isnan(x), np.nan, result)
    return np.where(x == np.inf, np.inf, result)


@_quiet
def log10(x: Floats) -> Floats:
    """The decimal logarithm."""
    usable = np.isfinite(x) & (x > 0)
    y, k = _parts(np.where(usable, x, 1.0))
    high = _high(y)
    k = k + (high >> 20) - 1023
    below = np.where(k < 0, 1, 0)
    exponent = (k + below).astype(np.float64)
    y = _with_high(y, (high & 0xFFFFF) | ((0x3FF - below) << 20))
    z = exponent * 3.69423907715893078616e-13 + 4.34294481903251816668e-01 * log(y)
    return _at_the_ends(x, z + exponent * 3.01029995663611771306e-01)


_POW = (
    5.99999999999994648725e-01,
    4.28571428578550184252e-01,
    3.33333329818377432918e-01,
    2.72728123808534006489e-01,
    2.30660745775561754067e-01,
    2.06975017800338417784e-01,
)
_CP, _CP_HIGH, _CP_LOW = 9.61796693925975554329e-01, 9.61796700954437255859e-01, -7.02846165095275826516e-09
_DP_HIGH, _DP_LOW = 5.84962487220764160156e-01, 1.35003920212974897128e-08
_OVER = 8.0085662595372944372e-17  # what the exponent of the greatest number lacks to 1024
_LG2, _LG2_HIGH, _LG2_LOW = (
    6.93147180559945286227e-01,
    6.93147182464599609375e-01,
    -1.90465429995776804525e-09,
)
_INV_LN2, _INV_LN2_HIGH, _INV_LN2_LOW = (
    1.44269504088896338700e00,
    1.44269502162933349609e00,
    1.92596299112661746887e-08,
)


@_quiet
def pow(x: Floats, y: Floats) -> Floats:
    """x to the power of y."""
    kind = _integer_kind(y)
    base = np.abs(x)
    plain = np.isfinite(x) & np.isfinite(y) & (base != 0) & (base != 1) & (y != 0)
    ax, ay = np.where(plain, base, 2.0), np.where(plain, y, 1.0)
    huge = (_high(ay) & 0x7FFFFFFF) > 0x41E00000
    t1, t2 = _log2_near_one(ax)
    u1, u2 = _log2(ax)
    t1, t2 = np.where(huge, t1, u1), np.where(huge, t2, u2)
    sign = np.where((x < 0) & (kind == 1), -1.0, 1.0)
    result = _two_to(ay, t1, t2, sign)
    result = np.where(huge & plain, _far(ax, ay, result, sign), result)
    result = np.where(plain & (x < 0) & (kind == 0), np.nan, result)
    result = _special_powers(x, y, base, kind, plain, result)
    result = np.where(y == 2.0, x * x, np.where(y == 0.5, np.sqrt(x + 0.0), result))
    result = np.where(y == 1.0, x, np.where(y == -1.0, 1.0 / x, result))
    return np.where((y == 0.5) & (x == -np.inf), np.inf, result)


def _integer_kind(y: Floats) -> npt.NDArray[np.int64]:
    """0 for an exponent that is no integer, 1 for an odd one, 2 for an even one."""
    is_integer = np.isfinite(y) & (np.trunc(y) == y)
    odd = is_integer & (np.abs(y) < 2.0**53) & (np.fmod(y, 2.0) != 0)
    return np.where(odd, 1, np.where(is_integer, 2, 0))


def _far(ax: Floats, y: Floats, result: Floats, sign: Floats) -> Floats:
    """Powers with an exponent above 2**31: too large or too small, unless the base is next to 1."""
    size, high = _high(y) & 0x7FFFFFFF, _high(ax)
    up = np.where(y < 0, np.inf, 0.0)
    out = np.where(high < 0x3FEFFFFF, up, np.where(high > 0x3FF00000, np.where(y > 0, np.inf, 0.0), result))
    beyond = size > 0x43F00000
    ends = np.where(high <= 0x3FEFFFFF, up, np.where(high >= 0x3FF00000, np.where(y > 0, np.inf, 0.0), out))
    decided = beyond | (high < 0x3FEFFFFF) | (high > 0x3FF00000)
    return np.where(decided, sign * np.where(beyond, ends, out), result)


def _log2_near_one(ax: Floats) -> tuple[Floats, Floats]:
    """The binary logarithm of a number next to 1, in two parts."""
    t = ax - 1.0
    w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25))
    u = _INV_LN2_HIGH * t
    v = t * _INV_LN2_LOW - w * _INV_LN2
    t1 = _upper_half(u + v)
    return t1, v - (t1 - u)


def _log2(ax: Floats) -> tuple[Floats, Floats]:
    """The binary logarithm of a positive number, in two parts, to more than 64 bits."""
    tiny = ax < 2.2250738585072014e-308
    ax = np.where(tiny, ax * 9007199254740992.0, ax)
    high = _high(ax)
    n = np.where(tiny, -53, 0) + (high >> 20) - 0x3FF
    j = high & 0xFFFFF
    k = np.where(j <= 0x3988E, 0, np.where(j < 0xBB67A, 1, 0))
    n = n + (j >= 0xBB67A)
    top = (j | 0x3FF00000) - np.where(j >= 0xBB67A, 0x100000, 0)
    ax = _with_high(ax, top)
    middle = np.where(k == 1, 1.5, 1.0)
    u = ax - middle
    v = 1.0 / (ax + middle)
    s = u * v
    s_high = _upper_half(s)
    t_high = (((top >> 1) | 0x20000000) + 0x00080000 + (k << 18) << 32).view(np.float64)
    t_low = ax - (t_high - middle)
    s_low = v * ((u - s_high * t_high) - s_high * t_low)
    s2 = s * s
    l1, l2, l3, l4, l5, l6 = _POW
    r = s2 * s2 * (l1 + s2 * (l2 + s2 * (l3 + s2 * (l4 + s2 * (l5 + s2 * l6)))))
    r = r + s_low * (s_high + s)
    s2 = s_high * s_high
    t_high = _upper_half(3.0 + s2 + r)
    t_low = r - ((t_high - 3.0) - s2)
    u = s_high * t_high
    v = s_low * t_high + t_low * s
    p_high = _upper_half(u + v)
    p_low = v - (p_high - u)
    z_high = _CP_HIGH * p_high
    z_low = _CP_LOW * p_high + p_low * _CP + np.where(k == 1, _DP_LOW, 0.0)
    exponent = n.astype(np.float64)
    more = np.where(k == 1, _DP_HIGH, 0.0)
    t1 = _upper_half(((z_high + z_low) + more) + exponent)
    return t1, z_low - (((t1 - exponent) - more) - z_high)


def _two_to(y: Floats, t1: Floats, t2: Floats, sign: Floats) -> Floats:
    """2 to the power of y times a logarithm of two parts."""
    y1 = _upper_half(y)
    p_low = (y - y1) * t1 + y * t2
    p_high = y1 * t1
    z = p_low + p_high
    over = (z > 1024.0) | ((z == 1024.0) & (p_low + _OVER > z - p_high))
    under = (z < -1075.0) | ((z == -1075.0) & (p_low <= z - p_high))
    z = np.where(over | under, 0.0, z)
    p_high, p_low = np.where(over | under, 0.0, p_high), np.where(over | under, 0.0, p_low)
    size = _high(z) & 0x7FFFFFFF
    shift = (size >> 20) - 0x3FF
    far = size > 0x3FE00000
    n = np.where(far, _rounded_exponent(z, np.clip(shift, 0, 20)), 0)
    p_high = np.where(far, p_high - n.astype(np.float64), p_high)
    t = _upper_half(p_low + p_high)
    u = t * _LG2_HIGH
    v = (p_low - (t - p_high)) * _LG2 + t * _LG2_LOW
    z = u + v
    w = v - (z - u)
    t = z * z
    t1 = z - _polynomial(t)
    r = (z * t1) / (t1 - 2.0) - (w + z * w)
    z = 1.0 - (r - z)
    high = _high(z) + (n << 20)
    scaled = np.where((high >> 20) <= 0, np.ldexp(z, n.astype(np.int32)), _with_high(z, high))
    result = np.where(over, np.inf, np.where(under, 0.0, scaled))
    return sign * result


def _rounded_exponent(z: Floats, shift: Ints) -> Ints:
    """The nearest integer of a number, as the sum of its bits gives it."""
    high = _high(z)
    n = high + (0x00100000 >> (shift + 1))
    k = np.clip(((n & 0x7FFFFFFF) >> 20) - 0x3FF, 0, 20)
    magnitude = ((n & 0xFFFFF) | 0x00100000) >> (20 - k)
    result: Ints = np.where(high < 0, -magnitude, magnitude)
    return result


def _special_powers(
    x: Floats, y: Floats, base: Floats, kind: npt.NDArray[np.int64], plain: Bools, result: Floats
) -> Floats:
    """Powers of, and to, zeros, ones, infinities and NaN."""
    inverse = np.where(y < 0, 1.0 / base, base)
    inverse = np.where((x < 0) | ((x == 0) & np.signbit(x)), np.where(kind == 1, -inverse, inverse), inverse)
    inverse = np.where((x == -1.0) & (kind == 0), np.nan, inverse)
    edges = (base == 0) | (base == 1) | np.isinf(base)
    special = np.where(edges, inverse, np.nan)
    grows = np.where(base > 1, y > 0, y < 0)
    special = np.where(np.isinf(y), np.where(base == 1, np.nan, np.where(grows, np.inf, 0.0)), special)
    special = np.where(np.isnan(x) | np.isnan(y), np.nan, special)
    special = np.where(y == 0, 1.0, special)
    return np.where(plain, result, special)
