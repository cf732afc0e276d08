"""Taps: the named points of a session's streams at which bad and late rows are taken out.

A plan of Spark has only the names of its taps, so the rest is looked up by name when a query is planned. Streams and queries
own their taps, and a tap is forgotten with the last of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from penstock.errors import StateError
from penstock.sources.bad_record import BadRecordTap

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from penstock.spark.micro_batch.tap import EpochPlan, Late

MOST_RETAINED = 10_000


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LateTap:
    """The tap in front of an operator that drops rows which come too late."""

    name: str
    destination: str
    until: Callable[[], Column]
    """The time after which nothing takes a row any more."""
    schema: StructType
    kafka: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, plan: EpochPlan, late: Late, *, all_read: bool) -> DataFrame | None:
        """Return the late rows of an epoch that has been written, persisted, or None when it has none."""
        from penstock.spark.micro_batch.frames import before

        read = (plan.counted(self.name) or (0,))[0]
        if all_read and read > 0 and late.dropped == 0:
            return None
        rows = plan.detached(before(plan.arriving(self.name), self.until(), late.watermark_ms)).persist()
        if not rows.isEmpty():
            return rows
        rows.unpersist()
        return None


Tap = BadRecordTap | LateTap


class Taps:
    """The taps of one session, by name."""

    def __init__(self, *, most_retained: int = MOST_RETAINED) -> None:
        self._lock = threading.Lock()
        self._taps: WeakValueDictionary[str, Tap] = WeakValueDictionary()
        self._retained: dict[str, Tap] = {}
        self._most_retained = most_retained
        self.used = False
        """Whether the session had a tap at any time: without, no plan needs to be searched for some."""

    def __len__(self) -> int:
        with self._lock:
            return len(self._taps)

    def add(self, tap: Tap) -> None:
        """Know a tap for as long as somebody owns it."""
        with self._lock:
            self._taps[tap.name] = tap
            self.used = True

    def retain(self, taps: Iterable[Tap]) -> None:
        """Own the taps of a DataFrame that a user gets: queries on it need them, and a DataFrame cannot own them.

        The oldest are given up beyond `most_retained`; a query that needs one of those is refused.
        """
        with self._lock:
            for tap in taps:
                self._retained.pop(tap.name, None)
                self._retained[tap.name] = tap
            while len(self._retained) > self._most_retained:
                del self._retained[next(iter(self._retained))]

    def named(self, names: Iterable[str]) -> list[Tap]:
        """Return the taps of a plan; one that is gone is an error, because its rows would be lost."""
        with self._lock:
            taps = [(name, self._taps.get(name)) for name in names]
        if any(tap is None for _, tap in taps):
            raise StateError(
                "the stream that this DataFrame was made of is gone, and with it where its bad or late rows go",
                code="STREAM_TAP_GONE",
                hint="build the query from session.read_stream again, in the same session",
            )
        return [tap for _, tap in taps if tap is not None]
