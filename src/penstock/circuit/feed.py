"""Where rows enter a circuit that is a part of another computation."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.data.delta import Delta
from penstock.operators.base import Tick
from penstock.operators.linear import Stateless


class Feed(Stateless):
    """Gives what it is fed."""

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        return inputs[0]
