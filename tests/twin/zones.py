"""What a process knows of time zones, put aside for a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.functions.scalars import zone_ids, zones


@contextmanager
def no_zones_known() -> Iterator[None]:
    """No rules and no table are known in the body; afterwards those of before are."""
    places: tuple[dict[str, object], ...] = (zones._RULES, zone_ids._LINES)  # type: ignore[assignment]
    before, learnt = [dict(place) for place in places], list(zone_ids._LEARNT)
    for place in places:
        place.clear()
    zone_ids._LEARNT.clear()
    zone_ids.resolve.cache_clear()
    try:
        yield
    finally:
        for place, content in zip(places, before, strict=True):
            place.clear()
            place.update(content)
        zone_ids._LEARNT[:] = learnt
        zone_ids.resolve.cache_clear()
