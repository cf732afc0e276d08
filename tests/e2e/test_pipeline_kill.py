"""Whole pipelines are killed at random moments: what they have written is what follows from their input, once and complete."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from pyarrow import parquet

from pipeline_process import PipelineProcess
from seed import SEED
from servers.kafka import Broker
from servers.postgres import Postgres
from waiting import wait_for

# The limits of pytest are beyond those of the waits, which say what a pipeline that is stuck has logged.
KILLS = [
    pytest.param(3, marks=pytest.mark.timeout(900)),
    pytest.param(30, marks=(pytest.mark.soak, pytest.mark.timeout(7200))),
]
CUSTOMERS = 7
COPIED = 5_000
HANDOVER = "history done, following"
MOST_SECONDS = 180
WAREHOUSE = """
connectors = ["iceberg"]
[catalogs.lake]
type = "hadoop"
warehouse = "{}"
"""


@contextmanager
def numbers(produce: Callable[[int], None], *, first: int = 1) -> Iterator[list[int]]:
    """Produce numbered rows in a thread until the body is done; the list holds the last number."""
    last, ended = [first - 1], threading.Event()

    def run() -> None:
        while not ended.wait(0.05):
            for _ in range(20):
                produce(last[0] + 1)
                last[0] += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield last
    finally:
        ended.set()
        thread.join()


def kill_often(pipeline: PipelineProcess, progress: Callable[[], object], kills: int) -> None:
    """Run a pipeline and kill it so often, each time a random moment after it has got on."""
    chance = random.Random(SEED)
    for _ in range(kills):
        kill_after(pipeline, changed(progress), chance.random() * 1.5)


def changed(progress: Callable[[], object]) -> Callable[[], bool]:
    """Whether something is other than it is now."""
    before = progress()
    return lambda: progress() != before


def kill_after(pipeline: PipelineProcess, moment: Callable[[], bool], seconds: float) -> None:
    """Run a pipeline and kill it so many seconds after something holds."""
    run(pipeline, moment)
    time.sleep(seconds)
    pipeline.kill()


def run_until(pipeline: PipelineProcess, done: Callable[[], bool]) -> None:
    """Run a pipeline until something holds, and stop it as an operator does."""
    run(pipeline, done)
    assert pipeline.stop() == 143, pipeline.said()


def run(pipeline: PipelineProcess, moment: Callable[[], bool]) -> None:
    """Start a pipeline, and return as soon as something holds."""
    pipeline.start()

    def holds() -> bool:
        assert pipeline.is_running, pipeline.said()
        return moment()

    wait_for(holds, "moment of the pipeline that was waited for", seconds=MOST_SECONDS, shown=pipeline.said)


def totals(rows: int) -> dict[int, tuple[int, int]]:
    """Number of rows and sum of amounts of each customer, computed from the input."""
    result: dict[int, tuple[int, int]] = {}
    for number in range(1, rows + 1):
        count, total = result.get(number % CUSTOMERS, (0, 0))
        result[number % CUSTOMERS] = (count + 1, total + number)
    return result


def query(postgres: Postgres, url: str, text: str) -> list[tuple[Any, ...]]:
    """The rows of a query; none when its table is not there yet."""
    try:
        return postgres.execute(text, url)
    except psycopg.errors.UndefinedTable:
        return []


def committed(kafka: Broker, topic: str) -> list[tuple[dict[str, Any], str]]:
    """The records of a topic of one partition that readers of committed transactions see, with their operations."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "judge",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    records = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            break  # the end of the partition
        operation = dict(message.headers() or []).get("dbz.op", b"")
        assert isinstance(operation, bytes)
        records.append((json.loads(message.value() or b"null"), operation.decode()))
    consumer.close()
    return records


def producer_of(kafka: Broker, topic: str) -> tuple[Producer, Callable[[int], None]]:
    """A producer, and a function that sends the row of a number."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5})

    def produce(number: int) -> None:
        value = json.dumps({"id": number, "customer": number % CUSTOMERS, "amount": number})
        producer.produce(topic, value.encode(), partition=number % 2)
        producer.poll(0)

    return producer, produce


@pytest.mark.parametrize("kills", KILLS)
def test_kafka_through_a_view_into_postgres_and_kafka(
    kills: int, tmp_path: Path, kafka: Broker, postgres: Postgres
) -> None:
    url, topic = postgres.new_database(), kafka.new_topic(partitions=2)
    passed, changes = kafka.new_topic(), kafka.new_topic()
    producer, produce = producer_of(kafka, topic)
    text = f"""
name: killed
sources:
  orders:
    type: kafka
    topic: {topic}
    bootstrap_servers: {kafka.bootstrap_servers}
    schema: {{id: int64, customer: int64, amount: int64}}
    operations: none
    primary_key: id
transforms:
  valid: {{type: sql, sql: SELECT * FROM orders WHERE amount > 0}}
  totals:
    type: view
    primary_key: customer
    sql: SELECT customer, count(*) AS orders, sum(amount) AS total FROM valid GROUP BY customer
sinks:
  passed: {{type: kafka, from: valid, topic: {passed}, bootstrap_servers: "{kafka.bootstrap_servers}"}}
  table: {{type: postgres, from: totals, url: "{url}", table: totals}}
  log: {{type: kafka, from: totals, topic: {changes}, bootstrap_servers: "{kafka.bootstrap_servers}"}}
"""

    def table() -> dict[int, tuple[int, int]]:
        rows = query(postgres, url, "SELECT customer, orders, total FROM totals")
        return {customer: (orders, total) for customer, orders, total in rows}

    with PipelineProcess(tmp_path, text) as pipeline:
        with numbers(produce) as last:
            kill_often(pipeline, table, kills)
        assert producer.flush(30) == 0
        wanted = totals(last[0])
        run_until(pipeline, lambda: table() == wanted)
    # An epoch that is missing in the topic, or there twice, shows in the numbers of its rows.
    assert sorted(record["id"] for record, _ in committed(kafka, passed)) == list(range(1, last[0] + 1))
    counts: dict[int, list[int]] = {}
    operations: dict[int, list[str]] = {}
    for record, operation in committed(kafka, changes):
        counts.setdefault(record["customer"], []).append(record["orders"])
        operations.setdefault(record["customer"], []).append(operation)
    # Every change of a customer has more orders than the one before: one that was written twice would not.
    assert all(values == sorted(set(values)) for values in counts.values())
    assert {customer: values[-1] for customer, values in counts.items()} == {
        customer: count for customer, (count, _) in wanted.items()
    }
    assert all(values == ["c"] + ["u"] * (len(values) - 1) for values in operations.values())


@pytest.mark.parametrize("kills", KILLS)
def test_postgres_changes_into_an_iceberg_table(kills: int, tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer INT, amount INT)", url)
    (tmp_path / "penstock.toml").write_text(WAREHOUSE.format(tmp_path / "warehouse"))
    text = f"""
name: replicated
sources:
  orders: {{type: postgres_cdc, url: "{url}", table: orders}}
sinks:
  copy: {{type: iceberg, from: orders, table: lake.shop.orders}}
"""
    # Enough for a snapshot that takes its time, which the first kill cuts short.
    postgres.execute(
        f"INSERT INTO orders SELECT n, n % {CUSTOMERS}, n FROM generate_series(1, {COPIED}) AS n", url
    )
    chance = random.Random(SEED)

    def write(number: int) -> None:
        """An insert, and often an update or a delete of an earlier row, in one transaction."""
        earlier = chance.randint(1, number)
        with connection.transaction():
            connection.execute("INSERT INTO orders VALUES (%s, %s, %s)", (number, number % CUSTOMERS, number))
            if number % 3 == 0:
                connection.execute("UPDATE orders SET amount = amount + 1000 WHERE id = %s", (earlier,))
            if number % 5 == 0:
                connection.execute("DELETE FROM orders WHERE id = %s", (earlier,))

    table = IcebergFiles(tmp_path / "warehouse" / "shop" / "orders")
    with PipelineProcess(tmp_path, text) as pipeline, psycopg.connect(url, autocommit=True) as connection:
        with numbers(write, first=COPIED + 1) as last:
            kill_often(pipeline, table.version, kills)
        postgres.execute("INSERT INTO orders VALUES (-1, 0, 0)", url)
        run_until(pipeline, lambda: table.has(-1))
    assert last[0] > COPIED
    there = postgres.execute("SELECT id, customer, amount FROM orders ORDER BY id", url)
    here = copied(tmp_path, "SELECT id, customer, amount FROM lake.shop.orders ORDER BY id")
    assert [tuple(row.values()) for row in here] == there
    # A merge that was done twice leaves the same rows: its epoch tells.
    epochs = [int(snapshot["summary"]["penstock.epoch"]) for snapshot in table.metadata()["snapshots"]]
    assert epochs == sorted(set(epochs))
    assert len(epochs) > 1


class IcebergFiles:
    """A table in a folder, looked at without Spark while a pipeline writes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._looked_at: set[Path] = set()
        self._found: float | None = None

    def version(self) -> int:
        """The number of the newest metadata; 0 without a table."""
        files = (self._folder / "metadata").glob("v*.metadata.json")
        return max((int(path.name.split(".")[0][1:]) for path in files), default=0)

    def metadata(self) -> dict[str, Any]:
        """The newest metadata."""
        path = self._folder / "metadata" / f"v{self.version()}.metadata.json"
        return dict(json.loads(path.read_text()))

    def has(self, number: int) -> bool:
        """Whether a file with this id, which no run that was killed has written, is in a snapshot."""
        for path in () if self._found else self._folder.glob("data/**/*.parquet"):
            if path not in self._looked_at:
                try:
                    ids = parquet.read_table(path, columns=["id"])["id"].to_pylist()
                except pa.ArrowInvalid:
                    continue  # it is being written
                self._looked_at.add(path)
                if number in ids:
                    self._found = path.stat().st_mtime
        return self._found is not None and self.metadata()["last-updated-ms"] >= self._found * 1000


def copied(folder: Path, text: str) -> list[dict[str, Any]]:
    """The rows of a query over the lake."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "sql", text, "--output", "json", "--limit", "0"],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=MOST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kills", KILLS)
def test_a_history_then_a_topic_into_postgres(
    kills: int, tmp_path: Path, kafka: Broker, postgres: Postgres
) -> None:
    url, topic = postgres.new_database(), kafka.new_topic(partitions=2)
    producer, produce = producer_of(kafka, topic)
    in_history = max(1, kills // 10)
    files = 10 * in_history
    history = files * 100
    folder = tmp_path / "history"
    folder.mkdir()
    for part in range(files):
        rows = range(part * 100 + 1, part * 100 + 101)
        lines = (json.dumps({"id": n, "customer": n % CUSTOMERS, "amount": n}) for n in rows)
        (folder / f"{part}.json").write_text("\n".join(lines))
    text = f"""
name: both
sources:
  orders:
    type: hybrid
    cursor: id
    primary_key: id
    history: {{type: file, path: "{folder}", format: json, schema: {{id: int64, customer: int64, amount: int64}}, max_files: 1}}
    live:
      type: kafka
      topic: {topic}
      bootstrap_servers: {kafka.bootstrap_servers}
      schema: {{id: int64, customer: int64, amount: int64}}
      operations: none
sinks:
  rows: {{type: postgres, from: orders, url: "{url}", table: orders, output_mode: append}}
"""

    def ids() -> list[tuple[Any, ...]]:
        return query(postgres, url, "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM orders")

    def greatest() -> int:
        return (query(postgres, url, "SELECT max(id) FROM orders") or [(None,)])[0][0] or 0

    chance = random.Random(SEED)
    # What the topic has too of the history is not to come twice.
    with PipelineProcess(tmp_path, text) as pipeline:
        with numbers(produce, first=history - 500) as last:
            for _ in range(in_history):
                kill_after(pipeline, changed(greatest), chance.random() * 0.3)
                assert greatest() < history
            kill_after(pipeline, lambda: HANDOVER in pipeline.log.read_text(), chance.random() * 0.5)
            kill_often(pipeline, lambda: max(history, greatest()), kills - in_history - 1)
        assert producer.flush(30) == 0
        run_until(pipeline, lambda: bool(ids()) and ids()[0][3] == last[0] and ids()[0][0] >= last[0])
    assert ids() == [(last[0], last[0], 1, last[0])]
