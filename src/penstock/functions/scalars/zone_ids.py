"""Names of time zones as Java reads them, and the rules of all of them as the JVM that planned a view knows them.

A text such as '2024-01-01 10:00:00 Europe/Berlin' names its zone in the data, so that a view which reads such texts
carries a table of every zone.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from threading import Lock

from penstock.functions.scalars import zones

_DAY = 86_400
_SINGLE_HOUR = re.compile(r"([+-])([0-9]):")
_SINGLE_MINUTE = re.compile(r"([+-])([0-9][0-9]):([0-9])$")
_OFFSET = re.compile(
    r"([+-])([0-9]{1,2})|([+-])([0-9]{2})([0-9]{2})([0-9]{2})?|([+-])([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?"
)
_LAST_YEAR = 2445  # rules are laid out for 400 years behind the last change that is written down

# The names of each zone, by which it is found, and its line of the table. There is one table for a process.
_LINES: dict[str, str] = {}
_LEARNT: list[str] = []
_LEARNING = Lock()


def learn(rules: Iterable[tuple[str, Sequence[int]]], packed: str) -> None:
    """Take in what a plan says of time zones: the rules of some, and the table of all, as `pack` has made it, or nothing.

    StateError when a view of this process was planned with others; nothing has changed then.
    """
    listed = list(rules)
    with _LEARNING:
        lines = _lines(packed) if packed and packed not in _LEARNT else {}
        if lines and _LINES and lines != _LINES:
            raise zones.other_rules(_first_difference(lines))
        for zone, flat in listed:
            zones.require_same(zone, flat)
            written = _written(lines or _LINES, zone)
            if written is not None and not zones.are_same(flat, written):
                raise zones.other_rules(zone)
        for zone in zones.known() if lines else ():
            written = _written(lines, zone)
            if written is not None:
                zones.require_same(zone, written)
        for zone, flat in listed:
            zones.learn(zone, flat)
        if lines:
            _LINES.update(lines)
            _LEARNT.append(packed)
            resolve.cache_clear()


def _lines(packed: str) -> dict[str, str]:
    """The line of each name in a table."""
    lines: dict[str, str] = {}
    for line in zlib.decompress(base64.b85decode(packed)).decode().splitlines():
        names, _, rules = line.partition(" ")
        lines |= dict.fromkeys(names.split(","), rules)
    return lines


def _first_difference(lines: Mapping[str, str]) -> str:
    """A zone that is not the same in another table."""
    return next(name for name in [*lines, *_LINES] if lines.get(name) != _LINES.get(name))


def _written(lines: Mapping[str, str], zone: str) -> list[int] | None:
    """What a table says of a zone; None when it does not know it, or only as an offset."""
    line = lines.get(zone, "")
    if line.startswith("="):
        line = lines.get(line[1:], "")
    return _expanded(line) if line and not line.startswith("=") else None


def pack(table: str) -> str:
    """A table of lines as short text."""
    return base64.b85encode(zlib.compress(table.encode(), 9)).decode()


def has_zones() -> bool:
    """Whether the table of all zones is there."""
    return bool(_LINES)


def regions() -> Iterator[str]:
    """The names of all zones that stand for themselves."""
    return (name for name, line in _LINES.items() if not line.startswith("="))


@lru_cache(maxsize=4096)
def resolve(text: str) -> str | None:
    """The zone that a name stands for, as `zones` knows it; None when there is none.

    >>> resolve("+1:30"), resolve("UTC"), resolve("GMT+2"), resolve("+19:00")
    ('+01:30', 'UTC', 'GMT+02:00', None)
    """
    full = _SINGLE_MINUTE.sub(r"\1\g<2>:0\3", _SINGLE_HOUR.sub(r"\g<1>0\2:", text, count=1), count=1)
    if len(full) <= 1 or full[0] in "+-":
        return "Z" if full == "Z" else _offset_id(full)
    for prefix in ("UTC", "GMT", "UT"):
        if full.startswith(prefix):
            rest = full[len(prefix) :]
            if not rest:
                return full
            if rest[0] in "+-":
                offset = _offset_id(rest)
                return None if offset is None else prefix if offset == "Z" else prefix + offset
            break
    return _region(full)


def offset_id(seconds: int) -> str:
    """The name of an offset from UTC.

    >>> offset_id(19800), offset_id(-1), offset_id(0)
    ('+05:30', '-00:00:01', 'Z')
    """
    if not seconds:
        return "Z"
    minutes, second = divmod(abs(seconds), 60)
    text = f"{'-' if seconds < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    return f"{text}:{second:02d}" if second else text


def _offset_id(text: str) -> str | None:
    match = _OFFSET.fullmatch(text)
    if match is None:
        return None
    sign, hour, minute, second = [item for item in match.groups() if item is not None] + ["0"] * (
        4 - sum(item is not None for item in match.groups())
    )
    if int(minute) > 59 or int(second) > 59:
        return None
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
    return None if seconds > 18 * 3600 else offset_id(-seconds if sign == "-" else seconds)


def _region(name: str) -> str | None:
    if zones.has_rules(name):
        return name
    line = _LINES.get(name)
    if line is None:
        return None
    if line.startswith("="):
        return resolve(line[1:])
    zones.learn(name, _expanded(line))
    return name


def _expanded(line: str) -> list[int]:
    """The first offset, then pairs of instant and offset behind it: what `zones.learn` takes."""
    first, changes, rules = line.split(";")
    flat = [int(first)]
    instant = 0
    numbers = [int(item) for item in changes.split()]
    for step, offset in zip(numbers[::2], numbers[1::2], strict=True):
        instant += step
        flat += [instant, offset]
    yearly = [[int(item) for item in rule.split(",")] for rule in rules.split()]
    if not yearly:
        return flat
    begin = zones.civil_from_days((instant + flat[-1]) // _DAY)[0]
    for year in range(begin, _LAST_YEAR):
        for at, offset in sorted(_change(year, rule) for rule in yearly):
            if at > instant:
                flat += [at, offset]
    return flat


def _change(year: int, rule: Sequence[int]) -> tuple[int, int]:
    """When a yearly rule changes the offset, and to what."""
    month, day, weekday, second, definition, standard, before, after = rule
    if day < 0:
        days = zones.days_from_civil(year, month, zones.month_length(year, month) + 1 + day)
        assert days is not None
        days -= (days + 3 - (weekday - 1)) % 7 if weekday else 0
    else:
        days = zones.days_from_civil(year, month, day)
        assert days is not None
        days += (weekday - 1 - (days + 3)) % 7 if weekday else 0
    offset = (0, before, standard)[definition]
    return days * _DAY + second - offset, after
