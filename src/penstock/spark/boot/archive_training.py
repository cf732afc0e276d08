"""What a typical session does, so that the classes it loads are known: the archive holds these and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.boot import gateway, pyspark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_SECONDS = 600.0  # a process that gives way to all others may wait long for its turn
CONF = {
    "spark.master": "local[2]",
    "spark.app.name": "penstock-training",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.extensions.test.loadFromCp": "false",
}
ROWS = """
SELECT id, id % 10 AS k, CAST(id AS STRING) AS s, CAST(id AS DOUBLE) AS d, CAST(id AS DECIMAL(10,2)) AS m,
       timestamp_seconds(id) AS t, date_from_unix_date(CAST(id AS INT)) AS day, array(id, id + 1) AS many
FROM range(200)
"""
QUERIES = (
    "SELECT 1",
    "SELECT a.k, count(*) AS n, sum(b.d), max(a.s), avg(a.m), count(DISTINCT b.id) "
    "FROM a JOIN b ON a.id = b.id WHERE a.t IS NOT NULL AND a.s LIKE '1%' GROUP BY a.k ORDER BY n DESC LIMIT 5",
    "SELECT /*+ MERGE(b) */ a.k, b.s FROM a LEFT JOIN b ON a.id = b.id WHERE a.id IN (SELECT id FROM j)",
    "SELECT k, row_number() OVER (PARTITION BY k ORDER BY d) AS r FROM j",
    "SELECT explode(many) AS one, date_trunc('hour', t), upper(s), year(day) FROM a LIMIT 3",
    "WITH x AS (SELECT k, sum(d) AS d FROM a GROUP BY k) SELECT * FROM x UNION ALL SELECT k, d FROM a WHERE id < 3",
    "SHOW TABLES",
    "DESCRIBE a",
    "EXPLAIN FORMATTED SELECT k, count(*) FROM a GROUP BY k",
)


def run(launch: gateway.Launch, *, home: Path, started: Callable[[gateway.Jvm], None]) -> None:
    """Run the training in a JVM of its own, which `started` sees first."""
    jvm = gateway.start(launch, home=home)
    started(jvm)
    try:
        conf = {**CONF, "spark.local.dir": str(jvm.scratch.path)}
        spark = pyspark_session.session(jvm, conf, seconds=START_SECONDS)
        exercise(spark, jvm.scratch.path)
        pyspark_session.release()
        pyspark_session.end(spark)
    except BaseException:
        jvm.kill()
        raise
    jvm.end(seconds=START_SECONDS)


def exercise(spark: SparkSession, folder: Path) -> None:
    """Read and write files, join, aggregate and bring results to Python in the usual ways."""
    rows = spark.sql(ROWS)
    rows.write.parquet(f"{folder}/p")
    flat = rows.drop("many")
    flat.write.option("header", True).csv(f"{folder}/c")
    flat.write.json(f"{folder}/j")
    spark.read.parquet(f"{folder}/p").createOrReplaceTempView("a")
    spark.read.csv(f"{folder}/c", header=True, inferSchema=True).createOrReplaceTempView("b")
    spark.read.json(f"{folder}/j").createOrReplaceTempView("j")
    for query in QUERIES:
        spark.sql(query).toArrow()
    spark.sql(QUERIES[1]).collect()
    spark.sql(f"SELECT count(*) FROM parquet.`{folder}/p`").toPandas()
    spark.createDataFrame([{"x": 1, "y": "a"}]).show()
    spark.catalog.listTables()
    spark.catalog.listColumns("a")
