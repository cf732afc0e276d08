"""Rows that a node could not take: counted, and stored as dead letters with `on_error: dead_letter`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.pipeline.step import node_values
from penstock.transforms.dead_letter import DeadLetters, Sender

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.pipeline.spec import NodeSpec
    from penstock.sinks.base import Target

STATE = "dead letters"


class Failed(Protocol):
    """Rows of an epoch that a node could not take; asked when the others were written."""

    def count(self) -> int:
        """How many they are."""

    def failed(self) -> DataFrame | None:
        """The rows, as `_error` and `_input`; None when there is none."""


class FailedRows:
    """The failed rows of one node; without letters they are only counted."""

    def __init__(self, node: NodeSpec, pipeline: str, letters: DeadLetters | None) -> None:
        self.node = node
        self._pipeline = pipeline
        self._letters = letters

    def check(self, target: Target) -> None:
        """Try the sink of the letters, change nothing."""
        if self._letters is not None:
            try:
                self._letters.check(self._sender(target))
            finally:
                self._letters.close()

    def open(self, target: Target) -> None:
        """Called before the first epoch of each run."""
        if self._letters is not None:
            self._letters.open(self._sender(target))

    def write(self, epoch: int, rows: Failed) -> int:
        """Called when the good rows of an epoch were written; return how many have failed."""
        count = rows.count()
        if self._letters is not None and (failed := rows.failed()) is not None:
            self._letters.write(epoch, failed)
        return count

    def finalize(self, epoch: int) -> None:
        """The epoch does not come again."""
        if self._letters is not None:
            self._letters.finalize(epoch)

    def close(self) -> None:
        """Called after the last epoch."""
        if self._letters is not None:
            self._letters.close()

    def _sender(self, target: Target) -> Sender:
        return Sender(
            target.spark,
            target.query,
            self._pipeline,
            self.node.name,
            target.settings,
            committed=target.committed,
            begun=target.begun,
            state=node_values(target, f"{self.node.name} {STATE}"),
            status=target.status,
        )
