"""The same with stock PySpark: its defaults, its source of Kafka and its JDBC; ClickHouse, for which it has nothing, by Arrow over HTTP."""

from __future__ import annotations

import base64
import functools
import io
import json
import os
import sys
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.ipc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from measured import FILTER, measured
from streaming_records import DDL

RANGES = 4
COLUMNS = "id BIGINT, account STRING, kind STRING, amount DOUBLE, at BIGINT, note STRING"


def ask(url: str, query: str, body: bytes | None = None) -> Any:
    """The answer to one request to ClickHouse, as a file to read."""
    address = urlsplit(url)
    words = {"query": query, "database": address.path.strip("/")}
    login = base64.b64encode(f"{address.username}:{address.password}".encode()).decode()
    headers = {"Authorization": f"Basic {login}"}
    target = f"http://{address.hostname}:{address.port}/?{urllib.parse.urlencode(words)}"
    return urllib.request.urlopen(urllib.request.Request(target, body, headers), timeout=600)


def insert(url: str, table: str, batch: DataFrame, epoch: int) -> None:
    """Send a batch as one stream of Arrow."""
    rows = batch.toArrow()
    stream = io.BytesIO()
    with pyarrow.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_table(rows)
    ask(url, f"INSERT INTO {table} FORMAT ArrowStream", stream.getvalue()).close()


def select(url: str, table: str, rows: int, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read ranges of the key."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            first, end = rows * number // RANGES, rows * (number + 1) // RANGES
            with ask(
                url,
                f"SELECT id, account, kind, amount, at, note FROM {table} WHERE id >= {first} AND id < {end}"
                " SETTINGS output_format_arrow_string_as_string = 1 FORMAT ArrowStream",
            ) as answer:
                yield from pyarrow.ipc.open_stream(answer)


def run(spark: SparkSession, options: dict[str, Any], which: str) -> None:
    """All that is there, into the sink."""
    source, sink = options["case"].split("-")
    if source == "clickhouse":
        read = functools.partial(select, options["clickhouse"], options[which], options["rows"][which])
        rows = spark.range(0, RANGES, 1, RANGES).mapInArrow(read, COLUMNS)
        rows.write.format("noop").mode("overwrite").save()
        return
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options["servers"])
        .option("subscribe", options[which])
        .option("startingOffsets", "earliest")
        .load()
    )
    value = F.from_json(F.col("value").cast("string"), DDL, {"mode": "FAILFAST"})
    records.select(value.alias("value")).select("value.*").createOrReplaceTempView("events")
    writer = spark.sql(FILTER).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{options['folder']}/{which}-{uuid.uuid4().hex}")
    if sink == "blackhole":
        writer = writer.format("noop")
    elif sink == "clickhouse":
        table = f"stock_{which}"
        ask(
            options["clickhouse"],
            f"CREATE TABLE {table} (id Int64, account String, amount Float64, at Int64) ENGINE MergeTree ORDER BY tuple()",
            b"",
        ).close()
        writer = writer.foreachBatch(functools.partial(insert, options["clickhouse"], table))
    else:
        writer = writer.foreachBatch(functools.partial(append, options["postgres"], f"stock_{which}"))
    writer.start().awaitTermination()


def append(url: str, table: str, batch: DataFrame, epoch: int) -> None:
    """Add a batch to a table through JDBC."""
    address = urlsplit(url)
    writer = batch.write.format("jdbc").option(
        "url",
        f"jdbc:postgresql://{address.hostname}:{address.port}{address.path}?reWriteBatchedInserts=true",
    )
    writer = writer.option("user", address.username or "").option("password", address.password or "")
    writer.option("dbtable", table).option("driver", "org.postgresql.Driver").mode("append").save()


def main() -> None:
    options = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.config("spark.jars", ",".join(options["jars"])).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps(measured(lambda which: run(spark, options, which))))
    spark.stop()


if __name__ == "__main__":
    main()
