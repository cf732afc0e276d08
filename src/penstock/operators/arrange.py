"""Keeps an arrangement up to date; its output is its input.

Rule: d(out) = dA; the arrangement holds A by key. Cost: delta.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.operators.base import Operator
from penstock.state.arrangement import Arrangement
from penstock.state.state import State


class Arrange(Operator):
    """The one operator that steps an arrangement; joins that read it come behind."""

    def __init__(self, arrangement: Arrangement) -> None:
        self.arrangement = arrangement

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        self.arrangement.apply(delta)
        return delta

    def states(self) -> Iterator[tuple[str, State]]:
        yield "rows", self.arrangement
