"""The rows of an epoch on the driver, a few partitions at a time: computed once, never all in memory at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.spark.results import HeldResult

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

AT_ONCE_BYTES = 64 << 20


class Held:
    """The rows of a frame, held by Spark as Arrow batches while the `with` block lasts; each `batches()` reads them again.

    Partitions are fetched together as long as they are small, for the sake of epochs of a few rows: each fetch is a Spark job.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._spark = frame.sparkSession
        self._held = HeldResult(frame, tag=f"penstock-epoch-{uuid.uuid4().hex[:12]}")

    def __enter__(self) -> Self:
        try:
            self._held.materialise()
        except BaseException:
            self._held.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.release()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches, in the order of the partitions."""
        count = self._held.partitions
        group = max(1, min(count, count * AT_ONCE_BYTES // max(1, self._bytes())))
        for first in range(0, count, group):
            yield from self._held.read(range(first, min(first + group, count)))

    def _bytes(self) -> int:
        infos: Any = self._spark.sparkContext._jsc.sc().getRDDStorageInfo()
        return sum(
            int(info.memSize()) + int(info.diskSize()) for info in infos if info.id() == self._held.rdd_id
        )
