"""Keeps an arrangement up to date; its output is its input.

Rule: d(out) = dA; the arrangement holds A by key. Cost: delta.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.data.delta import Delta
from penstock.operators.base import Operator, Tick
from penstock.state.arrangement import Arrangement


class Arrange(Operator):
    """The one place that steps an arrangement; joins that read it come behind."""

    def __init__(self, arrangement: Arrangement) -> None:
        self.arrangement = arrangement

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        (delta,) = inputs
        self.arrangement.apply(delta)
        return delta

    def commit(self) -> None:
        self.arrangement.commit()

    def rollback(self) -> None:
        self.arrangement.rollback()

    def memory(self) -> int:
        return self.arrangement.memory()

    def states(self) -> Iterator[tuple[str, Any]]:
        yield "rows", self.arrangement
