"""Local time by rules that were learnt, against Python's own time zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from penstock.functions.scalars import zones

NAME = "test/Berlin"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEARS = range(1981, 2400)


def _last_sunday(year: int, month: int) -> datetime:
    day = datetime(year, month, 31, 1, tzinfo=UTC)
    return day - timedelta(days=(day.weekday() + 1) % 7)


@pytest.fixture(scope="module", autouse=True)
def _rules() -> None:
    flat = [3600]
    for year in YEARS:
        for month, offset in ((3, 7200), (10, 3600)):
            flat += [int((_last_sunday(year, month) - EPOCH).total_seconds()), offset]
    zones.learn(NAME, flat)


def _micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def test_offsets_follow_the_rules_and_repeat_after_them() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    moments = [
        datetime(1999, 3, 28, 0, 59, 59, tzinfo=UTC) + timedelta(hours=hour) for hour in range(0, 20_000, 37)
    ]
    found = zones.offsets_at(np.array([_micros(moment) for moment in moments]), NAME)
    expected = [moment.astimezone(berlin).utcoffset() for moment in moments]
    assert [timedelta(microseconds=int(offset)) for offset in found] == expected
    far = np.array([_micros(datetime(9000, 7, 1, tzinfo=UTC)), _micros(datetime(9000, 1, 1, tzinfo=UTC))])
    assert zones.offsets_at(far, NAME).tolist() == [7_200_000_000, 3_600_000_000]


def test_a_gap_moves_on_and_the_earlier_of_two_is_taken() -> None:
    local = [datetime(2024, 3, 31, 2, 30), datetime(2024, 10, 27, 2, 30), datetime(2024, 6, 1)]
    given = np.array([_micros(moment.replace(tzinfo=UTC)) for moment in local])
    found = [EPOCH + timedelta(microseconds=int(value)) for value in zones.instants_of(given, NAME)]
    assert found == [
        datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
        datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
        datetime(2024, 5, 31, 22, tzinfo=UTC),
    ]


def test_an_offset_that_still_holds_is_kept() -> None:
    local = np.array([_micros(datetime(2024, 10, 27, 2, 30, tzinfo=UTC))])
    winter = np.array([3_600_000_000])
    assert zones.keeping(local, winter, NAME).tolist() == (local - winter).tolist()


@pytest.mark.parametrize(("zone", "hours"), [("UTC", 0), ("+05:30", 5.5), ("GMT-3", -3), (None, 0)])
def test_fixed_zones(zone: str | None, hours: float) -> None:
    assert zones.fixed_offset(zone) == hours * 3_600_000_000
    assert zones.reason(zone) is None


def test_an_unknown_zone_has_a_reason() -> None:
    assert "Mars/Olympus" in str(zones.reason("Mars/Olympus"))


@pytest.mark.parametrize("days", [-719_468, -1, 0, 59, 11_016, 2_932_896, -1_000_000])
def test_civil_dates_round_trip(days: int) -> None:
    assert zones.days_from_civil(*zones.civil_from_days(days)) == days
