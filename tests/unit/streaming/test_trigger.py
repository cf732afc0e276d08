"""Triggers and output modes as users write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

import penstock as ps
from penstock.streaming.trigger import TriggerKind


@pytest.mark.parametrize("given", [5_000, "5 seconds", timedelta(seconds=5)])
def test_intervals_in_every_form(given: int | str | timedelta) -> None:
    trigger = ps.Trigger.processing_time(given)
    assert (trigger.kind, trigger.interval_ms, trigger.ends) == (TriggerKind.PROCESSING_TIME, 5_000, False)


def test_triggers_read_as_they_are_written() -> None:
    made = [
        ps.Trigger.once(),
        ps.Trigger.available_now(),
        ps.Trigger.processing_time(0),
        ps.Trigger.continuous("1 second"),
    ]
    assert list(map(str, made)) == ["once", "available_now", "processing_time(0)", "continuous(1000)"]
    assert [trigger.ends for trigger in made] == [True, True, False, False]


def test_a_negative_interval_is_refused() -> None:
    with pytest.raises(ps.ConfigError, match="interval of the trigger"):
        ps.Trigger.processing_time(-1)


@pytest.mark.parametrize("given", [ps.OutputMode.UPDATE, "update", "UPDATE"])
def test_modes_in_every_form(given: str) -> None:
    assert ps.OutputMode.of(given) is ps.OutputMode.UPDATE


def test_an_unknown_mode_suggests() -> None:
    with pytest.raises(ps.ConfigError) as caught:
        ps.OutputMode.of("apend")
    assert caught.value.code == "STREAM_OUTPUT_MODE"
    assert "did you mean 'append'?" in str(caught.value)
