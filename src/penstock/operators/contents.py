"""All rows that an operator has given so far, where it can tell them: now, or as a version that is read while ticks go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.operators.base import Operator
from penstock.state.arrangement import Arrangement
from penstock.state.state import State


@dataclass(frozen=True, slots=True)
class Contents:
    """Both are called between ticks. `now` gives the rows; `version` gives a function that computes the same rows at
    any later time."""

    now: Callable[[], Delta]
    version: Callable[[], Callable[[], Delta]]


class Readable(State, Protocol):
    """An operator that can tell all rows of its output from its state."""

    def contents(self) -> Delta:
        """All rows of the operator's output."""


def of_arrangement(arrangement: Arrangement) -> Contents:
    """The rows of an arrangement: its runs do not change."""
    return Contents(lambda: arrangement.before().rows(), lambda: arrangement.before().rows)


def of_operator(operator: Readable, make: Callable[[], Readable]) -> Contents:
    """The rows of an operator. Those of a version are read from another one of its kind, which loads what the first one saved."""

    def version() -> Callable[[], Delta]:
        image = operator.save()

        def rows() -> Delta:
            other = make()
            other.load(image)
            return other.contents()

        return rows

    return Contents(operator.contents, version)


def through(operator: Operator, below: Callable[[], Contents]) -> Contents:
    """The rows of a stateless operator that makes one row of each of those below it."""

    def shown(rows: Callable[[], Delta]) -> Delta:
        return operator.step([rows()], Tick(0, 0))

    return Contents(lambda: shown(below().now), lambda: partial(shown, below().version()))
