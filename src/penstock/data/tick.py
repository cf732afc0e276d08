"""The tick that an operator or an expression works in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tick:
    """What an operator may know of a tick: its number and its time (microseconds since the epoch, UTC)."""

    number: int
    micros: int
