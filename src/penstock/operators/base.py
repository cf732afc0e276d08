"""What every operator is: a step from input deltas to an output delta, in a tick that may still fail.

A tick calls `step` once per dirty operator, in topological order. Nothing that `step` changes may be visible after
`rollback`; `commit` makes it final. Between `step` and `commit` an operator's readers see the state before the tick, and the
pending delta on top of it where they ask for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.data.delta import Delta


@dataclass(frozen=True, slots=True)
class Tick:
    """What an operator may know of the tick it runs in: its number and its time (microseconds since the epoch, UTC)."""

    number: int
    micros: int


class Operator(Protocol):
    """One node of the circuit. Subclass it for the defaults."""

    # Whether the last step gave every row at most once, and none of weight zero.
    consolidated: bool = False

    def initial(self, tick: Tick) -> Delta | None:
        """Return what the operator gives before it has seen any row, or None when that is nothing.

        Called once, in the tick that registers the operator, before its only `step` of that tick (which sees the initial
        rows of its inputs, and all data that is already there); its rows and those of the step together are the first
        output. A global aggregate gives its row over nothing here, constant rows are given here. State that it changes is
        final or forgotten with that of the step, by the same `commit` or `rollback`; after a rollback it may be called
        again.
        """
        return None

    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        """Return the change of the output for these changes of the inputs.

        Called at most once per tick. A delta, in or out, may hold the same row several times, with weights that cancel.
        Raising (DataError for bad data and ANSI errors) rejects the whole tick, after which `rollback` is called.
        """

    def commit(self) -> None:
        """Make the last step final; called once after every successful step."""

    def rollback(self) -> None:
        """Forget the last step; also called on operators that have not stepped in this tick."""

    def memory(self) -> int:
        """Bytes of state held."""

    def states(self) -> Iterator[tuple[str, Any]]:
        """Yield the operator's states by their role, which is the same in every process."""
        return iter(())

    def maintain(self, fuel: int) -> None:
        """Merge and compact, `fuel` rows for each row that the last tick has changed; called after its commit.

        Raising does not undo the tick.
        """
        return
