"""Rows as records of a Kafka topic: at least once through Spark's own writer, exactly once in transactions."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from penstock import config
from penstock.errors import ConfigError, ConnectorError, suggest
from penstock.sinks.base import Epoch, Guarantee, Sink, Target, counted
from penstock.sinks.held_rows import Held
from penstock.sinks.kafka import transaction
from penstock.sinks.kafka.record import format_of, records
from penstock.sinks.require import need
from penstock.sinks.retry import RETRY_FOR, RetryPolicy, retry
from penstock.spark.connectors import ensure_format
from penstock.spark.errors.cause import faults
from penstock.spark.kafka_access import access, for_java, for_librdkafka, prefixed, unprefixed
from penstock.spark.micro_batch.live import Live

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

LOG = logging.getLogger("penstock.sinks")
OLD_SOURCES = "spark.sql.sources.useV1SourceList"

# Spark's tasks try four times; with Kafka's own limits, of one and two minutes, nobody would hear of a broker that is away.
SPARK_WRITER = {
    "kafka.max.block.ms": 15_000,
    "kafka.request.timeout.ms": 10_000,
    "kafka.delivery.timeout.ms": 20_000,
}
# Records that come one by one would be a request each.
LIVE_WRITER = {"kafka.linger.ms": 5}
PASSING_KINDS = (
    "TimeoutException",
    "NetworkException",
    "DisconnectException",
    "NotLeaderOrFollowerException",
    "LeaderNotAvailableException",
    "NotEnoughReplicasException",
    "BrokerNotAvailableException",
)
FINAL_KINDS = (
    "AuthenticationException",
    "AuthorizationException",
    "RecordTooLargeException",
    "InvalidTopicException",
    "UnknownTopicOrPartitionException",
    "SerializationException",
)


class KafkaSink(Sink):
    """Sends a record per row; options that start with `kafka.` go to the producer."""

    taken: ClassVar[tuple[str, ...]] = (
        "topic",
        "bootstrap_servers",
        "value_format",
        "avro_schema",
        "headers",
        "transactional_id",
        "retry_for",
    )

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        need("confluent_kafka", extra="kafka")
        for name in self.options:
            if name not in self.taken and not name.startswith("kafka."):
                raise ConfigError(
                    f"the kafka sink has no option '{name}'",
                    code="STREAM_OPTION_UNKNOWN",
                    hint=suggest(name, self.taken, what="option")
                    + "; those of the producer start with 'kafka.'",
                )
        self.topic = str(self.required("topic"))
        servers = (
            self.options.get("bootstrap_servers")
            or self.options.get("kafka.bootstrap.servers")
            or config.load().kafka_bootstrap_servers
        )
        if not servers:
            raise ConfigError(
                "no Kafka servers are given",
                code="KAFKA_SERVERS",
                hint='add .option("bootstrap_servers", "host:9092"), or set PENSTOCK_KAFKA_BOOTSTRAP_SERVERS',
            )
        self._servers = str(servers)
        self._settings = {**unprefixed(self.options), "bootstrap.servers": self._servers}
        self._transactional_id = self.options.get("transactional_id")
        self._headers = _headers(self.options.get("headers", {}))
        self._policy = RetryPolicy.of(self.options.get("retry_for", RETRY_FOR))
        self._transactions: transaction.Transactions | None = None
        self._first = True
        self._last: Held | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE if self._transactional_id else Guarantee.AT_LEAST_ONCE

    def describe(self) -> str:
        return f"kafka topic {self.topic} at {self._servers}"

    def check(self, target: Target) -> None:
        form = format_of(target.schema, self.options.get("value_format"))
        if form == "avro":
            ensure_format(target.spark, "avro", config.load())
        if not self._transactional_id:
            ensure_format(target.spark, "kafka", config.load())

    def open(self, target: Target) -> None:
        self._target, self._status = target, target.status
        self._form = format_of(target.schema, self.options.get("value_format"))
        policy = self._policy.at_start()
        if self._transactional_id:
            self._retry(self._producing, policy)
        else:
            self._retry(self._find_topic, policy)

    def write(self, epoch: Epoch) -> int | None:
        if not self._transactional_id:
            return self._retry(lambda: self._send(epoch.frame), self._policy)
        mark = self._retry(lambda: self._producing().mark, self._policy)
        if self._first:
            self._first = False
            if mark < 0 < epoch.number:
                LOG.warning(
                    "the query %s goes on with epoch %d, and Kafka has no mark of it: if the query was killed in the middle of a "
                    "commit longer ago than the broker keeps offsets, this epoch may come twice",
                    self._target.name,
                    epoch.number,
                )
        if epoch.number <= mark:
            return 0
        self._last = Held(self._records(epoch.frame), last=self._last)
        with self._last as held:
            return self._retry(lambda: self._commit(epoch.number, held), self._policy)

    @property
    def is_live(self) -> bool:
        return not self._transactional_id

    def live(self, frame: DataFrame) -> Live:
        sent = self._records(frame)
        return Live(sent, "kafka", {**LIVE_WRITER, **self._writer_options(sent)})

    def close(self) -> None:
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            transactions.close()

    def _producing(self) -> transaction.Transactions:
        if self._transactions is None:
            self._transactions = transaction.Transactions(
                for_librdkafka(self._settings),
                topic=self.topic,
                transactional_id=str(self._transactional_id),
                query=self._target.query,
            )
        return self._transactions

    def _commit(self, number: int, held: Held) -> int:
        transactions = self._producing()
        # After a broken connection nobody knows whether the transaction was committed; the mark does.
        return 0 if transactions.mark >= number else transactions.write(number, held.batches())

    def _send(self, frame: DataFrame) -> int:
        watched, rows = counted(self._records(frame))
        writer = watched.write.format("kafka").mode("append").options(**self._writer_options(watched))
        with _second_writer(frame.sparkSession):
            writer.save()
        return rows()

    def _writer_options(self, frame: DataFrame) -> dict[str, Any]:
        return {
            **SPARK_WRITER,
            **prefixed(for_java(self._settings)),
            "topic": self.topic,
            "includeHeaders": "headers" in frame.columns,
        }

    def _records(self, frame: DataFrame) -> DataFrame:
        return records(
            frame,
            self._form,
            keys=self._target.keys,
            headers=self._headers,
            avro_schema=self.options.get("avro_schema"),
        )

    def _find_topic(self) -> None:
        """Find out now that the topic is missing; Spark's writer would notice with the first row, and take minutes."""
        known = access(self._settings)
        if known is not None:
            transaction.find_topic(known, self.topic)

    def _retry(self, action: Callable[[], T], policy: RetryPolicy) -> T:
        from confluent_kafka import KafkaException

        try:
            return retry(
                action,
                status=self._status,
                description=self.describe(),
                policy=policy,
                transient=self._passing,
            )
        except KafkaException as error:
            self.close()
            raise transaction.told(error, where=self.describe()) from error

    def _passing(self, error: Exception) -> str | None:
        reason = transaction.passing(error) or self._passing_in_spark(error)
        if reason is not None:
            self.close()
        return reason

    def _passing_in_spark(self, error: Exception) -> str | None:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            return None
        text = " ".join(f"{fault.kind} {fault.message}" for fault in faults(error))
        final = next((kind for kind in FINAL_KINDS if kind in text), None)
        if final is not None:
            raise ConnectorError(
                f"Kafka refuses: {final}", code="SINK_REFUSED", where=self.describe()
            ) from error
        kind = next((kind for kind in PASSING_KINDS if kind in text), None)
        return None if kind is None else f"the broker does not answer ({kind})"


@contextlib.contextmanager
def _second_writer(spark: SparkSession) -> Iterator[None]:
    """Let Spark use the newer of its two writers: the older one runs the query unseen, and no rows are counted."""
    old = str(spark.conf.get(OLD_SOURCES))
    spark.conf.set(OLD_SOURCES, ",".join(name for name in old.split(",") if name.strip() != "kafka"))
    try:
        yield
    finally:
        spark.conf.set(OLD_SOURCES, old)


def _headers(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"headers must be a dictionary, got {type(given).__name__}",
            code="STREAM_OPTION_VALUE",
            hint='for example .option("headers", {"origin": "orders"})',
        )
    return {str(name): str(value) for name, value in given.items()}
