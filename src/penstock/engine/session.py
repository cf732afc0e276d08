"""The session: where every use of penstock begins."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock import config
from penstock.spark import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Session:
    """Batch SQL, streams and incremental views over one Spark.

    >>> with Session.embedded() as session:                # doctest: +SKIP
    ...     session.sql("SELECT 1 AS one").show()
    """

    def __init__(self, spark: SparkSession, settings: config.Settings) -> None:
        self.spark = spark
        self.settings = settings

    @classmethod
    def embedded(
        cls,
        *,
        conf: Mapping[str, Any] | None = None,
        master: str | None = None,
        connectors: tuple[str, ...] = (),
        catalogs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Self:
        """Start Spark in this process."""
        settings = config.load().with_arguments(
            conf=conf, master=master, connectors=connectors, catalogs=catalogs
        )
        return cls(spark_session.start(settings), settings)

    def sql(self, query: str) -> DataFrame:
        """Run a statement and return a PySpark DataFrame."""
        return self.spark.sql(query)

    def stop(self) -> None:
        """End what this session started."""
        spark_session.stop(self.spark)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
