"""The rows of an epoch on the driver, a few partitions at a time: computed once, never all in memory at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from penstock.spark.results import PersistedResult

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

AT_ONCE_BYTES = 64 << 20
SMALL_BYTES = 4 << 20
TOO_LARGE = "spark.driver.maxResultSize"


class EpochRows:
    """The rows of a frame, cached while the `with` block lasts; each `batches()` returns them again.

    Spark caches them as Arrow batches: one job computes them, and one more fetches each group of partitions. After a
    small epoch (`last`) the next one is expected to be small too, and one job brings its rows to the driver; if they
    are more than the driver takes, Spark caches them after all.
    """

    def __init__(self, frame: DataFrame, *, last: EpochRows | None = None) -> None:
        self._frame = frame
        self.small: bool = False
        self._expected_small = last is not None and last.small
        self._cached: PersistedResult | None = None
        self._local: list[pa.RecordBatch] | None = None

    def __enter__(self) -> Self:
        if self._expected_small:
            self._local = self._collect()
        if self._local is not None:
            self.small = sum(batch.nbytes for batch in self._local) <= SMALL_BYTES
            return self
        self._cached = PersistedResult(self._frame, tag=f"penstock-epoch-{uuid.uuid4().hex[:12]}")
        try:
            self._cached.materialise()
        except BaseException:
            self._cached.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._local = None
        if self._cached is not None:
            self._cached.release()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches, in the order of the partitions."""
        if self._local is not None:
            yield from self._local
            return
        cached = self._cached
        assert cached is not None, "the block has not begun"
        size = self._bytes(cached)
        self.small = size <= SMALL_BYTES
        group = max(1, min(cached.partitions, cached.partitions * AT_ONCE_BYTES // max(1, size)))
        for first in range(0, cached.partitions, group):
            yield from cached.read(range(first, min(first + group, cached.partitions)))

    def _collect(self) -> list[pa.RecordBatch] | None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            rows: pa.Table = self._frame.toArrow()
        except (PySparkException, Py4JJavaError) as error:
            if TOO_LARGE in str(error):
                return None
            raise
        return list(rows.to_batches())

    def _bytes(self, cached: PersistedResult) -> int:
        infos: Any = self._frame.sparkSession.sparkContext._jsc.sc().getRDDStorageInfo()
        return sum(int(info.memSize()) + int(info.diskSize()) for info in infos if info.id() == cached.rdd_id)
