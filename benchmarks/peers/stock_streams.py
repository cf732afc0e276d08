"""Streams with stock PySpark: its defaults, its own source and sinks; the other side of `penstock_streams.py`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from streaming_records import AVRO_SCHEMA, DDL, send


def started(options: dict[str, Any]) -> SparkSession:
    """A session as PySpark starts it, with the jars that the case needs."""
    builder = SparkSession.builder.config("spark.jars", ",".join(options["jars"]))
    if "iceberg" in options.get("sinks", ()):
        builder = (
            builder.config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
            .config("spark.sql.catalog.lake.type", "hadoop")
            .config("spark.sql.catalog.lake.warehouse", f"{options['folder']}/lake")
        )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rows_of(spark: SparkSession, options: dict[str, Any], topic: str, **more: Any) -> DataFrame:
    """The decoded records of a topic."""
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options["servers"])
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**more)
        .load()
    )
    if options["format"] == "json":
        value = F.from_json(F.col("value").cast("string"), DDL, {"mode": "FAILFAST"})
    else:
        value = from_avro("value", AVRO_SCHEMA)
    return frame.select(value.alias("value")).select("value.*")


def wanted(frame: DataFrame) -> DataFrame:
    """The filter and the projection."""
    return frame.where("kind <> 'other'").select(
        "id", "account", "amount", F.timestamp_millis("at").alias("at")
    )


def record(frame: DataFrame, form: str) -> DataFrame:
    """Rows as values of Kafka."""
    row = F.struct(*frame.columns)
    return frame.select((F.to_json(row).cast("binary") if form == "json" else to_avro(row)).alias("value"))


class Transactions:
    """One transaction per batch, with the epoch in it, as the documents of Kafka's client show it."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": f"stock-{topic}"})
        self._producer.init_transactions()
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": f"stock-{topic}"})

    def write(self, batch: DataFrame, epoch: int) -> None:
        """Send a batch."""
        values = batch.toArrow().column("value")
        self._producer.begin_transaction()
        for value in values.to_pylist():
            while True:
                try:
                    self._producer.produce(self._topic, value)
                    break
                except BufferError:
                    self._producer.poll(0.05)
        mark = [TopicPartition(self._topic, 0, epoch + 1)]
        self._producer.send_offsets_to_transaction(mark, self._consumer.consumer_group_metadata())
        self._producer.commit_transaction()

    def close(self) -> None:
        """End."""
        self._producer.flush()
        self._consumer.close()


def run_to(frame: DataFrame, sink: str, options: dict[str, Any], folder: str, topic: str) -> float:
    """Write all that is there into a sink; return the seconds."""
    shutil.rmtree(folder, ignore_errors=True)
    spark = frame.sparkSession
    kafka = record(frame, options["format"]) if sink.startswith("kafka") else frame
    writer = kafka.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    transactions = None
    begin = time.perf_counter()
    if sink == "blackhole":
        query = writer.format("noop").start()
    elif sink == "parquet":
        query = writer.format("parquet").option("path", f"{folder}/out").start()
    elif sink == "iceberg":
        spark.sql("DROP TABLE IF EXISTS lake.db.rows PURGE")
        spark.sql(
            "CREATE TABLE lake.db.rows (id BIGINT, account STRING, amount DOUBLE, at TIMESTAMP) USING iceberg"
        )
        begin = time.perf_counter()
        query = writer.format("iceberg").outputMode("append").toTable("lake.db.rows")
    elif sink == "kafka":
        query = (
            writer.format("kafka")
            .option("kafka.bootstrap.servers", options["servers"])
            .option("topic", topic)
            .start()
        )
    else:
        transactions = Transactions(options["servers"], topic)
        query = writer.foreachBatch(transactions.write).start()
    query.awaitTermination()
    seconds = time.perf_counter() - begin
    if transactions is not None:
        transactions.close()
    return seconds


def throughput(options: dict[str, Any]) -> dict[str, Any]:
    """Every sink of the case, each after a small run that does not count."""
    spark = started(options)
    found = {}
    for sink in options["sinks"]:
        folder = f"{options['folder']}/{sink}"
        bound = {"maxOffsetsPerTrigger": options["transaction"]} if sink == "kafka_transactional" else {}
        warm, full = (
            wanted(rows_of(spark, options, name, **bound)) for name in (options["warm"], options["topic"])
        )
        run_to(warm, sink, options, folder, options["outputs"][sink][0])
        found[sink] = run_to(full, sink, options, folder, options["outputs"][sink][1])
    spark.stop()
    return {"seconds": found}


def micro_batch(options: dict[str, Any]) -> dict[str, Any]:
    """Batches of a few rows from Kafka to Kafka: milliseconds of each, as Spark tells them."""
    spark = started(options)
    rows = record(wanted(rows_of(spark, options, options["topic"])), "json")
    writer = rows.writeStream.option("checkpointLocation", f"{options['folder']}/checkpoint")
    if options["transactional"]:
        query = writer.foreachBatch(Transactions(options["servers"], options["output"]).write).start()
    else:
        kafka = writer.format("kafka").option("kafka.bootstrap.servers", options["servers"])
        query = kafka.option("topic", options["output"]).start()
    found: list[float] = []
    for _ in range(options["batches"]):
        before = query.lastProgress
        send(options["servers"], options["topic"], 3)
        while True:
            last = query.lastProgress
            if last and (not before or last["batchId"] > before["batchId"]) and last["numInputRows"]:
                break
            time.sleep(0.005)
        found.append(last["durationMs"]["triggerExecution"])
    query.stop()
    spark.stop()
    return {"ms": found[options["unmeasured"] :]}


def window(options: dict[str, Any]) -> dict[str, Any]:
    """Counts per key and hour, all records of a topic in batches; the seconds."""
    spark = started(options)

    def seconds(topic: str, name: str) -> float:
        rows = rows_of(spark, options, topic, maxOffsetsPerTrigger=options["batch"])
        counts = (
            rows.withColumn("at", F.timestamp_millis("at"))
            .withWatermark("at", "1 hour")
            .groupBy(F.window("at", "1 hour"), "account")
            .agg(F.count("*").alias("n"))
        )
        writer = counts.writeStream.outputMode("update").trigger(availableNow=True).format("noop")
        begin = time.perf_counter()
        writer.option("checkpointLocation", f"{options['folder']}/{name}").start().awaitTermination()
        return time.perf_counter() - begin

    seconds(options["warm"], "warm")
    found = {"seconds": seconds(options["topic"], "window")}
    spark.stop()
    return found


def latency(options: dict[str, Any]) -> dict[str, Any]:
    """Records that come at a steady rate, from Kafka to Kafka; how long they took is read from the output topic."""
    spark = started(options)
    rows = rows_of(spark, options, options["topic"]).where("kind <> 'other'").select("id", "at")
    writer = record(rows, "json").writeStream.option("checkpointLocation", f"{options['folder']}/checkpoint")
    if options["transactional"]:
        query = writer.foreachBatch(Transactions(options["servers"], options["output"]).write).start()
    else:
        kafka = writer.format("kafka").option("kafka.bootstrap.servers", options["servers"])
        query = kafka.option("topic", options["output"]).start()
    subprocess.run(options["feed"], check=True)
    time.sleep(5)
    query.stop()
    spark.stop()
    return {"how": "Spark's micro-batches"}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    Path(given["folder"]).mkdir(parents=True, exist_ok=True)
    print(json.dumps(globals()[given["what"]](given)), flush=True)
