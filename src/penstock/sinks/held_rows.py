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
SMALL_BYTES = 4 << 20
TOO_LARGE = "spark.driver.maxResultSize"


class Held:
    """The rows of a frame, held while the `with` block lasts; each `batches()` gives them again.

    Spark holds them as Arrow batches, which takes a job to make them and one for each fetch. Partitions are fetched together as long as
    they are small. After an epoch of a few rows (`last`) the next one is expected to be small too, and comes in one job to be held here;
    when that turns out to be more than the driver takes, Spark holds it after all.
    """

    def __init__(self, frame: DataFrame, *, last: Held | None = None) -> None:
        self._frame = frame
        self.small: bool = False
        self._expected_small = last is not None and last.small
        self._held: HeldResult | None = None
        self._here: list[pa.RecordBatch] | None = None

    def __enter__(self) -> Self:
        if self._expected_small:
            self._here = self._fetched()
        if self._here is not None:
            self.small = sum(batch.nbytes for batch in self._here) <= SMALL_BYTES
            return self
        self._held = HeldResult(self._frame, tag=f"penstock-epoch-{uuid.uuid4().hex[:12]}")
        try:
            self._held.materialise()
        except BaseException:
            self._held.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._here = None
        if self._held is not None:
            self._held.release()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches, in the order of the partitions."""
        if self._here is not None:
            yield from self._here
            return
        held = self._held
        assert held is not None, "the block has not begun"
        size = self._bytes(held)
        self.small = size <= SMALL_BYTES
        group = max(1, min(held.partitions, held.partitions * AT_ONCE_BYTES // max(1, size)))
        for first in range(0, held.partitions, group):
            yield from held.read(range(first, min(first + group, held.partitions)))

    def _fetched(self) -> list[pa.RecordBatch] | None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            rows: pa.Table = self._frame.toArrow()
        except (PySparkException, Py4JJavaError) as error:
            if TOO_LARGE in str(error):
                return None
            raise
        return list(rows.to_batches())

    def _bytes(self, held: HeldResult) -> int:
        infos: Any = self._frame.sparkSession.sparkContext._jsc.sc().getRDDStorageInfo()
        return sum(int(info.memSize()) + int(info.diskSize()) for info in infos if info.id() == held.rdd_id)
