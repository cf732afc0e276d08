from __future__ import annotations

from penstock.transforms.lookup.cache import TtlCache


def test_values_end_and_those_not_used_for_longest_leave_first() -> None:
    now = [0.0]
    cache = TtlCache[int](size=3, ttl=10, clock=lambda: now[0])
    cache.put([("a", 1), ("b", 2), ("c", 3)])
    assert cache.get(["a"]) == ({"a": 1}, [])
    cache.put([("d", 4)])
    assert cache.get(["a", "b", "c", "d"]) == ({"a": 1, "c": 3, "d": 4}, ["b"])
    now[0] = 9
    cache.put([("a", 5)])
    now[0] = 11
    assert cache.get(["a", "c"]) == ({"a": 5}, ["c"])
    assert len(cache) == 3


def test_without_a_time_nothing_is_kept() -> None:
    cache = TtlCache[int](size=3, ttl=0)
    cache.put([("a", 1)])
    assert cache.get(["a"]) == ({}, ["a"])
