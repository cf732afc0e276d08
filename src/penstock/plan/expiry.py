"""When an operator may forget: rows and groups that no change to come can reach any more.

A row goes when columns of it are behind bounds of event times. What an operator has given of it stays with those who
have read it.

- A group, or a partition, goes when one of its keys is behind the bound of its own time.
- A row of a join goes when no change of the other side can match it. Where the other side's rows are shown also
  without a match, its row must know all of its matches as long as one of them may come or go: then a row stays until
  that is over for everything that it matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.plan.event_time import Times, WatermarkBound, event_times
from penstock.plan.interval import TIMES, Distance, distances
from penstock.plan.node import (
    Aggregate,
    Asof,
    Expand,
    Filter,
    Generate,
    Join,
    Node,
    Project,
    Scan,
    SessionWindow,
    TopK,
    Union,
    Values,
    Window,
    scanned,
)

_BEHIND = "behind the watermark"


@dataclass(frozen=True, slots=True)
class Passed:
    """Of a row: that a column and so many microseconds are behind the bound of a time."""

    column: int
    micros: int
    time: WatermarkBound


Expiry = tuple[Passed, ...]
"""A row may go when all of these hold; one of whose columns is NULL stays."""


def closing_key(node: Aggregate | TopK, relations: Mapping[str, Times]) -> tuple[int, WatermarkBound] | None:
    """The first key of groups, or partitions, that close when the watermark has passed, and its time; None when there is none."""
    return _closing(node.input, node.keys if isinstance(node, Aggregate) else node.partition, relations)


def session_time(node: SessionWindow, relations: Mapping[str, Times]) -> WatermarkBound | None:
    """The event time that the starts of rows follow, so that sessions close behind it; None when there is none."""
    if node.input.fields[node.start].type not in TIMES:
        return None
    return event_times(node.input, relations)[node.start]


def session_key(node: Aggregate, relations: Mapping[str, Times]) -> int | None:
    """The key of groups that is the start of a session, when sessions close; None when there is none.

    The groups have all keys of the sessions, so that they are where their sessions are, and follow those alone.
    """
    below = node.input
    if not isinstance(below, SessionWindow) or session_time(below, relations) is None:
        return None
    start = len(below.fields) - 1
    return start if {start, *below.keys} <= set(node.keys) else None


def asof_times(node: Asof, relations: Mapping[str, Times]) -> tuple[WatermarkBound, WatermarkBound] | None:
    """The event times of both sides of an ASOF join that forgets rows; None when it cannot."""
    left = event_times(node.left, relations)[node.left_time]
    right = event_times(node.right, relations)[node.right_time]
    kinds = (node.left.fields[node.left_time].type, node.right.fields[node.right_time].type)
    if left is None or right is None or not set(kinds) <= set(TIMES):
        return None
    return left, right


def window_expiry(node: Window, relations: Mapping[str, Times]) -> Expiry | None:
    """When rows of closed partitions may go; None for never."""
    closing = _closing(node.input, node.partition, relations)
    return None if closing is None else (Passed(closing[0], 0, closing[1]),)


def join_expiry(node: Join, relations: Mapping[str, Times]) -> tuple[Expiry | None, Expiry | None]:
    """When rows of the left and of the right input may go; None for never."""
    left, right = event_times(node.left, relations), event_times(node.right, relations)
    pairs = {
        pair: distance
        for pair, distance in distances(node).items()
        if is_comparable(node.left.fields[pair[0]].type)
    }
    mirrored = {(right, left): distance.mirrored() for (left, right), distance in pairs.items()}
    keeps_left = node.kind in ("left", "full", "semi", "anti")
    keeps_right = node.kind in ("right", "full")
    return (
        _side_expiry(pairs, left, right, other_unmatched=keeps_right),
        _side_expiry(mirrored, right, left, other_unmatched=keeps_left),
    )


def describe_state(node: Node, relations: Mapping[str, Times]) -> str:
    """Whether an operator frees state behind the watermark; nothing when it has none, or reads no source with a lateness.

    `relations` are those that read a source with a lateness.
    """
    if isinstance(node, Scan | Values | Filter | Project | Union | Expand | Generate):
        return ""
    if not scanned(node) & relations.keys():
        return ""
    match node:
        case Aggregate() | TopK() | Window():
            return _describe_groups(node, relations)
        case Join():
            return _describe_join(node, relations)
        case Asof():
            return _describe_asof(node, relations)
        case SessionWindow() if session_time(node, relations) is not None:
            return f"frees sessions {_BEHIND}"
        case _:
            return "keeps its rows: only groups, partitions, sessions and joins by the event time are freed"


def is_comparable(kind: str) -> bool:
    """Whether values of a type are times, or numbers of microseconds."""
    return kind in (*TIMES, "date", "bigint") or kind.startswith("struct<")


def _describe_groups(node: Aggregate | TopK | Window, relations: Mapping[str, Times]) -> str:
    plural, singular = ("groups", "group") if isinstance(node, Aggregate) else ("partitions", "partition")
    keys = node.keys if isinstance(node, Aggregate) else node.partition
    if _closing(node.input, keys, relations) is not None:
        return f"frees {plural} {_BEHIND}"
    if isinstance(node, Aggregate) and session_key(node, relations) is not None:
        return f"frees groups of sessions {_BEHIND}"
    if not keys:
        return f"keeps its one {singular}"
    return f"keeps all {plural}: no key follows the event time of a source without a primary key"


def _describe_join(node: Join, relations: Mapping[str, Times]) -> str:
    freed = [
        side
        for side, expiry in zip(("left", "right"), join_expiry(node, relations), strict=True)
        if expiry is not None
    ]
    if len(freed) == 2:
        return f"frees rows {_BEHIND}"
    if freed:
        return f"frees rows of the {freed[0]} input {_BEHIND}, keeps those of the other: nothing says when they match no more"
    return "keeps its rows: no condition bounds how far apart the event times of both inputs are"


def _describe_asof(node: Asof, relations: Mapping[str, Times]) -> str:
    if asof_times(node, relations) is not None:
        stays = {
            "backward": ", but for the last right one of each key",
            "forward": ", but for left ones that no right one follows yet",
            "nearest": ", but for the last right one of each key and left ones behind it",
        }
        return f"frees rows {_BEHIND}{stays[node.direction] if node.tolerance is None else ''}"
    return (
        "keeps its rows: the times of both inputs do not follow event times of sources without a primary key"
    )


def _closing(
    below: Node, keys: Sequence[int], relations: Mapping[str, Times]
) -> tuple[int, WatermarkBound] | None:
    times = event_times(below, relations)
    for key in keys:
        time = times[key]
        if time is not None and is_comparable(below.fields[key].type):
            return key, time
    return None


def _side_expiry(
    pairs: Mapping[tuple[int, int], Distance], own: Times, other: Times, *, other_unmatched: bool
) -> Expiry | None:
    """When rows of one side may go; `other_unmatched` says that the other side's rows without a match are shown."""
    for (column, match), distance in pairs.items():
        time, own_time = other[match], own[column]
        if time is None or distance.after is None:
            continue
        passed = Passed(column, distance.after, time)
        if not other_unmatched:
            return (passed,)
        if own_time is not None and distance.span is not None:
            return (passed, Passed(column, distance.span, own_time))
    return None
