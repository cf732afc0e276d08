"""Iceberg tables for tests: a catalog of their own, and random changes of a table with few keys, so that they meet."""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.spark import catalogs

COLUMNS = "k BIGINT, g INT, v BIGINT, s STRING"


def mount(spark: SparkSession, warehouse: Path) -> str:
    """Make a catalog in a folder known to a running session; return its name, with a namespace `db` in it."""
    name = f"lake_{uuid.uuid4().hex[:12]}"
    for key, value in catalogs.conf_of(name, {"type": "hadoop", "warehouse": str(warehouse)}).items():
        spark.conf.set(key, value)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}.db")
    return name


def create_table(
    spark: SparkSession,
    table: str,
    mode: str,
    columns: str = COLUMNS,
    *,
    version: int = 2,
    partitions: str = "",
) -> None:
    """Create a table whose deletes, updates and merges are written in a mode."""
    modes = ", ".join(f"'write.{verb}.mode' = '{mode}'" for verb in ("delete", "update", "merge"))
    spark.sql(
        f"CREATE TABLE {table} ({columns}) USING iceberg {partitions} "
        f"TBLPROPERTIES ('format-version' = '{version}', {modes})"
    )


def bag(rows: Iterable[Any]) -> Counter[str]:
    """Rows with how often each is there."""
    return Counter(str(tuple(row)) for row in rows)


def standing(spark: SparkSession, table: str) -> tuple[int, dict[str, str]]:
    """The last snapshot of the table of a view, and the snapshots of sources that it says it stands for: others may come meanwhile."""
    spark.catalog.refreshTable(table)
    row = spark.sql(
        f"SELECT s.snapshot_id, s.summary['penstock.sources'] AS sources FROM {table}.snapshots AS s "
        f"JOIN {table}.history AS h ON h.snapshot_id = s.snapshot_id "
        "WHERE s.operation <> 'replace' AND h.is_current_ancestor ORDER BY s.committed_at DESC LIMIT 1"
    ).first()
    assert row is not None
    return row.snapshot_id, json.loads(row.sources)


def stands_for(spark: SparkSession, table: str) -> dict[str, str]:
    """The snapshots of sources that the table of a view says it stands for."""
    return standing(spark, table)[1]


def delete_by_equality(spark: SparkSession, name: str, column: str, text: str) -> None:
    """Delete the rows with a text as streaming engines do: by a file that says the text, whatever rows have it."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    table.refresh()
    names = gateway.new_array(jvm.java.lang.String, 1)
    names[0] = column
    ids = gateway.new_array(jvm.int, 1)
    ids[0] = table.schema().findField(column).fieldId()
    schema = table.schema().select(names)
    builder = getattr(jvm.org.apache.iceberg.data, "GenericFileWriterFactory$Builder")(table)
    factory = builder.equalityFieldIds(ids).equalityDeleteRowSchema(schema).build()
    file = table.io().newOutputFile(f"{table.location()}/data/{uuid.uuid4().hex}.parquet")
    encrypted = jvm.org.apache.iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(file)
    writer = factory.newEqualityDeleteWriter(encrypted, table.spec(), None)
    row = jvm.org.apache.iceberg.data.GenericRecord.create(schema)
    row.setField(column, text)
    writer.write(row)
    writer.close()
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
    spark.catalog.refreshTable(name)


class History:
    """Random changes of a table."""

    def __init__(
        self, spark: SparkSession, table: str, rng: random.Random, *, is_partitioned: bool = False
    ) -> None:
        self.spark, self.rng, self.table, self._is_partitioned = spark, rng, table, is_partitioned

    def change(self) -> None:
        """Change something, or only the files."""
        rng, table = self.rng, self.table
        if rng.random() < 0.1 and not self._is_partitioned:
            delete_by_equality(self.spark, table, "s", rng.choice("abm"))
            return
        choices = [
            (4, self._insert),
            (2, lambda: f"DELETE FROM {table} WHERE k % 5 = {rng.randint(0, 4)}"),
            (
                2,
                lambda: (
                    f"UPDATE {table} SET v = v + {rng.randint(0, 1)}, g = k % 2 WHERE k % 3 = {rng.randint(0, 2)}"
                ),
            ),
            (2, self._merge),
            (1, lambda: f"INSERT OVERWRITE {table} SELECT k, g, v, s FROM {table} WHERE k > 2"),
            (0.5, lambda: f"DELETE FROM {table}"),
            (2, lambda: self._rewrite("rewrite_data_files")),
            (1, lambda: self._rewrite("rewrite_position_delete_files")),
            (
                1,
                lambda: (
                    f"ALTER TABLE {table} SET TBLPROPERTIES "
                    f"('write.merge.mode' = '{rng.choice(['merge-on-read', 'copy-on-write'])}')"
                ),
            ),
        ]
        make = rng.choices([made for _, made in choices], [weight for weight, _ in choices])[0]
        self.spark.sql(make())

    def _insert(self) -> str:
        rng = self.rng
        rows = [
            f"({rng.randint(0, 9)}, {rng.choice(['NULL', '0', '1', '2'])}, {rng.randint(-3, 3)}, "
            f"{rng.choice(['NULL', repr('a'), repr('b')])})"
            for _ in range(rng.randint(1, 5))
        ]
        return f"INSERT INTO {self.table} VALUES {', '.join(rows)}"

    def _merge(self) -> str:
        first = self.rng.randint(0, 9)
        return (
            f"MERGE INTO {self.table} AS t USING (SELECT id AS k FROM range({first}, {first + 4})) AS s ON t.k = s.k "
            "WHEN MATCHED AND t.v < 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = t.v + 1 "
            "WHEN NOT MATCHED THEN INSERT (k, g, v, s) VALUES (s.k, 1, 1, 'm')"
        )

    def _rewrite(self, procedure: str) -> str:
        lake, _, name = self.table.partition(".")
        return f"CALL {lake}.system.{procedure}(table => '{name}', options => map('rewrite-all', 'true'))"
