"""Civil dates beyond Python's range, and local time in the session's zone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StateError
from penstock.functions.scalars.base import Datum, from_numbers, numbers, valid_mask

_UTC = {
    "UTC",
    "Z",
    "GMT",
    "Etc/UTC",
    "UCT",
    "Etc/UCT",
    "Zulu",
    "Etc/Zulu",
    "Universal",
    "Greenwich",
    "GMT0",
    "UT",
}
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?")
_DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_leap(year: int) -> bool:
    """Say whether a year of the proleptic Gregorian calendar has 366 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def month_length(year: int, month: int) -> int:
    """The number of days of a month."""
    return 29 if month == 2 and is_leap(year) else _DAYS_IN_MONTH[month - 1]


def days_from_civil(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01, None when there is no such day."""
    if not 1 <= month <= 12 or not 1 <= day <= month_length(year, month):
        return None
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146097 + day_of_era - 719468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970-01-01."""
    era, day_of_era = divmod(days + 719468, 146097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    index = (5 * day_of_year + 2) // 153
    month = index + (3 if index < 10 else -9)
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * index + 2) // 5 + 1


@lru_cache(maxsize=64)
def fixed_offset(zone: str | None) -> int | None:
    """The offset of a zone that never changes, in microseconds; None for the others."""
    if zone is None or zone in _UTC:
        return 0
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)
    return (-1 if match[1] == "-" else 1) * seconds * 1_000_000


@dataclass(frozen=True, slots=True)
class ZoneRules:
    """When the offset of a zone changes, as the JVM that planned the view knows it; all in microseconds."""

    instants: npt.NDArray[np.int64]  # of the changes
    offsets: npt.NDArray[np.int64]  # before the first change, then after each
    locals: npt.NDArray[np.int64]  # local time from which the offset after a change counts
    repeats: bool  # whether the changes of the last 400 years go on for ever


# One set of rules for a process: views with others are refused, so that what is here never changes.
_RULES: dict[str, ZoneRules] = {}
_CYCLE = 146_097 * 86_400_000_000  # 400 years, after which weekdays and leap years repeat
_YEAR_2300 = 10_413_792_000_000_000
_YEAR_2444 = 14_957_136_000_000_000  # up to here all rules are laid out


def learn(zone: str, flat: Sequence[int]) -> None:
    """Take in a zone's first offset, then pairs of instant and offset after it, in seconds, for 400 years of its last rules.

    StateError when other rules of the zone are known.
    """
    require_same(zone, flat)
    if zone not in _RULES:
        _RULES[zone] = _rules(flat)


def require_same(zone: str, flat: Sequence[int]) -> None:
    """StateError when other rules of a zone are known."""
    if zone in _RULES and not _are_equal(_RULES[zone], _rules(flat)):
        raise other_rules(zone)


def known() -> tuple[str, ...]:
    """The zones whose rules are known."""
    return tuple(_RULES)


def are_same(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether two lists, as `learn` takes them, are the same rules."""
    return _are_equal(_rules(first), _rules(second))


def other_rules(zone: str) -> StateError:
    """The error for a view that was planned with other rules of a zone than views that run."""
    return StateError(
        f"the view was planned with other rules of the time zone {zone} than other views of this process",
        code="STATE_ZONE_RULES",
        hint="a view keeps the rules of the Java that has planned it, and a process has one set of "
        "them: open the older views in a process of their own, "
        "register them again in a new flow, or use the Java that has planned them",
    )


def _rules(flat: Sequence[int]) -> ZoneRules:
    instants = np.array(flat[1::2], np.int64) * 1_000_000
    offsets = np.array([flat[0], *flat[2::2]], np.int64) * 1_000_000
    repeats = bool(len(instants)) and int(instants[-1]) > _YEAR_2300
    return ZoneRules(instants, offsets, instants + np.maximum(offsets[:-1], offsets[1:]), repeats)


def _are_equal(first: ZoneRules, second: ZoneRules) -> bool:
    ends = [int(np.searchsorted(rules.instants, _YEAR_2444)) for rules in (first, second)]
    return (
        first.repeats == second.repeats
        and np.array_equal(first.instants[: ends[0]], second.instants[: ends[1]])
        and np.array_equal(first.offsets[: ends[0] + 1], second.offsets[: ends[1] + 1])
    )


def has_rules(zone: str) -> bool:
    """Say whether the rules of a zone that is no fixed offset have been learnt."""
    return zone in _RULES


def reason(zone: str | None) -> str | None:
    """Why local time in a zone is left to Spark, None when the kernel knows the zone."""
    if fixed_offset(zone) is None and zone not in _RULES:
        return f"local time of {zone}, whose rules are not known"
    return None


def _folded(moments: npt.NDArray[np.int64], last: np.int64) -> npt.NDArray[np.int64]:
    """Moments behind the last known change, moved back by whole cycles into the time that the rules cover."""
    # Not below the last change, where the difference may overflow.
    beyond = np.maximum(moments, last) - last
    return np.where(beyond > 0, moments - (beyond // _CYCLE + 1) * _CYCLE, moments)


def offsets_at(instants: npt.NDArray[np.int64], zone: str | None) -> npt.NDArray[np.int64]:
    """The zone's offset at each instant."""
    fixed = fixed_offset(zone)
    if fixed is not None:
        return np.full(len(instants), fixed, np.int64)
    rules = _RULES[str(zone)]
    if rules.repeats:
        instants = _folded(instants, rules.instants[-1])
    return rules.offsets[np.searchsorted(rules.instants, instants, side="right")]


def instants_of(local: npt.NDArray[np.int64], zone: str | None) -> npt.NDArray[np.int64]:
    """The instant of local time: the earlier one where clocks go back, moved on by the gap where they go forward."""
    fixed = fixed_offset(zone)
    if fixed is not None:
        return local - fixed
    rules = _RULES[str(zone)]
    inside = _folded(local, rules.locals[-1]) if rules.repeats else local
    return local - rules.offsets[np.searchsorted(rules.locals, inside, side="right")]


def keeping(
    local: npt.NDArray[np.int64], offset: npt.NDArray[np.int64], zone: str | None
) -> npt.NDArray[np.int64]:
    """The instant of local time, with the given offset where that is one of its offsets."""
    instants = local - offset
    return np.where(offsets_at(instants, zone) == offset, instants, instants_of(local, zone))


def day_starts(days: npt.NDArray[np.int64], zone: str | None) -> npt.NDArray[np.int64]:
    """The first instant of each day, which is not midnight where clocks go forward at midnight."""
    local = days * 86_400_000_000
    instants = instants_of(local, zone)
    late = instants + offsets_at(instants, zone) != local
    if late.any():
        rules = _RULES[str(zone)]
        inside = _folded(instants, rules.instants[-1]) if rules.repeats else instants
        changes = rules.instants[np.searchsorted(rules.instants, inside, side="right") - 1] + (
            instants - inside
        )
        instants = np.where(late, changes, instants)
    return instants


def to_local(value: Datum, zone: str | None) -> Datum:
    """An instant as local time without a zone."""
    plain = pc.cast(value, pa.timestamp("us"))
    if fixed_offset(zone) == 0:
        return plain
    return _mapped(plain, lambda micros: micros + offsets_at(micros, zone), pa.timestamp("us"))


def to_instant(value: Datum, zone: str | None) -> Datum:
    """Local time as an instant."""
    kind = pa.timestamp("us", tz="UTC")
    if fixed_offset(zone) == 0:
        return pc.cast(value, kind)
    return _mapped(value, lambda micros: instants_of(micros, zone), kind)


def start_of_day(value: Datum, zone: str | None) -> Datum:
    """A date as the instant at which it begins."""
    days = pc.cast(pc.cast(value, pa.int32()), pa.int64())
    return _mapped(days, lambda day_numbers: day_starts(day_numbers, zone), pa.timestamp("us", tz="UTC"))


def _mapped(value: Datum, function: Callable[[npt.NDArray[np.int64]], Any], kind: pa.DataType) -> Datum:
    """Apply a function of 64-bit numbers."""
    constant = isinstance(value, pa.Scalar)
    column = pc.cast(pa.array([value.as_py()], value.type) if constant else value, pa.int64())
    mapped = function(numbers(column, len(column)))
    result = pc.cast(from_numbers(mapped, valid_mask(column, len(column)), pa.int64()), kind)
    return result[0] if constant else result
