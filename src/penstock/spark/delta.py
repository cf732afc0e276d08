"""Delta tables through their change data feed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.spark.arrow import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FEED = "delta.enableChangeDataFeed"


def require_feed(spark: SparkSession, name: str) -> None:
    """ConfigError when a table does not record its changes."""
    properties = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    if properties.get(FEED, "false").lower() != "true":
        raise ConfigError(
            f"the Delta table {name} does not record its changes",
            code="FLOW_TABLE_FEED",
            hint=f"let it: ALTER TABLE {name} SET TBLPROPERTIES ('{FEED}' = 'true')",
        )


class DeltaTable:
    """A table and its versions."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        self._history: list[int] = []

    def version(self) -> str | None:
        rows = self._spark.sql(f"DESCRIBE HISTORY {self._name}").select("version").collect()
        self._history = sorted(int(row.version) for row in rows)
        return str(self._history[-1]) if self._history else None

    def has(self, version: str) -> bool:
        # Files that VACUUM took away are noticed when they are read.
        return int(version) in self._history

    def rows(self, since: str | None, until: str | None, columns: Sequence[str]) -> pa.Table:
        from pyspark.sql import functions as F  # as PySpark's users have it

        assert until is not None, "a Delta table always has a version"
        names = [F.col(f"`{name.replace('`', '``')}`") for name in columns]
        unit = F.lit(1).cast("bigint")
        if since is None:
            frame = self._spark.sql(f"SELECT * FROM {self._name} VERSION AS OF {int(until)}")
            return to_arrow(frame.select(*names, unit.alias("_weight")))
        reader = self._spark.read.option("readChangeFeed", "true")
        changes = reader.option("startingVersion", int(since) + 1).option("endingVersion", int(until))
        gone = F.col("_change_type").isin("delete", "update_preimage")
        weight = F.when(gone, -unit).otherwise(unit).alias("_weight")
        return to_arrow(changes.table(self._name).select(*names, weight))
