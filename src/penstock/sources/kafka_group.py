"""How far a query has read, told to an ordinary consumer group, so that Kafka's own tools show its lag.

Spark's checkpoint decides where a query goes on: the offsets of the group are never read, and may be behind by what was
committed last before a crash.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from penstock.errors import ConfigError
from penstock.spark.kafka_access import access, for_librdkafka, unprefixed

LOG = logging.getLogger("penstock.sources")
OPTION = "penstock.group"
"""The option of Spark's Kafka source under which the plan carries the name of the group."""
CALL_MS = 10_000
COORDINATOR_SECONDS = 5.0
"""How long a broker may look for the group's coordinator, which it does when the group is new."""
AGAIN_SECONDS = 10.0
LAST_SECONDS = 5.0
"""How long the end of a query waits for the last offsets to be told."""

Offsets = Mapping[str, Mapping[str, int]]


def check(group: str, options: Mapping[str, Any]) -> None:
    """Refuse a group that cannot be told, with these options of the source."""
    if find_spec("confluent_kafka") is None:
        raise ConfigError(
            f"group={group!r} needs the package confluent-kafka",
            code="SOURCE_PACKAGE_MISSING",
            hint="pip install 'penstock[kafka]', or leave the group out: the query does not need it",
        )
    for_librdkafka(unprefixed(options))


class ConsumerGroup:
    """Tells one group from a thread of its own; of offsets that come faster than they can be told, the last count."""

    def __init__(self, options: Mapping[str, str], *, told: Callable[[str], None]) -> None:
        """`options` are those of the source."""
        self.group = options[OPTION]
        self.failures = 0
        self._settings = access(unprefixed(options)) or {}
        self._told = told
        self._waiting: Offsets | None = None
        self._closing = False
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    def commit(self, offsets: Offsets) -> None:
        """Let the group know that all records before these offsets are read; returns at once."""
        with self._change:
            self._waiting = offsets
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"penstock group {self.group}", daemon=True
                )
                self._thread.start()
            self._change.notify_all()

    def close(self, seconds: float = LAST_SECONDS) -> None:
        """Wait a moment for the last offsets to be told, and end."""
        with self._change:
            self._closing = True
            self._change.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(seconds)
            if thread.is_alive():
                self._fail("the broker did not answer before the query's end")

    def _run(self) -> None:
        consumer: Any = None
        failed: Offsets | None = None
        try:
            while (offsets := self._next(failed)) is not None:
                try:
                    consumer = consumer or self._consumer()
                    self._tell(consumer, offsets)
                    failed = None
                except Exception as error:  # only reporting: whatever it is, the query goes on
                    self._fail(_reason(error), quietly=failed is not None)
                    failed = offsets
        finally:
            if consumer is not None:
                consumer.close()

    def _next(self, failed: Offsets | None) -> Offsets | None:
        """The newest offsets; those that could not be told are told again after a pause. None: the end."""
        with self._change:
            self._change.wait_for(
                lambda: self._waiting is not None or self._closing, None if failed is None else AGAIN_SECONDS
            )
            offsets, self._waiting = self._waiting, None
            return offsets or (None if self._closing else failed)

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                **self._settings,
                "group.id": self.group,
                "enable.auto.commit": False,
                "socket.timeout.ms": CALL_MS,
                "log_level": 0,
            }
        )

    def _tell(self, consumer: Any, offsets: Offsets) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        wanted = [
            TopicPartition(topic, int(partition), int(offset))
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        ]
        deadline = time.monotonic() + COORDINATOR_SECONDS
        while wanted:
            try:
                for each in consumer.commit(offsets=wanted, asynchronous=False):
                    if each.error is not None:
                        raise KafkaException(each.error)
                return
            except KafkaException as error:
                if "COORD" not in error.args[0].name() or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _fail(self, reason: str, *, quietly: bool = False) -> None:
        with self._change:
            self.failures += 1
        if not quietly:
            text = f"the consumer group '{self.group}' was not told how far the query is: {reason}"
            LOG.warning("%s", text)
            self._told(text)


def _reason(error: Exception) -> str:
    from confluent_kafka import KafkaException

    if isinstance(error, KafkaException) and error.args and hasattr(error.args[0], "name"):
        first = error.args[0]
        if first.name() in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"):
            return "consumers of another program are members of the group; take a group of the query's own"
        return f"{first.str()} ({first.name()})"
    return f"{type(error).__name__}: {error}"
