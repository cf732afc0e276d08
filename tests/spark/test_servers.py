"""The servers that tests run against: they survive a restart, and they never outlive the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from processes import descendants
from servers.child import answers, end_of_servers, free_port
from servers.kafka import Broker
from servers.postgres import Postgres

TESTS = Path(__file__).resolve().parents[1]
HOLD = """
import sys, time
from servers.postgres import Postgres
from servers.s3 import Store
with Postgres() as postgres, Store() as store:
    print(postgres.pid, store._child.pid, postgres.folder, store.folder, flush=True)
    time.sleep(600)
"""


def test_ports_of_servers_are_not_given_to_clients() -> None:
    for _ in range(20):
        port = free_port()
        assert 10_000 <= port < end_of_servers()
        assert not answers(port)


def test_no_server_outlives_a_killed_test_run() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=environment
    ) as run:
        assert run.stdout is not None
        first, second, *folders = run.stdout.readline().split()
        children = [psutil.Process(int(first)), psutil.Process(int(second))]
        everyone = [
            *children,
            *(grandchild for child in children for grandchild in descendants(child.pid)),
        ]
        run.kill()
        run.wait()
        assert psutil.wait_procs(everyone, timeout=30)[1] == []
    for folder in folders:
        subprocess.run(["rm", "-rf", folder], check=True)


def test_rows_survive_a_killed_and_a_stopped_database(postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE t AS SELECT 1 AS one", url)
    postgres.execute("CHECKPOINT", url)
    for end in (postgres.kill, postgres.stop):
        end()
        assert not answers(postgres.port)
        postgres.start()
        assert postgres.execute("SELECT one FROM t", url) == [(1,)]


def test_messages_survive_a_killed_and_a_stopped_broker(kafka: Broker) -> None:
    topic = kafka.new_topic()
    for number, end in enumerate((kafka.kill, kafka.stop)):
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        producer.produce(topic, value=str(number).encode())
        assert producer.flush(60) == 0
        del producer
        end()
        assert not answers(kafka.port)
        kafka.start()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "survivors"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(2, timeout=60)
        assert [message.value() for message in messages] == [b"0", b"1"]
    finally:
        consumer.close()
