"""Connectors in sessions of their own: asked for at the start, together, or only when a session already runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from servers.kafka import Broker
from servers.postgres import Postgres
from servers.s3 import ACCESS_KEY, SECRET_KEY, Store

pytestmark = pytest.mark.timeout(600)  # a session of its own that uses everything once, cold

AT_START = """
import json, sys
import penstock as ps
given = json.loads(sys.argv[1])
with ps.Session.embedded(
    master="local[2]",
    connectors=("delta", "s3"),
    catalogs={"lake": {"type": "jdbc", "uri": given["database"], "warehouse": given["bucket"] + "/lake"}},
    conf=given["conf"],
) as session:
    spark = session.spark
    extensions = spark.conf.get("spark.sql.extensions")
    assert "Iceberg" in extensions and "Delta" in extensions, extensions
    spark.sql("CREATE TABLE lake.shop.orders USING iceberg AS SELECT id FROM range(10)")
    spark.sql("DELETE FROM lake.shop.orders WHERE id = 0")
    assert spark.table("lake.shop.orders").count() == 9
    path = given["folder"] + "/delta"
    spark.range(3).write.format("delta").save(path)
    spark.sql(f"MERGE INTO delta.`{path}` AS t USING (SELECT 2L AS id UNION ALL SELECT 7L) AS s ON t.id = s.id "
              "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *")
    assert sorted(row.id for row in spark.read.format("delta").load(path).collect()) == [0, 1, 7]
    assert spark.read.format("delta").option("versionAsOf", 0).load(path).count() == 3
    seen = []
    query = (spark.readStream.format("delta").load(path).writeStream.trigger(availableNow=True)
             .option("checkpointLocation", given["folder"] + "/checkpoint")
             .foreachBatch(lambda rows, epoch: seen.extend(rows.collect())).start())
    assert query.awaitTermination(120)
    assert sorted(row.id for row in seen) == [0, 1, 7]
    spark.sql(f"CREATE TABLE shop USING delta LOCATION '{given['bucket']}/delta' AS SELECT 1 AS one")
    assert spark.sql("SELECT one FROM shop").collect() == [(1,)]
print("done")
"""

WHILE_RUNNING = """
import json, sys, threading
import penstock as ps
from penstock import config
from penstock.spark import connectors
from penstock.spark.boot import session as spark_session
given = json.loads(sys.argv[1])
settings = config.load().with_arguments(master="local[2]", conf=given["conf"])
spark = spark_session.start(settings)

def fails(action, word):
    try:
        action()
    except Exception as error:
        assert word in str(error), error
    else:
        raise AssertionError(word)

def s3():
    return spark.read.parquet(given["bucket"] + "/numbers").count()

def avro():
    return spark.read.format("avro").load(given["folder"] + "/avro").count()

def kafka():
    return (spark.read.format("kafka").option("kafka.bootstrap.servers", given["kafka"])
            .option("subscribe", given["topic"]).load().count())

def postgres():
    return spark.read.jdbc(given["jdbc"], "(SELECT generate_series(1, 4)) AS t").count()

# Without the connector each fails, and that must not be remembered.
fails(lambda: spark.read.parquet(given["bucket"].replace("s3:", "s3a:")), "S3AFileSystem")
fails(s3, "No FileSystem for scheme")
fails(avro, "avro")
fails(kafka, "kafka")
fails(postgres, "No suitable driver")
for name in ("s3", "avro", "kafka", "postgres", "s3"):
    connectors.add_to_running(spark, name, settings)
for name in ("iceberg", "delta"):
    fails(lambda: connectors.add_to_running(spark, name, settings), f'connectors=("{name}",)')

spark.range(5).write.parquet(given["bucket"] + "/numbers")
spark.range(3).write.format("avro").save(given["folder"] + "/avro")
(spark.createDataFrame([("a",), ("b",)], "value STRING").write.format("kafka")
 .option("kafka.bootstrap.servers", given["kafka"]).option("topic", given["topic"]).save())
answers = {}
def ask(action):
    answers[action.__name__] = action()
for action in (s3, avro, kafka, postgres):
    thread = threading.Thread(target=ask, args=(action,))
    thread.start()
    thread.join()
assert answers == {"s3": 5, "avro": 3, "kafka": 2, "postgres": 4}, answers
spark_session.stop(spark)
print("done")
"""


def _run(script: str, given: dict[str, object], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps({"folder": str(folder), **given})],
        capture_output=True,
        text=True,
        timeout=560,
        cwd=folder,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[-4000:]}"
    assert done.stdout.splitlines()[-1] == "done"


def _s3_conf(s3: Store) -> dict[str, str]:
    return {
        "spark.hadoop.fs.s3a.endpoint": s3.endpoint,
        "spark.hadoop.fs.s3a.access.key": ACCESS_KEY,
        "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
    }


def test_delta_iceberg_and_s3_together_from_the_start(tmp_path: Path, postgres: Postgres, s3: Store) -> None:
    given: dict[str, object] = {
        "database": postgres.new_database(),
        "bucket": f"s3://{s3.new_bucket()}",
        "conf": _s3_conf(s3),
    }
    _run(AT_START, given, tmp_path)


def test_connectors_added_to_a_running_session_work_at_once_in_every_thread(
    tmp_path: Path, postgres: Postgres, s3: Store, kafka: Broker
) -> None:
    given: dict[str, object] = {
        "bucket": f"s3://{s3.new_bucket()}",
        "conf": _s3_conf(s3),
        "kafka": kafka.bootstrap_servers,
        "topic": kafka.new_topic(),
        "jdbc": postgres.url().replace("postgresql://penstock:secret@", "jdbc:postgresql://")
        + "?user=penstock&password=secret",
    }
    _run(WHILE_RUNNING, given, tmp_path)
