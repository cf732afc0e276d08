"""Rows handed to a function of the user's, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.sinks.base import Epoch, Guarantee, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ForeachBatchSink(Sink):
    """Calls a function with a batch DataFrame and its epoch number.

    An epoch that was cut short comes again with the same number and rows: a function that recognises it has exactly once.
    """

    needs_checkpoint = False
    reads_all_rows: ClassVar[bool] = False

    def __init__(self, function: Callable[[DataFrame, int], Any]) -> None:
        super().__init__({})
        self._function = function

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.AT_LEAST_ONCE

    def write(self, epoch: Epoch) -> int | None:
        self._function(epoch.frame, epoch.number)
        return None

    def describe(self) -> str:
        return f"foreach_batch({getattr(self._function, '__qualname__', repr(self._function))})"
