"""Sizes as users write them: integers in bytes, or "2 GB"."""

from __future__ import annotations

import re

from penstock.errors import ConfigError, suggest

_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def byte_size(value: int | str, *, what: str) -> int:
    """Return a size in bytes, at least one; `what` names it in the error.

    >>> byte_size("1.5 GB", what="memory")
    1500000000
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _wrong(f"{what} must be a number of bytes or a text, got {type(value).__name__} {value!r}")
    size = _parse(value, what) if isinstance(value, str) else value
    if size < 1:
        raise _wrong(f"{what} must be at least one byte, got {value!r}")
    return size


def _parse(text: str, what: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise _wrong(f"{what} is not a size: {text!r}")
    number, unit = match[1], match[2].lower() or "b"
    if unit not in _UNITS:
        raise _wrong(
            f"{what} has an unknown unit: {text!r}", suggest(match[2], ["KB", "MB", "GB", "GiB"], what="unit")
        )
    return int(float(number) * _UNITS[unit])


def _wrong(message: str, hint: str | None = None) -> ConfigError:
    return ConfigError(message, code="CONFIG_SIZE", hint=hint or 'write a number of bytes, or "2 GB"')
