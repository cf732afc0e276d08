"""Streams with penstock, in a process of its own; the other side of `stock_streams.py`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

import penstock as ps
from streaming_records import AVRO_SCHEMA, DDL, send


def started(options: dict[str, Any]) -> ps.Session:
    """A session with the connectors that the case needs."""
    sinks = options.get("sinks", ())
    lake = (
        {"lake": {"type": "hadoop", "warehouse": f"{options['folder']}/lake"}} if "iceberg" in sinks else {}
    )
    return ps.Session.embedded(connectors=("kafka", "avro"), catalogs=lake)


def rows_of(session: ps.Session, options: dict[str, Any], topic: str, **more: Any) -> ps.Stream:
    """The decoded records of a topic."""
    if options["format"] == "json":
        return session.read_stream.kafka(
            topic=topic,
            bootstrap_servers=options["servers"],
            schema=DDL,
            starting_offsets="earliest",
            **more,
        )
    raw = session.read_stream.kafka(
        topic=topic, bootstrap_servers=options["servers"], starting_offsets="earliest", **more
    )
    return raw.select(from_avro("value", AVRO_SCHEMA).alias("value")).select("value.*")


def wanted(stream: ps.Stream) -> ps.Stream:
    """The filter and the projection."""
    return stream.where("kind <> 'other'").select(
        "id", "account", "amount", F.timestamp_millis("at").alias("at")
    )


def run_to(stream: ps.Stream, sink: str, options: dict[str, Any], folder: str, topic: str) -> float:
    """Write all that is there into a sink; return the seconds."""
    shutil.rmtree(folder, ignore_errors=True)
    writer = stream.write_stream.trigger(ps.Trigger.available_now()).option(
        "checkpoint.location", f"{folder}/checkpoint"
    )
    begin = time.perf_counter()
    if sink == "parquet":
        writer = writer.format("parquet").option("path", f"{folder}/out")
    elif sink == "iceberg":
        shutil.rmtree(f"{options['folder']}/lake/db/rows", ignore_errors=True)
        writer = writer.format("iceberg").option("table", "lake.db.rows")
    elif sink == "blackhole":
        writer = writer.format("blackhole")
    else:
        writer = (
            writer.format("kafka")
            .option("bootstrap_servers", options["servers"])
            .option("topic", topic)
            .option("value_format", options["format"])
        )
        if sink == "kafka_transactional":
            writer = writer.with_kafka_transactional(f"bench-{topic}")
    writer.start(f"bench-{sink}").await_termination()
    return time.perf_counter() - begin


def throughput(options: dict[str, Any]) -> dict[str, Any]:
    """Every sink of the case, each after a small run that does not count."""
    found = {}
    with started(options) as session:
        for sink in options["sinks"]:
            folder = f"{options['folder']}/{sink}"
            bound = {"maxOffsetsPerTrigger": options["transaction"]} if sink == "kafka_transactional" else {}
            warm, full = (
                wanted(rows_of(session, options, name, **bound))
                for name in (options["warm"], options["topic"])
            )
            run_to(warm, sink, options, folder, options["outputs"][sink][0])
            found[sink] = run_to(full, sink, options, folder, options["outputs"][sink][1])
    return {"seconds": found}


def micro_batch(options: dict[str, Any]) -> dict[str, Any]:
    """Batches of a few rows from Kafka to Kafka: milliseconds of each, as Spark tells them."""
    found: list[float] = []
    with started(options) as session:
        stream = wanted(rows_of(session, options, options["topic"]))
        writer = (
            stream.write_stream.trigger(ps.Trigger.processing_time(0))
            .format("kafka")
            .option("bootstrap_servers", options["servers"])
            .option("topic", options["output"])
            .option("checkpoint.location", f"{options['folder']}/checkpoint")
        )
        if options["transactional"]:
            writer = writer.with_kafka_transactional(f"bench-{options['output']}")
        with writer.start("bench-micro-batch") as query:
            for _ in range(options["batches"]):
                before = query.last_progress
                send(options["servers"], options["topic"], 3)
                while query.last_progress is before or not (
                    query.last_progress and query.last_progress.input_rows
                ):
                    time.sleep(0.005)
                found.append(query.last_progress.duration_ms)
    return {"ms": found[options["unmeasured"] :]}


def window(options: dict[str, Any]) -> dict[str, Any]:
    """Counts per key and hour, all records of a topic in batches; the seconds."""

    def seconds(topic: str, name: str) -> float:
        rows = rows_of(session, options, topic, maxOffsetsPerTrigger=options["batch"])
        counts = (
            rows.with_column("at", F.timestamp_millis("at"))
            .with_event_time("at")
            .with_watermark("1 hour")
            .tumbling_window("1 hour")
            .key_by("account")
            .agg(n=F.count("*"))
        )
        writer = (
            counts.write_stream.output_mode("update").trigger(ps.Trigger.available_now()).format("blackhole")
        )
        begin = time.perf_counter()
        writer.option("checkpoint.location", f"{options['folder']}/{name}").start(name).await_termination()
        return time.perf_counter() - begin

    with started(options) as session:
        seconds(options["warm"], "bench-warm")
        return {"seconds": seconds(options["topic"], "bench-window")}


def latency(options: dict[str, Any]) -> dict[str, Any]:
    """Records that come at a steady rate, from Kafka to Kafka; how long they took is read from the output topic."""
    trigger = {
        "processing_time(0)": ps.Trigger.processing_time(0),
        "continuous(1000)": ps.Trigger.continuous(1000),
    }[options["trigger"]]
    with started(options) as session:
        rows = rows_of(session, options, options["topic"]).where("kind <> 'other'").select("id", "at")
        writer = (
            rows.write_stream.trigger(trigger)
            .format("kafka")
            .option("bootstrap_servers", options["servers"])
            .option("topic", options["output"])
            .option("checkpoint.location", f"{options['folder']}/checkpoint")
        )
        if options["transactional"]:
            writer = writer.with_kafka_transactional(f"bench-{options['output']}")
        with writer.start("bench-latency") as query:
            subprocess.run(options["feed"], check=True)
            time.sleep(5)
            return {"how": query.status.message}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    Path(given["folder"]).mkdir(parents=True, exist_ok=True)
    print(json.dumps(globals()[given["what"]](given)), flush=True)
