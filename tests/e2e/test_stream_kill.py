"""Queries that are killed at random moments while data keeps coming: exactly-once sinks have every row once, others miss none."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyarrow import parquet

from class_archive import archive_conf
from feed import Feed
from processes import descendants
from seed import SEED
from servers.clickhouse import ClickHouse
from servers.kafka import Broker
from servers.postgres import Postgres

PROGRAM = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
import penstock as ps
from pyspark.sql import functions as F

settings = json.loads(sys.argv[1])
session = ps.Session.embedded(master="local[3]", connectors=("kafka",), catalogs=settings["catalogs"])
last = settings["last"]
schema = "id BIGINT, k BIGINT"

def start(name, sink):
    if topic := sink.get("from_topic"):
        servers = settings["bootstrap_servers"]
        stream = session.read_stream.kafka(topic, bootstrap_servers=servers, format="json", schema=schema, starting_offsets="earliest")
    else:
        stream = session.read_stream.json("in", schema=schema, maxFilesPerTrigger=200 if last else 8)
    if sink.get("key"):
        stream = stream.key_by(sink["key"]).agg(n=F.count("*"))
    always = ps.Trigger.continuous(1_000) if sink.get("live") else ps.Trigger.processing_time(0)
    writer = stream.write_stream.trigger(ps.Trigger.available_now() if last else always)
    if sink.get("key"):
        writer = writer.output_mode("update").key(sink["key"])
    writer = writer.format(sink["format"]).option("checkpoint.location", f"checkpoints/{name}").options(**sink["options"])
    return writer.start(name)

with ThreadPoolExecutor() as pool:
    queries = list(pool.map(lambda item: start(*item), settings["sinks"].items()))
print("up", flush=True)
for query in queries:
    query.await_termination()
print(json.dumps([row.id for row in session.sql("SELECT id FROM lake.db.rows ORDER BY id").collect()]), flush=True)
session.stop()
"""


@contextmanager
def _child(folder: Path, settings: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    log = folder / "child.log"
    with log.open("a") as errors:
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(settings)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env={
                **os.environ,
                "TMPDIR": str(folder),
                "PENSTOCK_STATE": f"sqlite:///{folder}/state.db",
                "PENSTOCK_CONF": f"{archive_conf()} spark.sql.shuffle.partitions=2",
            },
        )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "up\n", log.read_text()[-4000:]
        yield child
    finally:
        jvms = descendants(child.pid) if child.poll() is None else []
        child.kill()
        child.stdout.close()
        child.wait()
        psutil.wait_procs(jvms, 20)


def _last_epochs(folder: Path, queries: Iterable[str]) -> dict[str, int]:
    """The last epoch of each query that Spark has noted as done."""
    return {
        name: max((int(path.name) for path in commits if path.name.isdigit()), default=-1)
        for name in queries
        for commits in [(folder / "checkpoints" / name / "commits").glob("*")]
    }


def _until_all_have_moved(folder: Path, before: dict[str, int], *, seconds: float) -> None:
    """Wait until every query has done an epoch, so that the kill meets work and not only a start."""
    deadline = time.monotonic() + seconds
    while waiting := [name for name, epoch in _last_epochs(folder, before).items() if epoch <= before[name]]:
        assert time.monotonic() < deadline, (
            f"no epoch in {seconds} s of {', '.join(waiting)}\n{(folder / 'child.log').read_text()[-4000:]}"
        )
        time.sleep(0.1)


def _committed(broker: Broker, topic: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[int] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for message in consumer.consume(1_000, timeout=0.1):
                if message.error() is not None:
                    return found
                found.append(json.loads(message.value() or b"")["id"])
        raise AssertionError("the topic has no end")
    finally:
        consumer.close()


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(3, marks=pytest.mark.timeout(900)),
        pytest.param(30, marks=(pytest.mark.soak, pytest.mark.timeout(3600))),
    ],
)
def test_killed_again_and_again(
    kafka: Broker, postgres: Postgres, clickhouse: ClickHouse, tmp_path: Path, kills: int
) -> None:
    columns = clickhouse.new_database()
    url = postgres.new_database()
    fed, exact, plain, live = (kafka.new_topic() for _ in range(4))
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    settings: dict[str, Any] = {
        "catalogs": {"lake": {"type": "hadoop", "warehouse": str(tmp_path / "lake")}},
        **servers,
        "sinks": {
            "parquet": {"format": "parquet", "options": {"path": "out"}},
            "kafka": {
                "format": "kafka",
                "from_topic": fed,
                "options": {**servers, "topic": exact, "transactional_id": exact},
            },
            "kafka-plain": {"format": "kafka", "options": {**servers, "topic": plain}},
            "kafka-live": {
                "format": "kafka",
                "from_topic": fed,
                "live": True,
                "options": {**servers, "topic": live},
            },
            "postgres": {"format": "postgres", "from_topic": fed, "options": {"url": url, "table": "rows"}},
            "counts": {"format": "postgres", "key": "k", "options": {"url": url, "table": "counts"}},
            "clickhouse": {
                "format": "clickhouse",
                "options": {
                    "url": columns,
                    "table": "rows",
                    "batch_rows": 60,
                },  # some epochs in chunks, some in one
            },
            "clickhouse-counts": {
                "format": "clickhouse",
                "key": "k",
                "options": {"url": columns, "table": "counts"},
            },
            "iceberg": {"format": "iceberg", "options": {"table": "lake.db.rows"}},
        },
        "last": False,
    }
    chance = random.Random(SEED)
    with Feed(tmp_path / "in", kafka, fed) as feed:
        for _ in range(kills):
            before = _last_epochs(tmp_path, settings["sinks"])
            with _child(tmp_path, settings) as child:
                _until_all_have_moved(tmp_path, before, seconds=120)
                time.sleep(chance.uniform(0.0, 3.0))
                assert child.poll() is None, (tmp_path / "child.log").read_text()[-4000:]
    with _child(tmp_path, {**settings, "last": True}) as child:
        out, _ = child.communicate(timeout=300)
        assert out, (tmp_path / "child.log").read_text()[-4000:]
    everything = list(range(feed.rows))
    assert sorted(parquet.read_table(tmp_path / "out")["id"].to_pylist()) == everything
    assert sorted(_committed(kafka, exact)) == everything
    assert set(_committed(kafka, plain)) == set(everything)
    assert set(_committed(kafka, live)) == set(everything)
    assert [row[0] for row in postgres.execute("SELECT id FROM rows ORDER BY id", url)] == everything
    counts = dict(postgres.execute("SELECT k, n FROM counts", url))
    assert counts == {k: len(everything[k::7]) for k in range(7)}
    assert [row["id"] for row in clickhouse.execute("SELECT id FROM rows ORDER BY id", columns)] == everything
    assert {row["k"]: row["n"] for row in clickhouse.execute("SELECT * FROM counts FINAL", columns)} == counts
    assert json.loads(out) == everything
