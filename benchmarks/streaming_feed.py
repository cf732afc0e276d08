"""Sends records to a topic at a steady rate; the column `at` is the moment in which a record is handed to the client.

python benchmarks/streaming_feed.py SERVERS TOPIC RECORDS_PER_SECOND SECONDS
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Producer

from streaming_records import ACCOUNTS, KINDS, encoder

STEP_SECONDS = 0.01


def feed(servers: str, topic: str, rate: int, seconds: float) -> None:
    """Send, a few records every ten milliseconds."""
    encode = encoder("json")
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1, "log_level": 0})
    begin, sent = time.monotonic(), 0
    while sent < rate * seconds:
        gone = time.monotonic() - begin
        while sent < min(gone, seconds) * rate:
            at = time.time_ns() // 1_000_000
            producer.produce(
                topic, encode(sent, f"a{sent % ACCOUNTS:06d}", KINDS[sent % len(KINDS)], 1.5, at)
            )
            sent += 1
        producer.poll(0)
        time.sleep(STEP_SECONDS)
    producer.flush(30)


if __name__ == "__main__":
    feed(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
