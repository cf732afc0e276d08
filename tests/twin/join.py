"""Joins recomputed with nested loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twin.rows import Multiset, Row, add, canonical

Condition = Callable[[Row, Row], bool | None]


def as_key(value: Any) -> Any:
    """A canonical value of a row as a key: its two zeros are one."""
    if isinstance(value, tuple):
        return tuple(as_key(item) for item in value)
    return 0.0 if value == "-0.0" else canonical(value, False)


def matches(
    left: Row,
    right: Row,
    keys: Sequence[tuple[int, int]],
    null_safe: Sequence[bool],
    residual: Condition | None,
) -> bool:
    for (a, b), safe in zip(keys, null_safe, strict=True):
        x, y = as_key(left[a]), as_key(right[b])
        if (x is None or y is None) and not (safe and x is y):
            return False
        if x != y:
            return False
    return residual is None or residual(left, right) is True


def equal_or_unknown(
    left: Row, right: Row, keys: Sequence[tuple[int, int]], residual: Condition | None
) -> bool:
    pairs = ((as_key(left[a]), as_key(right[b])) for a, b in keys)
    return all(x is None or y is None or x == y for x, y in pairs) and (
        residual is None or residual(left, right) is True
    )


def join(
    kind: str,
    left: Multiset,
    right: Multiset,
    widths: tuple[int, int],
    match: Callable[[Row, Row], bool],
) -> Multiset:
    """The join of two multisets of canonical rows."""
    rows: list[tuple[Row, int]] = []
    found = [(a, n, b, m) for a, n in left.items() for b, m in right.items() if match(a, b)]
    left_found = {a for a, _, _, _ in found}
    right_found = {b for _, _, b, _ in found}
    if kind in ("semi", "anti"):
        return {a: n for a, n in left.items() if (a in left_found) == (kind == "semi")}
    rows.extend(((*a, *b), n * m) for a, n, b, m in found)
    if kind in ("left", "full"):
        rows.extend(((*a, *[None] * widths[1]), n) for a, n in left.items() if a not in left_found)
    if kind in ("right", "full"):
        rows.extend(((*[None] * widths[0], *b), n) for b, n in right.items() if b not in right_found)
    return add(rows)
