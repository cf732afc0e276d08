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
import pytest
from confluent_kafka import Consumer, Producer

from pipeline_process import PipelineProcess
from seed import SEED
from servers.kafka import Broker
from servers.postgres import Postgres
from waiting import wait_for

KILLS = [3, pytest.param(30, marks=pytest.mark.soak)]
CUSTOMERS = 7
MOST_SECONDS = 300
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
    for number in range(kills):
        before = progress()
        pipeline.start()

        def got_on(before: object = before) -> bool:
            assert pipeline.is_running, pipeline.said()
            return progress() != before

        wait_for(got_on, f"progress of run {number}", seconds=MOST_SECONDS)
        time.sleep(chance.random() * 1.5)
        pipeline.kill()


def run_until(pipeline: PipelineProcess, done: Callable[[], bool]) -> None:
    """Run a pipeline until something holds, and stop it as an operator does."""
    pipeline.start()

    def holds() -> bool:
        assert pipeline.is_running, pipeline.said()
        return done()

    wait_for(holds, "the end of the input", seconds=MOST_SECONDS)
    assert pipeline.stop() == 143, pipeline.said()


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


def committed(kafka: Broker, topic: str) -> list[dict[str, Any]]:
    """The records of a topic of one partition that readers of committed transactions see."""
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
        records.append(json.loads(message.value() or b"null"))
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
    url, topic, changes = postgres.new_database(), kafka.new_topic(partitions=2), kafka.new_topic()
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
    counts: dict[int, list[int]] = {}
    for record in committed(kafka, changes):
        counts.setdefault(record["customer"], []).append(record["orders"])
    # Every change of a customer has more orders than the one before: one that was written twice would not.
    assert all(values == sorted(set(values)) for values in counts.values())
    assert {customer: values[-1] for customer, values in counts.items()} == {
        customer: count for customer, (count, _) in wanted.items()
    }


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
    chance = random.Random(SEED)

    def write(number: int) -> None:
        """An insert, and often an update or a delete of an earlier row, in one transaction."""
        earlier = chance.randint(1, number)
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO orders VALUES (%s, %s, %s)", (number, number % CUSTOMERS, number))
            if number % 3 == 0:
                connection.execute("UPDATE orders SET amount = amount + 1000 WHERE id = %s", (earlier,))
            if number % 5 == 0:
                connection.execute("DELETE FROM orders WHERE id = %s", (earlier,))

    def snapshots() -> int:
        return len(list((tmp_path / "warehouse" / "shop" / "orders" / "metadata").glob("*.metadata.json")))

    with PipelineProcess(tmp_path, text) as pipeline:
        with numbers(write) as last:
            kill_often(pipeline, snapshots, kills)
        postgres.execute("INSERT INTO orders VALUES (-1, 0, 0)", url)

        seen = [0]

        def has_all() -> bool:
            if snapshots() == seen[0]:
                return False
            seen[0] = snapshots()
            return copied(tmp_path, "SELECT count(*) AS n FROM lake.shop.orders WHERE id = -1") == [{"n": 1}]

        run_until(pipeline, has_all)
    assert last[0] > 0
    there = postgres.execute("SELECT id, customer, amount FROM orders ORDER BY id", url)
    here = copied(tmp_path, "SELECT id, customer, amount FROM lake.shop.orders ORDER BY id")
    assert [tuple(row.values()) for row in here] == there


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
    history = 2_000
    folder = tmp_path / "history"
    folder.mkdir()
    for part in range(20):
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

    # What the topic has too of the history is not to come twice.
    with PipelineProcess(tmp_path, text) as pipeline:
        with numbers(produce, first=history - 500) as last:
            kill_often(pipeline, ids, kills)
        assert producer.flush(30) == 0
        run_until(pipeline, lambda: bool(ids()) and ids()[0][3] == last[0] and ids()[0][0] >= last[0])
    assert ids() == [(last[0], last[0], 1, last[0])]
