"""A program that streams files or a topic into a sink, and says when the first rows are there: with stock PySpark."""

import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

given = json.loads(sys.argv[1])
builder = SparkSession.builder
spark = (builder.config("spark.jars", ",".join(given["jars"])) if given["kafka"] else builder).getOrCreate()
if given["kafka"]:
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", given["servers"])
        .option("subscribe", given["in"])
        .option("startingOffsets", "earliest")
        .load()
    )
    rows = raw.select(F.from_json(F.col("value").cast("string"), given["schema"]).alias("v")).select("v.*")
else:
    rows = spark.readStream.schema(given["schema"]).json(given["in"])
rows = rows.where("kind <> 'other'").select("id", "amount")
if given["kafka"]:
    record = rows.select(F.to_json(F.struct("id", "amount")).alias("value"))
    writer = record.writeStream.format("kafka").option("kafka.bootstrap.servers", given["servers"])
    writer = writer.option("topic", given["out"])
else:
    writer = rows.writeStream.format("parquet").option("path", given["out"])
query = writer.option("checkpointLocation", given["checkpoint"]).start()
while query.lastProgress is None or not query.lastProgress["numInputRows"]:
    time.sleep(0.005)
print(query.lastProgress["numInputRows"], flush=True)
query.stop()
spark.stop()
