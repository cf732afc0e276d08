"""Streams that feed a durable flow are killed at any moment: its views have every record once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import penstock as ps
from class_archive import archive_conf
from feed import Feed
from processes import descendants
from seed import SEED
from servers.kafka import Broker
from waiting import wait_for

SECONDS_PER_FILE = 0.3
QUERIES = ("files", "records")
PROGRAM = """
import json, os, signal, sys
import penstock as ps
from penstock.sinks.flow import FlowSink

settings = json.loads(sys.argv[1])
write, written = FlowSink.write, 0

def killed_write(sink, epoch):
    # Once some epochs are in: with the offsets of the next one noted and no tick, or with its tick and no commit.
    global written
    written += 1
    due = written > settings["epochs"]
    if due and settings["kill"] == "before the tick":
        os.kill(os.getpid(), signal.SIGKILL)
    rows = write(sink, epoch)
    if due and settings["kill"] == "behind the tick":
        os.kill(os.getpid(), signal.SIGKILL)
    return rows

FlowSink.write = killed_write
session = ps.Session.embedded(master="local[2]", connectors=("kafka",))
schema = "id BIGINT, k BIGINT"
flow = ps.IncrementalFlow(session, path="flow", durability=settings["durability"], sync=settings["sync"], checkpoint_every=20_000)
if not flow.sources():
    flow.register_source("files", schema)
    flow.register_source("records", schema)
    flow.register_view("seen", "SELECT 'f' AS f, id FROM files UNION ALL SELECT 'r' AS f, id FROM records")
    flow.register_view("counts", "SELECT f.k, COUNT(*) AS n FROM files f JOIN records r ON f.id = r.id GROUP BY f.k")
streams = {
    "files": session.read_stream.json("in", schema=schema, maxFilesPerTrigger=200 if settings["last"] else 3),
    "records": session.read_stream.kafka(
        settings["topic"], bootstrap_servers=settings["servers"], format="json", schema=schema, starting_offsets="earliest"
    ).select("id", "k"),
}
trigger = ps.Trigger.available_now() if settings["last"] else ps.Trigger.processing_time(0)
queries = [
    stream.write_stream().trigger(trigger).option("checkpoint.location", f"checkpoints/{name}").to_flow(flow, name, name)
    for name, stream in streams.items()
]
print("up", queries[0].explain().count("exactly once"), flush=True)
for query in queries:
    query.await_termination()
flow.close()
session.stop()
"""


@contextmanager
def _child(folder: Path, settings: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    with (folder / "child.log").open("a") as errors:
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(settings)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env={
                **os.environ,
                "TMPDIR": str(folder),
                "PENSTOCK_CONF": f"{archive_conf()} spark.sql.shuffle.partitions=2",
            },
        )
    assert child.stdout is not None
    jvms: list[psutil.Process] = []
    try:
        assert child.stdout.readline() == "up 1\n", _said(folder)
        jvms = descendants(child.pid)
        yield child
    finally:
        child.kill()
        child.stdout.close()
        child.wait()
        psutil.wait_procs(jvms, 20)


def _said(folder: Path) -> str:
    return (folder / "child.log").read_text()[-4000:]


def _epochs(folder: Path) -> int:
    """How many epochs Spark has noted as done."""
    return sum(
        path.name.isdigit() for name in QUERIES for path in (folder / "checkpoints" / name).glob("commits/*")
    )


def _kill_once(folder: Path, settings: dict[str, Any], chance: random.Random) -> None:
    before = _epochs(folder)
    with _child(folder, settings) as child:
        if settings["kill"] == "some time":
            wait_for(
                lambda: _epochs(folder) > before + settings["epochs"] or child.poll() is not None,
                "epochs",
                seconds=120,
            )
            time.sleep(chance.uniform(0.0, 0.5))
            assert child.poll() is None, _said(folder)
            return
        assert child.wait(120) == -9, _said(folder)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where everything is; its state backend is that of the test and its children."""
    monkeypatch.setenv("PENSTOCK_STATE", f"sqlite:///{tmp_path}/state.db")
    return tmp_path


@pytest.mark.parametrize(
    ("durability", "kills"),
    [
        pytest.param("local", 3, marks=pytest.mark.timeout(600)),
        pytest.param("local", 30, marks=(pytest.mark.soak, pytest.mark.timeout(3600))),
        pytest.param("shared", 10, marks=(pytest.mark.soak, pytest.mark.timeout(3600))),
    ],
)
def test_streams_into_a_flow_count_once_whatever_was_killed(
    durability: str, kills: int, kafka: Broker, folder: Path
) -> None:
    print(f"PENSTOCK_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    topic = kafka.new_topic()
    settings: dict[str, Any] = {"topic": topic, "servers": kafka.bootstrap_servers, "durability": durability}
    kinds = ["before the tick", "behind the tick", "some time"]
    with Feed(folder / "in", kafka, topic, seconds=SECONDS_PER_FILE) as feed:
        for number in range(kills):
            kind = kinds[number] if number < len(kinds) else chance.choice(kinds)
            run = {"kill": kind, "epochs": chance.randrange(6), "sync": chance.choice(["tick", 40])}
            _kill_once(folder, {**settings, **run, "last": False}, chance)
    with _child(folder, {**settings, "kill": None, "epochs": 0, "sync": "tick", "last": True}) as child:
        assert child.wait(120) == 0, _said(folder)
    with ps.IncrementalFlow(path=folder / "flow", durability=durability) as flow:  # type: ignore[arg-type]
        seen = sorted((row["f"], row["id"]) for row in flow.snapshot("seen").to_pylist())
        counts = {row["k"]: row["n"] for row in flow.snapshot("counts").to_pylist()}
    ids = range(feed.rows)
    assert seen == [(source, number) for source in "fr" for number in ids]
    assert counts == {k: len(ids[k::7]) for k in range(7)}
