"""Files of other formats and in other places: Avro, S3, and the clouds that no test can reach."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

import penstock as ps
from penstock.errors import ConnectorError
from penstock.spark import connectors
from servers.s3 import ACCESS_KEY, SECRET_KEY, Store


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[dict[str, str]]:
    """Hadoop settings for one test: put them here before the first use of a bucket."""
    given = _Conf(spark)
    yield given
    for key in given:
        spark.conf.unset(key)


class _Conf(dict[str, str]):
    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self.spark = spark

    def __setitem__(self, key: str, value: str) -> None:
        self.spark.conf.set(key, value)
        super().__setitem__(key, value)


def test_avro_files(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "orders")
    rows = spark.createDataFrame(
        [(1, "Zoë", [1, 2]), (2, None, None)], "id BIGINT, name STRING, counts ARRAY<INT>"
    )
    rows.write.format("avro").save(path)
    assert sorted(spark.read.format("avro").load(path).collect()) == sorted(rows.collect())


def test_avro_in_columns(spark: SparkSession) -> None:
    schema = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": ["null", "string"]}]}'
    rows = spark.createDataFrame([(1, "a"), (2, None)], "id BIGINT NOT NULL, s STRING")
    packed = rows.select(to_avro(F.struct("id", "s"), schema).alias("value"))
    back = packed.select(from_avro("value", schema).alias("r")).select("r.*")
    assert back.collect() == rows.collect()


@pytest.mark.smoke
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_parquet_on_s3(spark: SparkSession, s3: Store, conf: dict[str, str], scheme: str) -> None:
    conf["fs.s3a.endpoint"] = s3.endpoint
    conf["fs.s3a.path.style.access"] = "true"
    conf["fs.s3a.endpoint.region"] = "us-east-1"
    conf["fs.s3a.access.key"] = ACCESS_KEY
    conf["fs.s3a.secret.key"] = SECRET_KEY
    path = f"{scheme}://{s3.new_bucket()}/orders"
    spark.range(1000).withColumn("kind", F.col("id") % 2).write.partitionBy("kind").parquet(path)
    spark.range(5).withColumn("kind", F.lit(1)).write.mode("append").partitionBy("kind").parquet(path)
    back = spark.read.parquet(path)
    assert back.groupBy("kind").count().orderBy("kind").collect() == [(0, 500), (1, 505)]
    assert spark.sql(f"SELECT count(*) FROM parquet.`{path}`").collect() == [(1005,)]


# No test can reach these services. What is shown: the connector is added to a session that runs, its file system is
# loaded with all it needs, and it fails where the network would begin.
def test_adls_is_loaded_and_asks_the_network(
    session: ps.Session, spark: SparkSession, conf: dict[str, str]
) -> None:
    connectors.add_to_running(spark, "adls", session.settings)
    conf["fs.azure.account.key.account.dfs.invalid"] = "AAAA"
    conf["fs.azure.io.retry.max.retries"] = "0"
    with pytest.raises(Exception, match=r"UnknownHostException: account\.dfs\.invalid"):
        spark.read.parquet("abfss://container@account.dfs.invalid/orders")


def test_gcs_is_loaded_and_asks_the_network(
    session: ps.Session, spark: SparkSession, conf: dict[str, str]
) -> None:
    connectors.add_to_running(spark, "gcs", session.settings)
    conf["fs.gs.auth.type"] = "UNAUTHENTICATED"
    conf["fs.gs.storage.root.url"] = "http://127.0.0.1:1"
    conf["fs.gs.http.max.retry"] = "0"
    with pytest.raises(Exception, match="Connection refused"):
        spark.read.parquet("gs://bucket/orders")


def test_a_second_session_brings_its_connectors_into_the_running_one(
    session: ps.Session, spark: SparkSession
) -> None:
    with ps.Session.embedded(connectors=("gcs", "iceberg")) as second:
        assert second.spark is spark
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        assert hadoop.getClass("fs.gs.impl", None).getSimpleName() == "GoogleHadoopFileSystem"
    with pytest.raises(ps.ConfigError, match=r"connectors=\(") as caught:
        ps.Session.embedded(connectors=("delta",))
    assert caught.value.code == "SESSION_STATIC_CONF"
    assert spark.range(2).count() == 2


@pytest.mark.parametrize("name", ["iceberg", "delta"])
def test_what_needs_session_extensions_cannot_be_added_later(session: ps.Session, name: str) -> None:
    with pytest.raises(ConnectorError, match=rf'connectors=\("{name}",\)'):
        connectors.add_to_running(session.spark, name, session.settings)
