"""Dead letters: rows that a node could not take, stored with the node, the reason and the time, and read again when
they are replayed.

A letter has an id that follows from its query, node, epoch, reason and row, and from its number among equal ones: an
epoch that comes again gives the same ids. A file, a table of PostgreSQL and one of Iceberg have each letter once; a
topic may have it again, and is read by the ids.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.sinks.base import Epoch, QueryStatus, Sink, Target
from penstock.transforms.base import ERROR, INPUT
from penstock.transforms.failure import parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.config import Settings
    from penstock.plugin import KeyValues, Namespace

COLUMNS = "id STRING, pipeline STRING, node STRING, reason STRING, row STRING, at TIMESTAMP, epoch BIGINT"
"""Of a letter: `row` is the row as it came into the node, as JSON."""
_NAMES = uuid.UUID("4f1a9a52-6a2c-4d8e-9d1b-8c1f3f0e7a55")
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Sender:
    """The node whose rows failed."""

    spark: SparkSession
    query: str
    """The id of the query that it is part of: the same after a restart."""
    pipeline: str
    node: str
    settings: Settings
    committed: int = -1
    begun: int = -1
    state: Namespace | None = None
    """Values of the letters' sink in the state backend; None where nothing is run."""
    status: QueryStatus | None = None

    def target(self) -> Target:
        """The writer of the letters, as the sink knows it."""
        schema = self.spark.createDataFrame([], COLUMNS).schema
        return Target(
            self.spark,
            # A file sink names its files after the beginning of the id: two nodes may share a folder.
            str(uuid.uuid5(_NAMES, f"{self.query}/{self.node}")),
            f"{self.pipeline}-{self.node}-dead-letters",
            "append",
            schema,
            committed=self.committed,
            begun=self.begun,
            state=self.state,
            status=self.status or QueryStatus(),
            settings=self.settings,
        )


class DeadLetters:
    """The letters of one node, through a sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._sender: Sender | None = None

    def check(self, sender: Sender) -> None:
        """Refuse a sink that cannot work, and change nothing; `close` comes after it."""
        self._sink.check(sender.target())

    def open(self, sender: Sender) -> None:
        """Get ready for the first epoch with failures."""
        self._sender = sender
        self._sink.open(sender.target())

    def write(self, epoch: int, failed: DataFrame) -> int | None:
        """Store the failed rows of an epoch, columns `_error` and `_input`; return how many are new, or None when it
        is not known."""
        assert self._sender is not None, "the letters were not opened"
        return self._sink.write(Epoch(epoch, letters(failed, self._sender, epoch)))

    def finalize(self, epoch: int) -> None:
        """Called once for each epoch that was written, when the query's checkpoint has it."""
        self._sink.finalize(epoch)

    def close(self) -> None:
        """Called after `check`, and after the last epoch."""
        self._sink.close()

    def describe(self) -> str:
        """Where the letters go, in one line for people."""
        return self._sink.describe()


def letters(failed: DataFrame, sender: Sender, epoch: int) -> DataFrame:
    """Failed rows as letters."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # as PySpark's users have it

    reason, row = F.col(ERROR), F.col(INPUT)
    number = F.row_number().over(Window.partitionBy(reason, row).orderBy(F.lit(1)))
    parts = F.to_json(
        F.array(
            F.lit(sender.query), F.lit(sender.node), F.lit(str(epoch)), reason, row, number.cast("string")
        )
    )
    return failed.select(
        F.substring(F.sha2(parts, 256), 1, 2 * _ID_BYTES).alias("id"),
        F.lit(sender.pipeline).alias("pipeline"),
        F.lit(sender.node).alias("node"),
        reason.alias("reason"),
        row.alias("row"),
        F.current_timestamp().alias("at"),
        F.lit(epoch).cast("bigint").alias("epoch"),
    )


class Replayed:
    """The ids of the letters that were replayed, in the state backend: a second replay does not feed them again."""

    def __init__(self, values: KeyValues) -> None:
        self._values = values

    def ids(self) -> list[str]:
        """All of them."""
        parts = [bytes(self._values.get(f"replayed-{number}", b"")) for number in range(self._count())]
        return [part[at : at + _ID_BYTES].hex() for part in parts for at in range(0, len(part), _ID_BYTES)]

    def add(self, ids: Iterable[str]) -> None:
        """Note letters as replayed, all of them or none; called when the epoch that they were part of is committed."""
        number = self._count()
        self._values.put(f"replayed-{number}", b"".join(bytes.fromhex(letter_id) for letter_id in ids))
        self._values.put("replayed", number + 1)

    def _count(self) -> int:
        return int(self._values.get("replayed", 0))


def pending(
    stored: DataFrame, *, pipeline: str, nodes: Sequence[str] = (), replayed: Replayed | None = None
) -> DataFrame:
    """The letters of a pipeline, or of some of its nodes, that were not replayed: each id once, the oldest first."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    chosen = stored.where(F.col("pipeline") == pipeline)
    if nodes:
        chosen = chosen.where(F.col("node").isin(list(nodes)))
    done = [] if replayed is None else replayed.ids()
    if done:
        import pyarrow as pa

        done_ids = stored.sparkSession.createDataFrame(pa.table({"id": done}))
        chosen = chosen.join(done_ids, "id", "left_anti").select(*stored.columns)
    return chosen.dropDuplicates(["id"]).orderBy("epoch", "node", "id")


def rows(chosen: DataFrame, schema: StructType) -> DataFrame:
    """The rows of letters of one node, in the columns that come into the node, with exactly their types."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    return chosen.select(parsed(F.col("row"), schema).alias("row")).select("row.*")


def read_file(spark: SparkSession, path: str) -> DataFrame:
    """All letters of a folder; none when it is not there yet."""
    from penstock.spark.filesystem import Folder
    from penstock.spark.reader import absolute

    folder = absolute(path)
    names = [name for name in Folder(spark, folder).names() if not name.startswith(("_", "."))]
    return spark.read.json(folder, COLUMNS) if names else _none(spark)


def read_table(spark: SparkSession, table: str) -> DataFrame:
    """All letters of a table of a catalog."""
    return spark.table(table).select(*_columns()) if spark.catalog.tableExists(table) else _none(spark)


def read_postgres(spark: SparkSession, url: str, table: str) -> DataFrame:
    """All letters of a table of PostgreSQL."""
    from penstock.transforms.postgres_table import PostgresTable

    stored = PostgresTable(url, table)
    return stored.frame(spark).select(*_columns()) if stored.exists() else _none(spark)


def read_kafka(spark: SparkSession, topic: str, options: dict[str, Any]) -> DataFrame:
    """All letters of a topic; `options` are those of Spark's reader."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    records = (
        spark.read.format("kafka").options(subscribe=topic, startingOffsets="earliest", **options).load()
    )
    return records.select(F.from_json(F.col("value").cast("string"), COLUMNS).alias("letter")).select(
        "letter.*"
    )


def _columns() -> list[str]:
    return [column.split()[0] for column in COLUMNS.split(", ")]


def _none(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], COLUMNS)
