"""What every operator is: a step from input deltas to an output delta, in a tick that may still fail.

A tick calls `step` once per dirty operator, in topological order. Nothing that `step` changes may be visible after
`rollback`; `commit` makes it final. Between `step` and `commit` an operator's readers see the state before the tick, and the
pending delta on top of it where they ask for it. An operator names its states (`states`); what is done with them is done for all
operators alike (`penstock.state.state`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.state.state import Composite


class Operator(Composite, ABC):
    """One node of the circuit."""

    # Whether the last step gave every row at most once, and none of weight zero.
    consolidated: bool = False

    def initial(self, tick: Tick) -> Delta | None:
        """Return what the operator gives before it has seen any row, or None when that is nothing.

        Called once, in the tick that registers the operator, before its only `step` of that tick (which sees the initial
        rows of its inputs, and all data that is already there); its rows and those of the step together are the first
        output. A global aggregate gives its row over nothing here, and constant rows enter here. State that it changes is
        final or forgotten with that of the step, by the same `commit` or `rollback`; after a rollback it may be called
        again.
        """
        return None

    @abstractmethod
    def step(self, inputs: Sequence[Delta], tick: Tick) -> Delta:
        """Return the change of the output for these changes of the inputs.

        Called at most once per tick. A delta, in or out, may hold the same row several times, with weights that cancel.
        Raising (DataError for bad data and ANSI errors) rejects the whole tick, after which `rollback` is called.
        """
