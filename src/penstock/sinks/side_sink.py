"""A side output of a plugin: a sink for other rows, which are stored with the epoch that runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.sinks.base import Epoch, Sink, Target

if TYPE_CHECKING:
    import pyarrow as pa


class SideSink:
    """Rows for another sink, buffered until the end of the epoch."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._opened: Target | None = None
        self._buffer: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer rows until the epoch ends."""
        self._buffer.append(batch)

    def discard(self) -> None:
        """Forget the rows of an epoch that was cut short."""
        self._buffer.clear()

    def store(self, target: Target, number: int) -> None:
        """Write the rows of an epoch; the target is that of the plugin's query."""
        import pyarrow as pa

        batches, self._buffer = self._buffer, []
        if not batches:
            return
        frame = target.spark.createDataFrame(pa.Table.from_batches(batches))
        if self._opened is None:
            own = replace(target, mode="append", schema=frame.schema, keys=(), state=None, operation=None)
            self._sink.check(own)
            self._sink.open(own)
            self._opened = own
        self._sink.write(Epoch(number, frame))

    def close(self) -> None:
        """Close the sink, if rows came at all."""
        self._buffer.clear()
        if self._opened is not None:
            self._opened = None
            self._sink.close()
