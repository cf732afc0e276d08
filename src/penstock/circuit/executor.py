"""Where shards run, as the coordinator of a kernel in shards sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from penstock.circuit.compile import Fragment
from penstock.circuit.operation import Change, Changed, Images, Question
from penstock.data.delta import Delta
from penstock.state.part import CheckpointOrder, CheckpointPart, RestoredPart

# What of a change goes to each shard: rows by relation.
Parts = Sequence[Mapping[str, Delta]]


class ChangeFailed(Exception):
    """A change has failed on some shards, and was made on none: the error of each."""

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        super().__init__(dict(errors))
        self.errors = errors


class Executor(Protocol):
    """Runs shards, and what the driver computes between them, which has the number behind the last shard."""

    shards: int

    def note(self, change: Change) -> None:
        """Let all shards make a change that cannot fail and has no result; they may do so later."""

    def change(self, change: Change, parts: Parts, fragment: Fragment | None = None) -> Sequence[Changed]:
        """Make a change on all shards, without making it final; ChangeFailed when some fail.

        `parts` has the rows for each shard. `fragment` is for the driver.
        """

    def settle(self, *, final: bool) -> None:
        """Make the last change final, or take it back. Called once behind each `change` that did not raise; it cannot fail."""

    def together(self) -> AbstractContextManager[None]:
        """Let all changes of the body run in one job, where changes have jobs."""
        return nullcontext()

    def ask(self, question: Question) -> Sequence[Any]:
        """The answers of all shards."""

    def save(self) -> Sequence[Images]:
        """The states of all shards, and those of the driver. They stay what they are while changes go on."""

    def stage(self, order: CheckpointOrder) -> Sequence[CheckpointPart]:
        """What of the states of all shards and of the driver has changed since the checkpoint that an order builds on."""

    def continue_from(self, parts: Sequence[RestoredPart]) -> None:
        """Let the next checkpoint write what changes from now on; `parts` are what all shards and the driver have
        loaded, before any step."""

    def load(self, images: Sequence[Images]) -> None:
        """Let sources and views that are added from now on take their states from here."""

    def close(self) -> None:
        """Forget all shards."""
