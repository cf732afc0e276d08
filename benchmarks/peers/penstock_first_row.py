"""A program that streams files or a topic into a sink, and says when the first rows are there: with penstock."""

import json
import sys
import time

import penstock as ps

given = json.loads(sys.argv[1])
session = ps.Session.embedded(connectors=("kafka",) if given["kafka"] else ())
if given["kafka"]:
    stream = session.read_stream.kafka(
        topic=given["in"],
        bootstrap_servers=given["servers"],
        schema=given["schema"],
        starting_offsets="earliest",
    )
else:
    stream = session.read_stream.json(given["in"], schema=given["schema"])
writer = stream.where("kind <> 'other'").select("id", "amount").write_stream
if given["kafka"]:
    writer = (
        writer.format("kafka").option("bootstrap_servers", given["servers"]).option("topic", given["out"])
    )
else:
    writer = writer.format("parquet").option("path", given["out"])
query = writer.option("checkpoint.location", given["checkpoint"]).start("first-row")
while query.last_progress is None:
    time.sleep(0.005)
print(query.last_progress.output_rows, flush=True)
session.stop()
