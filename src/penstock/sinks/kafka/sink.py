"""Rows as records of a Kafka topic: at least once through Spark's own writer, exactly once in transactions."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.errors import ConnectorError, DataError, PenstockError
from penstock.sinks.base import Epoch, Guarantee, Target, counted
from penstock.sinks.epoch_rows import EpochRows
from penstock.sinks.errors import ROW_REFUSED
from penstock.sinks.failed_row import INPUT, input_of
from penstock.sinks.kafka import transaction
from penstock.sinks.kafka.avro_value import AvroValue
from penstock.sinks.kafka.options import KafkaOptions
from penstock.sinks.kafka.record import records, value_format
from penstock.sinks.operation import stored_schema
from penstock.sinks.require import require_package
from penstock.sinks.server import ServerSink
from penstock.spark.connectors import ensure_format
from penstock.spark.errors.cause import faults
from penstock.spark.kafka_access import access, for_java, for_librdkafka, prefixed, unprefixed
from penstock.spark.micro_batch.live import Live

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.config import Settings

LOG = logging.getLogger("penstock.sinks")
OLD_SOURCES = "spark.sql.sources.useV1SourceList"

# Spark's tasks try four times; with Kafka's own limits, of one and two minutes, the user would hear late of a broker
# that does not answer.
SPARK_WRITER = {
    "kafka.max.block.ms": 15_000,
    "kafka.request.timeout.ms": 10_000,
    "kafka.delivery.timeout.ms": 20_000,
}
# Records that come one by one would be a request each.
LIVE_WRITER = {"kafka.linger.ms": 5}
TRANSIENT_KINDS = (
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


class KafkaSink(ServerSink):
    """Sends a record per row, the operation of a row in its header; options that start with `kafka.` go to the producer."""

    Options = KafkaOptions
    takes_operations: ClassVar[bool] = True

    options: KafkaOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        require_package("confluent_kafka", extra="kafka")
        super().__init__(options, settings)
        self._client = {
            **({"compression.type": self.options.compression} if self.options.compression else {}),
            **unprefixed(self.options.model_extra or {}),
            "bootstrap.servers": self.options.bootstrap_servers,
        }
        self._transactions: transaction.TransactionalProducer | None = None
        self._avro = AvroValue()
        self._first = True
        self._last: EpochRows | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE if self.options.in_transactions else Guarantee.AT_LEAST_ONCE

    def describe(self) -> str:
        return f"kafka topic {self.options.topic} at {self.options.bootstrap_servers}"

    def check_query(self, target: Target) -> None:
        if value_format(stored_schema(target), self.options.value_format) == "avro":
            ensure_format(target.spark, "avro", target.settings)
        if not self.options.in_transactions:
            ensure_format(target.spark, "kafka", target.settings)

    def check_server(self, target: Target) -> None:
        self.check_reachable(target)

    def check_reachable(self, target: Target) -> None:
        settings = access(self._client)
        if settings is not None:
            transaction.look_for_topic(settings, self.options.topic)

    def prepare(self, target: Target) -> None:
        columns = stored_schema(target)
        self._format = value_format(columns, self.options.value_format)
        if self._format == "avro":
            self._avro = AvroValue.of(self.options, target.spark, columns)
        if self.options.in_transactions:
            self._producing()
        else:
            self._require_topic()

    def write(self, epoch: Epoch) -> int | None:
        if not self.options.in_transactions:
            return self.retry(lambda: self._send(epoch.frame))
        mark = self.retry(lambda: self._producing().mark)
        if self._first:
            self._first = False
            if mark < 0 < epoch.number:
                LOG.warning(
                    "the query %s goes on with epoch %d, and Kafka has no mark of it: if the query was killed in the middle of a "
                    "commit longer ago than the broker keeps offsets, this epoch may come twice",
                    self.target.name,
                    epoch.number,
                )
        if epoch.number <= mark:
            return 0
        self._last = EpochRows(self._records(epoch.frame), last=self._last)
        try:
            with self._last as rows:
                return self.retry(lambda: self._commit(epoch.number, rows))
        except DataError as error:
            if error.code != ROW_REFUSED or self.target.refused is None:
                raise
        named = input_of(epoch.frame.columns).alias(INPUT)
        with EpochRows(self._records(epoch.frame, beside=(named,))) as rows:
            return self.retry(lambda: self._commit_taken(epoch.number, rows))

    @property
    def is_live(self) -> bool:
        return not self.options.in_transactions

    def live(self, frame: DataFrame) -> Live:
        sent = self._records(frame)
        return Live(sent, "kafka", {**LIVE_WRITER, **self._writer_options(sent)})

    def close(self) -> None:
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            transactions.close()

    def transient(self, error: Exception) -> str | None:
        if not _is_spark(error):
            return transaction.transient(error)
        text = _fault_text(error)
        if any(kind in text for kind in FINAL_KINDS):
            return None
        kind = next((kind for kind in TRANSIENT_KINDS if kind in text), None)
        return None if kind is None else f"the broker does not answer ({kind})"

    def translate(self, error: Exception) -> PenstockError | None:
        if not _is_spark(error):
            return transaction.translate(error, where=self.describe())
        kind = next((kind for kind in FINAL_KINDS if kind in _fault_text(error)), None)
        if kind is None:
            return None
        return ConnectorError(f"Kafka refuses: {kind}", code="SINK_REFUSED", where=self.describe())

    def _producing(self, *, singly: bool = False) -> transaction.TransactionalProducer:
        if self._transactions is None:
            self._transactions = transaction.TransactionalProducer(
                {**for_librdkafka(self._client), **(transaction.SINGLY if singly else {})},
                topic=self.options.topic,
                transactional_id=self.options.transactional_id or f"penstock-{self.target.query}",
                query=self.target.query,
            )
        return self._transactions

    def _commit(self, number: int, rows: EpochRows) -> int:
        transactions = self._producing()
        # After a broken connection only the mark says whether the transaction was committed.
        return 0 if transactions.mark >= number else transactions.write(number, rows.batches())

    def _commit_taken(self, number: int, rows: EpochRows) -> int:
        """Commit the records that the broker takes, which go to it one by one, and note the others before."""
        import pyarrow as pa

        refused = self.target.refused
        assert refused is not None
        if self._producing().mark >= number:
            return 0
        refused.restart()
        reasons = self._refused(rows)
        taken, position = [], 0
        for batch in rows.batches():
            places = range(position, position + batch.num_rows)
            position += batch.num_rows
            good = [at for at, place in enumerate(places) if place not in reasons]
            taken.append(batch.take(pa.array(good, pa.int64())))
            for at, place in enumerate(places):
                if place in reasons:
                    refused.add(f"Kafka refuses a record: {reasons[place]}", batch.column(INPUT)[at].as_py())
        refused.keep()
        count = self._producing(singly=True).write(number, taken)
        self.close()  # the next epoch sends its records together again
        return count

    def _refused(self, rows: EpochRows) -> dict[int, str]:
        """The positions of the records that the broker does not take, and why; what it takes is not stored."""
        records = [record for batch in rows.batches() for record in transaction.records_of(batch)]
        refused: dict[int, str] = {}
        unknown = set(range(len(records)))
        while unknown:
            before = len(unknown)
            self.close()
            self._producing(singly=True).ask(records, unknown, refused)
            if len(unknown) == before:
                raise transaction.timed_out()
        self.close()
        return refused

    def _send(self, frame: DataFrame) -> int:
        watched, rows = counted(self._records(frame))
        writer = watched.write.format("kafka").mode("append").options(**self._writer_options(watched))
        with _second_writer(frame.sparkSession):
            writer.save()
        return rows()

    def _writer_options(self, frame: DataFrame) -> dict[str, Any]:
        return {
            **SPARK_WRITER,
            **prefixed(for_java(self._client)),
            "topic": self.options.topic,
            "includeHeaders": "headers" in frame.columns,
        }

    def _records(self, frame: DataFrame, *, beside: Sequence[Column] = ()) -> DataFrame:
        return records(
            frame,
            self._format,
            keys=self.target.keys,
            headers=self.options.headers,
            avro=self._avro,
            operation=self.target.operation,
            tombstones=self.options.tombstones,
            beside=beside,
        )

    def _require_topic(self) -> None:
        """Find out now that the topic is missing; Spark's writer would notice with the first row, after minutes."""
        settings = access(self._client)
        if settings is not None:
            transaction.find_topic(settings, self.options.topic)


@contextlib.contextmanager
def _second_writer(spark: SparkSession) -> Iterator[None]:
    """Let Spark use the newer of its two writers: the older one runs the query unseen, and no rows are counted."""
    old = str(spark.conf.get(OLD_SOURCES))
    spark.conf.set(OLD_SOURCES, ",".join(name for name in old.split(",") if name.strip() != "kafka"))
    try:
        yield
    finally:
        spark.conf.set(OLD_SOURCES, old)


def _is_spark(error: Exception) -> bool:
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def _fault_text(error: Exception) -> str:
    return " ".join(f"{fault.kind} {fault.message}" for fault in faults(error))
