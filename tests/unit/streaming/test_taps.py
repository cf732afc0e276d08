"""Taps live as long as somebody owns them."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from penstock.errors import StateError
from penstock.streaming.taps import LateTap, Taps

NO_SCHEMA: Any = None


def _tap(name: str) -> LateTap:
    return LateTap(name, "late/", lambda: NO_SCHEMA, NO_SCHEMA)


def test_a_tap_is_forgotten_with_its_last_owner() -> None:
    taps, owned = Taps(), _tap("owned")
    assert not taps.used
    taps.add(owned)
    for number in range(100):
        taps.add(_tap(f"tap-{number}"))
    gc.collect()
    assert taps.used
    assert len(taps) == 1
    assert taps.named(["owned"]) == [owned]
    with pytest.raises(StateError, match="is gone") as caught:
        taps.named(["owned", "tap-1"])
    assert caught.value.code == "STREAM_TAP_GONE"


def test_taps_of_frames_that_were_handed_out_are_retained_up_to_a_limit() -> None:
    taps = Taps(most_retained=3)
    for number in range(5):
        tap = _tap(f"tap-{number}")
        taps.add(tap)
        taps.retain([tap])
        taps.retain([tap])
        del tap
    gc.collect()
    assert len(taps) == 3
    assert [tap.name for tap in taps.named(["tap-2", "tap-4"])] == ["tap-2", "tap-4"]
