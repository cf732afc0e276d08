"""The records of the benchmarks of streams: about 100 bytes each, as JSON and as Avro, produced once and kept by the broker."""

from __future__ import annotations

import io
import json
import sys
import uuid
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in its __all__

DDL = "id BIGINT, account STRING, kind STRING, amount DOUBLE, at BIGINT, note STRING"
AVRO = {
    "type": "record",
    "name": "event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "account", "type": "string"},
        {"name": "kind", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "at", "type": "long"},
        {"name": "note", "type": "string"},
    ],
}
AVRO_SCHEMA = json.dumps(AVRO)
KINDS = ("click", "order", "visit", "leave", "other")
FIRST_AT = 1_760_000_000_000
CHUNK = 50_000
ACCOUNTS = 100_000
SEED = 7


def topic(servers: str, form: str, partitions: int, rows: int) -> str:
    """Return the topic that holds so many records; it is filled when it is not there yet."""
    name = f"bench-{form}-{partitions}-{rows}"
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    if name in admin.list_topics(timeout=10).topics:
        if held(servers, name, partitions) == rows:
            return name
        admin.delete_topics([name])[name].result(30)
    new_topic(servers, name, partitions)
    print(f"producing {rows:,} records into {name} (once)", file=sys.stderr, flush=True)
    _fill(servers, name, form, partitions, rows)
    return name


def new_topic(
    servers: str, name: str | None = None, partitions: int = 1, *, timestamps: str = "CreateTime"
) -> str:
    """Create a topic, by default with a name of its own."""
    name = name or f"bench-out-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topic = NewTopic(
        name,
        num_partitions=partitions,
        replication_factor=1,
        config={"message.timestamp.type": timestamps},
    )
    admin.create_topics([topic])[name].result(30)
    return name


def send(servers: str, name: str, rows: int) -> None:
    """Send a few records as JSON, and wait until they are there."""
    producer = _producers.setdefault(
        servers, Producer({"bootstrap.servers": servers, "linger.ms": 0, "log_level": 0})
    )
    encode = encoder("json")
    for number in range(rows):
        producer.produce(name, encode(number, "a000001", KINDS[0], 1.5, FIRST_AT))
    producer.flush(30)


_producers: dict[str, Producer] = {}


def drop(servers: str, name: str) -> None:
    """Delete a topic."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.delete_topics([name])[name].result(30)


def held(servers: str, name: str, partitions: int) -> int:
    """How many offsets a topic has."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "log_level": 0})
    try:
        return sum(
            consumer.get_watermark_offsets(TopicPartition(name, number), timeout=10)[1]
            for number in range(partitions)
        )
    finally:
        consumer.close()


def kept(rows: int) -> int:
    """How many of so many records are of another kind than `other`."""
    random = np.random.default_rng(SEED)
    other = KINDS.index("other")
    return sum(
        int((_drawn(random, min(CHUNK, rows - first))[1] != other).sum()) for first in range(0, rows, CHUNK)
    )


def _drawn(random: np.random.Generator, count: int) -> tuple[Any, Any, Any]:
    """The accounts, kinds and amounts of so many records."""
    return (
        random.integers(0, ACCOUNTS, count),
        random.integers(0, len(KINDS), count),
        np.round(random.random(count) * 1000, 2),
    )


def encoder(form: str) -> Callable[[int, str, str, float, int], bytes]:
    """A function from the columns of a record to its bytes."""
    if form == "json":

        def as_json(number: int, account: str, kind: str, amount: float, at: int) -> bytes:
            return (
                f'{{"id":{number},"account":"{account}","kind":"{kind}","amount":{amount},"at":{at},'
                f'"note":"{number % 97:05d}"}}'
            ).encode()

        return as_json
    parsed = fastavro.parse_schema(AVRO)

    def as_avro(number: int, account: str, kind: str, amount: float, at: int) -> bytes:
        out = io.BytesIO()
        note = f"{number % 97:05d}" * 13
        fastavro.schemaless_writer(
            out,
            parsed,
            {"id": number, "account": account, "kind": kind, "amount": amount, "at": at, "note": note},
        )
        return out.getvalue()

    return as_avro


def _fill(servers: str, name: str, form: str, partitions: int, rows: int) -> None:
    random = np.random.default_rng(SEED)
    encode = encoder(form)
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for first in range(0, rows, CHUNK):
        count = min(CHUNK, rows - first)
        accounts, kinds, amounts = (column.tolist() for column in _drawn(random, count))
        records = [
            {
                "value": encode(
                    first + place,
                    f"a{accounts[place]:06d}",
                    KINDS[kinds[place]],
                    amounts[place],
                    FIRST_AT + first + place,
                )
            }
            for place in range(count)
        ]
        # In blocks, so that each partition is in the order of the numbers.
        size = -(-count // partitions)
        for partition in range(partitions):
            producer.produce_batch(
                name, records[partition * size : (partition + 1) * size], partition=partition
            )
        while len(producer) > 500_000:
            producer.poll(0.05)
    if producer.flush(120):
        sys.exit(f"the broker did not take all records of {name}")
