"""PostgreSQL as data sources of Spark in Python: classes that hand Spark's calls on to the readers of this package.

The classes are made when they are needed, because Spark is imported then; Spark sends them to its Python processes as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import PenstockError
from penstock.sources.postgres.follow import ChangeReader, Following
from penstock.sources.postgres.slot import Slot
from penstock.sources.postgres.snapshot import SnapshotReader, TableReading

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource, InputPartition

SNAPSHOT = "penstock_postgres"
CHANGES = "penstock_postgres_cdc"


def stream_of(spark: SparkSession, name: str, ddl: str, *, url: str, definition: str) -> DataFrame:
    """Return a streaming DataFrame of one of the data sources; the address is an option that Spark hides."""
    spark.dataSource.register(_CLASSES[name]())
    return spark.readStream.format(name).schema(ddl).options(url=url, definition=definition).load()


R = TypeVar("R", bound="SnapshotReader | ChangeReader")


class _Calls(Generic[R]):
    """What Spark asks of both readers, under its names."""

    _reader: R

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._reader.initial_offset()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        with _through_spark():
            return self._reader.latest_offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        from pyspark.sql.datasource import InputPartition

        with _through_spark():
            return [InputPartition(value) for value in self._reader.partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with _through_spark():
            yield from self._reader.read(partition.value)

    def stop(self) -> None:
        self._reader.stop()


@cache
def _snapshot_source() -> type[DataSource]:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader

    class SnapshotStreamReader(_Calls[SnapshotReader], DataSourceStreamReader):
        def __init__(self, reading: TableReading) -> None:
            self._reader = SnapshotReader(reading)

    class PostgresSnapshot(DataSource):
        @classmethod
        def name(cls) -> str:
            return SNAPSHOT

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return SnapshotStreamReader(
                TableReading.from_text(self.options["url"], self.options["definition"])
            )

    return PostgresSnapshot


@cache
def _change_source() -> type[DataSource]:
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

    # Of this class alone Spark takes rows that were read ahead, without a task that reads them.
    class ChangeStreamReader(_Calls[ChangeReader], _SimpleStreamReaderWrapper):
        def __init__(self, reader: ChangeReader) -> None:
            self._reader = reader

        def getCache(  # type: ignore[override]  # noqa: N802
            self, start: dict[str, Any], end: dict[str, Any]
        ) -> Iterator[pa.RecordBatch] | None:
            with _through_spark():
                return self._reader.ahead(start, end)

        def commit(self, end: dict[str, Any]) -> None:
            """Comes only with the next batch that has rows: the slot is moved by `latestOffset`."""

    class PostgresChanges(DataSource):
        @classmethod
        def name(cls) -> str:
            return CHANGES

        def streamReader(self, schema: Any) -> Any:  # noqa: N802
            definition = json.loads(self.options["definition"])
            reading = TableReading.from_text(self.options["url"], definition["reading"])
            values = definition["following"]
            following = Following(**{**values, "slot": Slot(**values["slot"])})
            return ChangeStreamReader(ChangeReader(reading, following))

    return PostgresChanges


_CLASSES: Mapping[str, Any] = {SNAPSHOT: _snapshot_source, CHANGES: _change_source}


@contextmanager
def _through_spark() -> Iterator[None]:
    """Let an error of ours come out on the other side of Spark as what it was."""
    try:
        yield
    except PenstockError as error:
        from penstock.spark.errors.flow_table import encoded

        raise RuntimeError(encoded(error)) from None
