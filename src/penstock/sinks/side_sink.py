"""A side output of a plugin: a sink for other rows, which are stored with the epoch that runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.sinks.base import Epoch, Sink, Target

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.config import Settings


class SideSink:
    """Rows for another sink, buffered until the end of the epoch; `name` is what the plugin calls it."""

    def __init__(self, sink: Sink, name: str) -> None:
        self._sink = sink
        self._name = name
        self._opened: Target | None = None
        self._buffer: list[pa.RecordBatch] = []
        self._finalized = -1

    def check(self, spark: SparkSession, *, name: str, settings: Settings) -> None:
        """Try the connection of the sink; the columns are not known before rows come. `name` is that of the plugin."""
        from pyspark.sql.types import StructType

        target = Target(spark, "", name, "append", StructType([]), settings=settings)
        try:
            self._sink.check_connection(self._own(target))
        finally:
            self._sink.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer rows until the epoch ends."""
        self._buffer.append(batch)

    def discard(self) -> None:
        """Forget the rows of an epoch that was cut short."""
        self._buffer.clear()

    @contextmanager
    def attempt(self, *, keep: bool = True) -> Iterator[None]:
        """Forget the rows that are written inside when it raises, or they are not to be kept."""
        batches, is_kept = len(self._buffer), False
        try:
            yield
            is_kept = keep
        finally:
            if not is_kept:
                del self._buffer[batches:]

    def store(self, target: Target, number: int) -> None:
        """Write the rows of an epoch; the target is that of the plugin."""
        import pyarrow as pa

        batches, self._buffer = self._buffer, []
        if not batches:
            return
        frame = target.spark.createDataFrame(pa.Table.from_batches(batches))
        if self._opened is None:
            own = replace(self._own(target), schema=frame.schema)
            self._opened = own
            self._sink.check(own)
            self._sink.open(own)
            if self._finalized >= 0:
                self._sink.finalize(self._finalized)
        self._sink.write(Epoch(number, frame))

    def _own(self, target: Target) -> Target:
        """A query of its own: a sink knows by it which epochs it has, and whose writer it must fence off."""
        return replace(
            target,
            query=f"{target.query}.side_output.{self._name}",
            name=f"{target.name}.{self._name}",
            mode="append",
            keys=(),
            state=None,
            operation=None,
        )

    def finalize(self, number: int) -> None:
        """The epoch does not come again."""
        self._finalized = number
        if self._opened is not None:
            self._sink.finalize(number)

    def close(self) -> None:
        """Close the sink, if rows came at all."""
        self._buffer.clear()
        self._finalized = -1
        if self._opened is not None:
            self._opened = None
            self._sink.close()
