"""Answers that a process keeps for a while: bounded, those that were not used for longest leave first."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class TtlCache(Generic[Value]):
    """Values by key, each good for `ttl` seconds.

    >>> cache = TtlCache[str](size=2, ttl=60)
    >>> cache.put([("a", "1"), ("b", "2"), ("c", "3")])
    >>> cache.get(["a", "c"])
    ({'c': '3'}, ['a'])
    """

    def __init__(self, *, size: int, ttl: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._size, self._ttl, self._clock = size, ttl, clock
        self._entries: OrderedDict[Hashable, tuple[float, Value]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, keys: Iterable[Hashable]) -> tuple[dict[Hashable, Value], list[Hashable]]:
        """The values that are there and still good, and the keys that have none."""
        entries, now = self._entries, self._clock()
        values: dict[Hashable, Value] = {}
        absent = []
        for key in keys:
            entry = entries.get(key)
            if entry is not None and entry[0] > now:
                values[key] = entry[1]
                entries.move_to_end(key)
            else:
                absent.append(key)
        return values, absent

    def put(self, items: Iterable[tuple[Hashable, Value]]) -> None:
        """Set values."""
        if self._ttl <= 0:
            return
        entries, until = self._entries, self._clock() + self._ttl
        for key, value in items:
            entries[key] = (until, value)
            entries.move_to_end(key)
        while len(entries) > self._size:
            entries.popitem(last=False)
