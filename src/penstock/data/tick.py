"""The tick that an operator or an expression works in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tick:
    """What an operator may know of a tick: its number, its time (microseconds since the epoch, UTC), and the watermarks.

    `watermarks` are, for sources with a lateness, the event times before which no change is accepted any more.
    """

    number: int
    micros: int
    watermarks: tuple[tuple[str, int], ...] = ()
