"""A query's result that Spark persists as Arrow batches, and that is read partition by partition.

The query runs once: its last stage writes Arrow batches that Spark keeps, in memory and on disk, where they were made. Reading a
partition is a small job of its own over what is persisted, so that partitions can be read in any order, by several threads and
again, with the same rows each time, and the whole never passes through the driver at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.spark import arrow, arrow_stream, observed
from penstock.spark.tagged_call import TaggedCall, cancel_tag

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class PersistedResult:
    """The partitions of one result; `materialise` computes them, `read` gives their batches, `release` lets them go."""

    def __init__(self, frame: DataFrame, *, tag: str, released: Callable[[], None] = lambda: None) -> None:
        from pyspark import StorageLevel

        frame = arrow.readable(frame)
        self._spark = frame.sparkSession
        self._frame = frame
        self._tag = tag
        self._released = released
        context = self._spark.sparkContext
        # With adaptive execution this call runs all stages but the last: only then is the number of partitions known.
        self._rdd: Any = arrow_stream.server(self._spark).batches(frame._jdf)
        self._rdd.persist(context._getJavaStorageLevel(StorageLevel.MEMORY_AND_DISK))
        self.partitions: int = self._rdd.getNumPartitions()
        self.rdd_id: int = self._rdd.id()
        self._wire = arrow.wire_schema(frame)
        self.schema: pa.Schema = (
            arrow.user_schema(frame.schema) if arrow.is_beyond_pyspark(frame.schema) else self._wire
        )

    def materialise(self) -> None:
        """Run the last stage; its batches stay where they are."""
        self._rdd.count()
        observed.complete(self._frame)

    def read(self, partitions: Sequence[int]) -> list[pa.RecordBatch]:
        """Return the batches of some partitions, in their order; the job that reads them carries the result's tag."""
        import pyarrow as pa

        with tagged(self._spark, self._tag):
            batches = arrow_stream.of_partitions(self._spark, self._rdd, partitions)
        return [arrow.as_shown(pa.ipc.read_record_batch(batch, self._wire), self.schema) for batch in batches]

    def release(self) -> None:
        """Let Spark forget the partitions; a Spark that has ended has forgotten them."""
        from py4j.protocol import Py4JError

        self._released()
        with contextlib.suppress(Py4JError, ConnectionError, AttributeError):
            self._rdd.unpersist(False)


class SparkExecution:
    """How an operation runs on Spark: in a thread of its own, under a tag of its own.

    `frame` makes the DataFrame, inside that thread; `failed` translates an exception into the error that the user gets.
    """

    def __init__(
        self,
        spark: SparkSession,
        frame: Callable[[], DataFrame],
        *,
        tag: str,
        failed: Callable[[BaseException], PenstockError],
    ) -> None:
        self._spark = spark
        self._make = frame
        self._failed = failed
        self._work: Callable[[], None] = lambda: None
        self._run = TaggedCall(spark, lambda: self._work(), tag=tag)
        self.tag = tag
        self.frame: DataFrame | None = None
        self.result_rdd: int | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Run `work` in the execution's thread."""
        self._work = work
        self._run.start()

    def execute(self) -> PersistedResult:
        """Make the DataFrame and run all of its stages but the last."""
        self.frame = self._make()
        result = PersistedResult(self.frame, tag=self.tag, released=self._forget)
        self.result_rdd = result.rdd_id
        return result

    def cancel(self) -> None:
        """End all jobs of the tag."""
        self._run.cancel()
        cancel_tag(self._spark, self.tag)

    def translate(self, error: BaseException) -> PenstockError:
        """Return the error that the user gets."""
        return self._failed(error)

    def _forget(self) -> None:
        # As long as Python holds the plan, Spark keeps the files of its shuffles.
        self.frame = None


@contextlib.contextmanager
def tagged(spark: SparkSession, tag: str) -> Iterator[None]:
    """Give the jobs of this thread one more tag for a while."""
    context = spark.sparkContext
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)
