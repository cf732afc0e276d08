"""How far a query has read, committed to an ordinary consumer group, so that Kafka's own tools show its lag.

Spark's checkpoint decides where a query goes on: the query never reads the offsets of the group, and after a crash
they may be behind by the last batch.
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
"""How long the end of a query waits until the last offsets are committed."""

Offsets = Mapping[str, Mapping[str, int]]


def check(group: str, options: Mapping[str, Any]) -> None:
    """Refuse a group to which a query with these options of the source cannot commit."""
    if find_spec("confluent_kafka") is None:
        raise ConfigError(
            f"group={group!r} needs the package confluent-kafka",
            code="SOURCE_PACKAGE_MISSING",
            hint="pip install 'penstock[kafka]', or leave the group out: the query does not need it",
        )
    for_librdkafka(unprefixed(options))


class ConsumerGroup:
    """Commits to one group, in a thread of its own; of offsets that come faster than Kafka takes them, only the last
    are committed."""

    def __init__(self, options: Mapping[str, str], *, note: Callable[[str], None]) -> None:
        """`options` are those of the source; `note` takes a failure for the log of the query."""
        self.group = options[OPTION]
        self.failures = 0
        self._settings = access(unprefixed(options)) or {}
        self._note = note
        self._pending: Offsets | None = None
        self._closing = False
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    def commit(self, offsets: Offsets) -> None:
        """Commit that all records before these offsets are read; returns at once."""
        with self._change:
            self._pending = offsets
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"penstock group {self.group}", daemon=True
                )
                self._thread.start()
            self._change.notify_all()

    def close(self, seconds: float = LAST_SECONDS) -> None:
        """Wait a moment until the last offsets are committed, and end."""
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
                    self._commit(consumer, offsets)
                    failed = None
                except Exception as error:  # this is only a report: the query goes on
                    self._fail(_reason(error), quietly=failed is not None)
                    failed = offsets
        finally:
            if consumer is not None:
                consumer.close()

    def _next(self, failed: Offsets | None) -> Offsets | None:
        """The newest offsets; those that failed come again after a pause. None: the end."""
        with self._change:
            self._change.wait_for(
                lambda: self._pending is not None or self._closing, None if failed is None else AGAIN_SECONDS
            )
            offsets, self._pending = self._pending, None
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

    def _commit(self, consumer: Any, offsets: Offsets) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        partitions_to_commit = [
            TopicPartition(topic, int(partition), int(offset))
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        ]
        deadline = time.monotonic() + COORDINATOR_SECONDS
        while partitions_to_commit:
            try:
                for partition in consumer.commit(offsets=partitions_to_commit, asynchronous=False):
                    if partition.error is not None:
                        raise KafkaException(partition.error)
                return
            except KafkaException as error:
                if "COORD" not in error.args[0].name() or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _fail(self, reason: str, *, quietly: bool = False) -> None:
        with self._change:
            self.failures += 1
        if not quietly:
            text = f"the query could not commit how far it has read to the consumer group '{self.group}': {reason}"
            LOG.warning("%s", text)
            self._note(text)


def _reason(error: Exception) -> str:
    from confluent_kafka import KafkaException

    if isinstance(error, KafkaException) and error.args and hasattr(error.args[0], "name"):
        first = error.args[0]
        if first.name() in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"):
            return "consumers of another program are members of the group; take a group of the query's own"
        return f"{first.str()} ({first.name()})"
    return f"{type(error).__name__}: {error}"
