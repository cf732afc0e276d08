"""Which rules of time zones a plan needs when it runs without a JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.functions.scalars import zone_ids, zones

Json = Mapping[str, Any]
Rules = tuple[tuple[str, tuple[int, ...]], ...]

_TIMESTAMPS = ("timestamp", "timestamp_ntz")
_PARSERS = ("GetTimestamp", "ToUnixTimestamp", "UnixTimestamp")
# Functions that are given the name of a zone, and the positions of the arguments that are such names.
_ZONE_ARGUMENTS = {
    "FromUTCTimestamp": (1,),
    "ToUTCTimestamp": (1,),
    "ConvertTimezone": (0, 1),
    "MakeTimestamp": (6,),
}


def needed(front: Any, text: str, plan: Json) -> tuple[Rules, str]:
    """The rules of the zones that a plan names, as its JVM has them, and the table of all zones when rows may name any.

    `text` is the plan as Front.java has described it. What is returned has been learnt already; StateError when views
    of this process, which were saved, have other rules.
    """
    names = dict.fromkeys(re.findall(r'"timeZoneId":"([^"]+)"', text))
    names |= dict.fromkeys(_constants(plan))
    rules: Rules = tuple(
        (name, tuple(int(number) for number in front.zoneRules(name)))
        for name in names
        if zones.fixed_offset(name) is None and _is_zone(front, name)
    )
    table = _table(front) if any(_names_any(item) for item in _calls(plan)) else ""
    zone_ids.learn(rules, table)
    return rules, table


# That of the one JVM of this process.
_TABLE: list[str] = []


def _table(front: Any) -> str:
    if not _TABLE:
        _TABLE.append(zone_ids.pack(front.zoneTable()))
    return _TABLE[0]


def _is_zone(front: Any, name: str) -> bool:
    """Whether the JVM knows a zone; a constant that names none is an error of the rows that reach it."""
    return bool(front.isZone(name))


def _constants(plan: Json) -> Iterator[str]:
    for item in _calls(plan):
        for position in _ZONE_ARGUMENTS.get(item["c"], ()):
            if position < len(item["k"]):
                argument = item["k"][position]
                if argument["c"] == "Literal" and isinstance(argument["v"], str):
                    yield argument["v"]


def _names_any(item: Json) -> bool:
    """Whether a row may bring the name of a zone into an expression."""
    arguments = item["k"]
    if item["c"] == "Cast":
        return item.get("t") in _TIMESTAMPS and arguments[0].get("t") == "string"
    if item["c"] in _PARSERS:
        pattern = arguments[1]
        written = pattern.get("v") if pattern["c"] == "Literal" else "V"
        return arguments[0].get("t") == "string" and "V" in (written or "")
    return any(
        position < len(arguments) and arguments[position]["c"] != "Literal"
        for position in _ZONE_ARGUMENTS.get(item["c"], ())
    )


def _calls(value: Any) -> Iterator[Json]:
    """Every expression of a plan that has arguments, and every node."""
    if isinstance(value, dict):
        if "c" in value and "k" in value:
            yield value
        for item in value.values():
            yield from _calls(item)
    elif isinstance(value, list):
        for item in value:
            yield from _calls(item)
