"""Iceberg tables through every type of catalog, and on an S3 store."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark import catalogs
from servers.iceberg_rest import RestCatalog
from servers.postgres import Postgres
from servers.s3 import ACCESS_KEY, SECRET_KEY, Store

Rows = list[tuple[object, ...]]


@pytest.fixture(params=["hadoop", "jdbc", "rest"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, mount: Callable[..., str]) -> str:
    """The name of a catalog of each type, mounted into the running session."""
    kind: str = request.param
    if kind == "hadoop":
        return mount(type=kind, warehouse=str(tmp_path / "warehouse"))
    if kind == "jdbc":
        server: Postgres = request.getfixturevalue("postgres")
        return mount(type=kind, uri=server.new_database(), warehouse=str(tmp_path / "warehouse"))
    catalog: RestCatalog = request.getfixturevalue("rest_catalog")
    return mount(type=kind, uri=catalog.uri)


@pytest.fixture
def mount(spark: SparkSession) -> Callable[..., str]:
    """Make a catalog known to the running session under a name of its own."""

    def mount(**options: str) -> str:
        name = f"lake_{uuid.uuid4().hex[:12]}"
        for key, value in catalogs.conf_of(name, options).items():
            spark.conf.set(key, value)
        return name

    return mount


def _rows(spark: SparkSession, query: str) -> Rows:
    return [tuple(row) for row in spark.sql(query).collect()]


@pytest.mark.smoke
def test_the_life_of_a_table(spark: SparkSession, lake: str) -> None:
    table = f"{lake}.shop.orders"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake}.shop")
    spark.sql(f"CREATE TABLE {table} (id INT, name STRING, amount DECIMAL(10,2)) USING iceberg")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a', 1.50), (2, 'b', NULL)")
    ((first,),) = _rows(spark, f"SELECT snapshot_id FROM {table}.snapshots")
    time.sleep(0.05)
    between = datetime.now(UTC)
    time.sleep(0.05)
    spark.sql(
        f"""MERGE INTO {table} AS t USING (
              SELECT * FROM VALUES (2, 'B', 2.25), (3, 'c', 3.00), (1, 'a', NULL) AS v(id, name, amount)
            ) AS s ON t.id = s.id
            WHEN MATCHED AND s.amount IS NULL THEN DELETE
            WHEN MATCHED THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *"""
    )
    now = _rows(spark, f"SELECT id, name, CAST(amount AS STRING) FROM {table} ORDER BY id")
    assert now == [(2, "B", "2.25"), (3, "c", "3.00")]
    before = [(1, "a", "1.50"), (2, "b", None)]
    columns = "id, name, CAST(amount AS STRING)"
    assert _rows(spark, f"SELECT {columns} FROM {table} VERSION AS OF {first} ORDER BY id") == before
    moment = between.strftime("%Y-%m-%d %H:%M:%S.%f+00:00")
    assert _rows(spark, f"SELECT {columns} FROM {table} TIMESTAMP AS OF '{moment}' ORDER BY id") == before
    spark.sql(f"ALTER TABLE {table} ADD COLUMN note STRING")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN name TO title")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN amount TYPE DECIMAL(20,2)")
    spark.sql(f"INSERT INTO {table} VALUES (3000000000, 'd', 123456789012.34, 'new')")
    types = {name: kind for name, kind, *_ in _rows(spark, f"DESCRIBE TABLE {table}") if name}
    assert types == {"id": "bigint", "title": "string", "amount": "decimal(20,2)", "note": "string"}
    assert _rows(spark, f"SELECT id, title, note FROM {table} ORDER BY id") == [
        (2, "B", None),
        (3, "c", None),
        (3_000_000_000, "d", "new"),
    ]
    assert _rows(spark, f"SELECT count(*) FROM {table}.snapshots") == [(3,)]
    assert _rows(spark, f"SELECT * FROM {table} VERSION AS OF {first} WHERE id = 1")[0][:2] == (1, "a")
    spark.sql(f"DROP TABLE {table}")


def test_appending_a_data_frame_and_calling_a_procedure(spark: SparkSession, lake: str) -> None:
    table = f"{lake}.shop.numbers"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake}.shop")
    spark.range(10).writeTo(table).using("iceberg").create()
    spark.range(10, 15).writeTo(table).append()
    assert spark.table(table).count() == 15
    rewritten = spark.sql(f"CALL {lake}.system.rewrite_data_files(table => 'shop.numbers')").collect()
    assert len(rewritten) == 1
    assert spark.read.format("iceberg").load(table).count() == 15
    spark.sql(f"DROP TABLE {table}")


@pytest.mark.parametrize("io", ["Hadoop's client", "Iceberg's own client"])
def test_a_warehouse_on_s3(
    spark: SparkSession, s3: Store, postgres: Postgres, mount: Callable[..., str], io: str
) -> None:
    options = {
        "type": "jdbc",
        "uri": postgres.new_database(),
        "warehouse": f"s3://{s3.new_bucket()}/warehouse",
        "s3.endpoint": s3.endpoint,
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
    }
    if io == "Iceberg's own client":
        options |= {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.path-style-access": "true",
            "client.region": "us-east-1",
        }
    table = f"{mount(**options)}.shop.numbers"
    spark.sql(f"CREATE TABLE {table} (id BIGINT) USING iceberg PARTITIONED BY (bucket(2, id))")
    spark.sql(f"INSERT INTO {table} SELECT id FROM range(100)")
    spark.sql(f"DELETE FROM {table} WHERE id < 10")
    assert _rows(spark, f"SELECT count(*), min(id) FROM {table}") == [(90, 10)]
    ((path,),) = _rows(spark, f"SELECT max(file_path) FROM {table}.files")
    assert str(path).startswith("s3://")
    spark.sql(f"DROP TABLE {table}")
