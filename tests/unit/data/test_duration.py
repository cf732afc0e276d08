from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.data.duration import milliseconds
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (1500, 1500),
        ("1500", 1500),
        ("500ms", 500),
        ("5 seconds", 5_000),
        ("1 second", 1_000),
        ("30s", 30_000),
        ("1.5 minutes", 90_000),
        ("1 hour 30 minutes", 5_400_000),
        ("1 day, 2 hours", 93_600_000),
        ("INTERVAL 2 weeks", 1_209_600_000),
        ("2000 us", 2),
        (timedelta(seconds=2, microseconds=1500), 2_001),
    ],
)
def test_durations(value: int | str | timedelta, expected: int) -> None:
    assert milliseconds(value) == expected


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("", "empty"),
        ("soon", "not a duration"),
        ("5 secnds", "unknown unit 'secnds'"),
        (-1, "negative"),
        ("-5 seconds", "not a duration"),
        (timedelta(seconds=-1), "negative"),
        (True, "got bool"),
        (1.5, "got float"),
        (None, "got NoneType"),
    ],
)
def test_what_is_no_duration_is_refused(value: Any, part: str) -> None:
    with pytest.raises(ConfigError, match=part) as caught:
        milliseconds(value, what="timeout")
    assert caught.value.code == "CONFIG_DURATION"
    assert caught.value.message.startswith("timeout")
    assert caught.value.hint
