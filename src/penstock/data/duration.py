"""Durations as users write them: integers in milliseconds, "5 seconds", or a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta

from penstock.errors import ConfigError, suggest

TAKEN = "an integer in milliseconds, a string such as '5 seconds', or a timedelta"

_UNITS = {
    "us": 0.001,
    "microsecond": 0.001,
    "ms": 1,
    "millisecond": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
}
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]*)\s*,?")


def milliseconds(value: int | str | timedelta, *, what: str = "the duration") -> int:
    """Return a duration in whole milliseconds; `what` names it in the error.

    >>> milliseconds("1 minute 30 seconds")
    90000
    """
    if isinstance(value, bool) or not isinstance(value, int | str | timedelta):
        raise _wrong(f"{what} must be {TAKEN}, got {type(value).__name__} {value!r}")
    if isinstance(value, timedelta):
        result = value // timedelta(milliseconds=1)
    elif isinstance(value, int):
        result = value
    else:
        result = _parse(value, what)
    if result < 0:
        raise _wrong(f"{what} cannot be negative, got {value!r}")
    return result


def _parse(text: str, what: str) -> int:
    words = text.strip().removeprefix("interval ").removeprefix("INTERVAL ")
    if not words:
        raise _wrong(f"{what} is empty")
    total, at = 0.0, 0
    while at < len(words):
        match = _PART.match(words, at)
        if match is None:
            raise _wrong(f"{what} is not a duration: {text!r}")
        total += float(match[1]) * _unit(match[2], text, what)
        at = match.end()
    return round(total)


def _unit(word: str, text: str, what: str) -> float:
    if not word:
        return 1
    name = word.lower().replace("µs", "us")
    unit = _UNITS.get(name) or _UNITS.get(name.removesuffix("s"))
    if unit is None:
        raise _wrong(
            f"{what} has an unknown unit '{word}' in {text!r}", hint=suggest(word, _UNITS, what="unit")
        )
    return unit


def _wrong(
    message: str, hint: str = "write 500, '500 ms', '5 seconds' or '1 hour 30 minutes'"
) -> ConfigError:
    return ConfigError(message, code="CONFIG_DURATION", hint=hint)
