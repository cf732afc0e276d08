"""One transaction of Kafka per epoch, from one producer on the driver.

The mark, which says what the last committed epoch was, is the committed offset of a consumer group without members, and
it is sent inside the transaction. A topic for marks would outlive the broker's retention of offsets (seven days
without a commit), but it would need the right to create topics, would have to be read from its beginning at every
start, behind the open transactions of all other queries, and would keep the marks of every query that ever ran.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError, ConnectorError, DataError, PenstockError
from penstock.sinks.errors import ROW_REFUSED

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

Record = tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]] | None]
CALL_SECONDS = 10.0
LOOK_SECONDS = 1.0
LAST_REPORTS_SECONDS = 0.2
"""How long to wait for what the broker says of records that were on their way with one that it has refused."""
POLL_EVERY = 5_000
TOPIC_SECONDS = 2.0
"""How long a topic that the broker creates by itself may take to appear."""

PRODUCER = {
    # With the default of 100 ms a transaction of a few rows takes ten times as long as it needs to.
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 20,
    "linger.ms": 5,
    "partitioner": "murmur2_random",  # as Java's producers do it
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 128 << 10,
    "transaction.timeout.ms": 300_000,
    "delivery.report.only.error": True,
    "log_level": 0,
}

SINGLY = {
    # Each record is a batch of its own, which the broker takes or not.
    "batch.num.messages": 1,
    "delivery.report.only.error": False,
}


class TransactionalProducer:
    """A transactional producer and its mark; after an error the sink closes it, and a new one reads what was committed."""

    def __init__(self, conf: Mapping[str, Any], *, topic: str, transactional_id: str, query: str) -> None:
        self._topic = topic
        self._faults: list[KafkaError] = []
        group = f"penstock.{transactional_id}.{query}"
        self._producer = _new_producer(
            {**PRODUCER, **conf, "transactional.id": transactional_id}, self._faults
        )
        self._consumer: Consumer | None = None
        try:
            _require_topic(self._producer, topic, self._faults)
            # The old owner of the id is fenced off, and what it left open is ended, before the mark is read.
            _bounded(partial(self._producer.init_transactions, CALL_SECONDS))
            self._consumer = _consumer({**conf, "group.id": group, "log_level": 0})
            self.mark = self._read_mark()
        except BaseException:
            self.close()
            raise

    def write(self, number: int, batches: Iterable[pa.RecordBatch]) -> int:
        """Send the rows and the mark in one transaction, and commit it; return the number of rows."""
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._consumer
        assert consumer is not None, "the producer is closed"
        self._faults.clear()
        self._producer.begin_transaction()
        try:
            rows = sum(self._send(batch) for batch in batches)
            self._flush()
            mark, group = [TopicPartition(self._topic, 0, number + 1)], consumer.consumer_group_metadata()
            _bounded(partial(self._producer.send_offsets_to_transaction, mark, group, CALL_SECONDS))
            self._commit()
        except (KafkaException, SystemError) as error:
            raise self._cause(error) from error
        self.mark = number
        return rows

    def ask(self, records: Sequence[Record], unknown: set[int], refused: dict[int, str]) -> None:
        """Send records in a transaction, singly; take those out of `unknown` of which the broker says something.
        `close` comes behind it, and aborts it.

        Those that it does not take are in `refused`, with the reasons. The first of them ends the transaction: the
        others wait for the next one.
        """
        from confluent_kafka import KafkaError, KafkaException

        def told(position: int, error: KafkaError | None, _: Any = None) -> None:
            if error is None:
                unknown.discard(position)
            elif error.code() in _of_rows() and error.code() != KafkaError._INVALID_DIFFERENT_RECORD:
                unknown.discard(position)
                refused[position] = str(error.str())

        self._producer.begin_transaction()
        left = len(refused)
        for position in sorted(unknown):
            try:
                self._produce(records[position], on_delivery=partial(told, position))
            except KafkaException as error:
                if error.args[0].code() not in _of_rows():
                    break  # a record before it was refused: the transaction takes no more
                told(position, error.args[0])
                left += 1
            if position % POLL_EVERY == 0:
                self._producer.poll(0)
        deadline = time.monotonic() + CALL_SECONDS
        while len(self._producer) and time.monotonic() < deadline:
            if self._producer.poll(0.05):
                deadline = time.monotonic() + CALL_SECONDS
            if len(refused) > left:
                deadline = min(deadline, time.monotonic() + LAST_REPORTS_SECONDS)

    def close(self) -> None:
        """Abort an open transaction; when the broker does not answer, it or the next owner of the id does so later.

        The producer is not closed, because its `close` waits without a limit for a broker that does not answer.
        """
        from confluent_kafka import KafkaException

        for step in (
            self._producer.purge,
            partial(self._producer.abort_transaction, 1.0),
            partial(self._producer.flush, 0.1),
        ):
            # No transaction is open, or it is another's by now, or the broker is away.
            with contextlib.suppress(KafkaException, SystemError):
                _bounded(step, seconds=2.0)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(KafkaException):
                _bounded(consumer.close, seconds=2.0)

    def _send(self, batch: pa.RecordBatch) -> int:
        for index, record in enumerate(records_of(batch)):
            self._produce(record)
            if index % POLL_EVERY == 0:
                self._producer.poll(0)
        return int(batch.num_rows)

    def _produce(self, record: Record, **more: Any) -> None:
        """Give a record to the producer, when there is room for it."""
        value, key, headers = record
        while True:
            try:
                self._producer.produce(self._topic, value, key, headers=headers, **more)
                return
            except BufferError:
                self._make_room()

    def _cause(self, error: Exception) -> Exception:
        """The cause of an error: a record that was refused, or the first fatal error of the producer."""
        from confluent_kafka import KafkaException

        try:
            self._producer.flush(0)
        except (KafkaException, SystemError) as fatal:
            return _plain(fatal)
        return KafkaException(self._faults[0]) if self._faults else _plain(error)

    def _make_room(self) -> None:
        """Wait until the broker has taken some of the records in the queue."""
        from confluent_kafka import KafkaException

        waiting, deadline = len(self._producer), time.monotonic() + CALL_SECONDS
        while len(self._producer) >= waiting:
            self._producer.poll(0.05)
            if self._faults:
                raise KafkaException(self._faults[0])
            if time.monotonic() > deadline:
                raise timed_out()

    def _flush(self) -> None:
        """Wait until the broker has all records; when it takes none for a while, it does not answer."""
        waiting = len(self._producer)
        while (left := self._producer.flush(CALL_SECONDS)) > 0:
            if left >= waiting:
                raise timed_out()
            waiting = left

    def _commit(self) -> None:
        """Commit; a call whose answer did not come in time is repeated, as the protocol wants it."""
        from confluent_kafka import KafkaException

        for last in (False, True):
            try:
                _bounded(partial(self._producer.commit_transaction, CALL_SECONDS))
            except KafkaException as error:
                if last or not error.args[0].retriable():
                    raise
            else:
                return

    def _read_mark(self) -> int:
        from confluent_kafka import KafkaException, TopicPartition

        assert self._consumer is not None
        deadline = time.monotonic() + CALL_SECONDS
        while True:
            try:
                [committed] = self._consumer.committed([TopicPartition(self._topic, 0)], timeout=5.0)
                if committed.error is not None:
                    raise KafkaException(committed.error)
            except KafkaException as error:
                # A new broker's first answer is often that it is not the coordinator.
                if not _is_transient(error.args[0]) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return committed.offset - 1 if committed.offset >= 0 else -1


def records_of(batch: pa.RecordBatch) -> Iterator[Record]:
    """The records of rows: value, key and headers."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    nothing = [None] * batch.num_rows
    values = columns["value"].to_pylist()
    keys = columns["key"].to_pylist() if "key" in columns else nothing
    headers = columns["headers"].to_pylist() if "headers" in columns else nothing
    for value, key, structs in zip(values, keys, headers, strict=True):
        pairs = None if structs is None else [(header["key"], header["value"]) for header in structs]
        yield value, key, pairs


def _require_topic(producer: Producer, topic: str, faults: list[KafkaError]) -> None:
    from confluent_kafka import KafkaError, KafkaException

    give_up, deadline = time.monotonic() + CALL_SECONDS, time.monotonic() + TOPIC_SECONDS
    while True:
        try:
            problem = producer.list_topics(topic, timeout=LOOK_SECONDS).topics[topic].error
        except KafkaException as error:
            producer.poll(0)
            if faults:  # a refused password looks like a server that does not answer, but for this error of the client
                raise KafkaException(faults[0]) from error
            if time.monotonic() > give_up:
                raise
            continue
        if problem is None:
            return
        if problem.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE):
            raise KafkaException(problem)
        if time.monotonic() > deadline:
            raise KafkaException(problem)
        time.sleep(0.1)


def find_topic(conf: Mapping[str, Any], topic: str) -> None:
    """Raise when a topic is not there and the broker does not make it."""
    faults: list[KafkaError] = []
    _require_topic(_new_producer({**conf, "log_level": 0}, faults), topic, faults)


def look_for_topic(conf: Mapping[str, Any], topic: str) -> None:
    """Raise when a topic is not there, and the broker surely does not make it; unlike `find_topic`, this does not
    have it made."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    faults: list[KafkaError] = []
    settings: dict[str, Any] = {**conf, "log_level": 0, "error_cb": _noting_refusals(faults)}
    admin = AdminClient(settings)
    deadline = time.monotonic() + TOPIC_SECONDS
    while True:
        try:
            _describe_topic(admin, topic, faults)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            # A topic that was made a moment ago is not known to all brokers yet.
            if time.monotonic() > deadline:
                if _makes_topics(admin):
                    return
                raise
            time.sleep(0.1)
        else:
            return


def _describe_topic(admin: Any, topic: str, faults: list[KafkaError]) -> None:
    """Ask for a topic without having it made; raises what the broker or the client says."""
    from confluent_kafka import KafkaException, TopicCollection

    future = admin.describe_topics(TopicCollection([topic]), request_timeout=CALL_SECONDS / 2)[topic]
    # A refused password looks like a server that does not answer, but for an error of the client.
    while not future.done() and not faults:
        admin.poll(0.05)
    if faults:
        raise KafkaException(faults[0])
    future.result()


def _makes_topics(admin: Any) -> bool:
    """Whether the brokers make topics that are written to; True also when they do not say."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]  # as its documentation has it

    name = "auto.create.topics.enable"
    try:
        nodes = admin.describe_cluster(request_timeout=CALL_SECONDS / 2).result().nodes
        resource = ConfigResource(ConfigResource.Type.BROKER, str(nodes[0].id))
        settings = admin.describe_configs([resource], request_timeout=CALL_SECONDS / 2)[resource].result()
    except KafkaException:
        return True
    return name not in settings or settings[name].value != "false"


def transient(error: Exception) -> str | None:
    """Say what an error means that goes away by itself; None when it does not, or is not Kafka's."""
    from confluent_kafka import KafkaException

    if not isinstance(error, KafkaException):
        return None
    problem = error.args[0]
    return str(problem.str()) if _is_transient(problem) else None


def translate(error: Exception, *, where: str) -> PenstockError | None:
    """Return the error for the user, for one of Kafka's that does not go away."""
    from confluent_kafka import KafkaError, KafkaException

    if not isinstance(error, KafkaException):
        return None
    problem = error.args[0]
    code, text = problem.code(), problem.str()
    if code in _fenced():
        return ConnectorError(
            "another producer has taken over the transactional id",
            code="SINK_FENCED",
            where=where,
            hint="one running query per id: give each its own name in with_kafka_transactional(...)",
        )
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return ConnectorError(
            "the topic does not exist, and the broker does not create it",
            code="SINK_TOPIC_MISSING",
            where=where,
            hint="create it, or correct the option 'topic'",
        )
    if code in _of_rows():
        size = 'raise the limit of the topic and .option("kafka.message.max.bytes", ...)'
        key = "a topic that is compacted takes no record without a key"
        return DataError(
            f"Kafka refuses a record: {text}",
            code=ROW_REFUSED,
            where=where,
            hint=f"nothing of the batch was sent; {size if code == KafkaError.MSG_SIZE_TOO_LARGE else key}",
        )
    return ConnectorError(
        f"Kafka refuses: {text}",
        code="SINK_REFUSED",
        where=where,
        hint="check the servers, the user and its rights",
    )


def _new_producer(conf: Mapping[str, Any], faults: list[KafkaError]) -> Producer:
    from confluent_kafka import KafkaError, KafkaException, Producer

    def on_delivery(error: KafkaError | None, _: Any) -> None:
        if error is not None and error.code() not in (
            KafkaError._PURGE_QUEUE,
            KafkaError._PURGE_INFLIGHT,
        ):
            faults.append(error)

    try:
        return Producer({**conf, "error_cb": _noting_refusals(faults), "on_delivery": on_delivery})
    except KafkaException as error:
        raise ConfigError(
            f"Kafka's client refuses its settings: {error.args[0].str()}",
            code="STREAM_OPTION_VALUE",
            hint="this sink uses librdkafka; settings that get into the cluster may be Java's, others are its own",
        ) from error


def _noting_refusals(faults: list[KafkaError]) -> Callable[[KafkaError], None]:
    """What notes that the broker refuses to talk, which the client tells in no other way, and fatal errors, whose
    exceptions it may lose."""
    from confluent_kafka import KafkaError

    def on_error(error: KafkaError) -> None:
        if (
            error.fatal()
            or error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
            or (error.code() == KafkaError._SSL and "verify failed" in error.str())
        ):
            faults.append(error)

    return on_error


def _consumer(conf: Mapping[str, Any]) -> Consumer:
    from confluent_kafka import Consumer

    dropped = (
        "transactional.id",
        "transaction.timeout.ms",
        "message.max.bytes",
        "compression.type",
        "linger.ms",
    )
    return Consumer(
        {
            **{name: value for name, value in conf.items() if name not in dropped},
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )


def _bounded(call: Callable[[], Any], *, seconds: float = CALL_SECONDS + 2) -> None:
    """Call Kafka's client, which does not always come back when its own time is over and the broker is away.

    A call that is left behind can at most commit what it was asked to commit: the next owner of the id finds the mark of that.
    """
    ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            call()
        except Exception as error:
            ended.put(error)
        else:
            ended.put(None)

    threading.Thread(target=run, name="penstock kafka", daemon=True).start()
    try:
        error = ended.get(timeout=seconds)
    except queue.Empty:
        raise timed_out() from None
    if error is not None:
        raise error


def _plain(error: Exception) -> Exception:
    """Kafka's error; its client calls back while it raises a fatal one, which Python reports as an error of the callback."""
    from confluent_kafka import KafkaException

    cause = error.__cause__
    return cause if isinstance(error, SystemError) and isinstance(cause, KafkaException) else error


def timed_out() -> KafkaException:
    from confluent_kafka import KafkaError, KafkaException

    return KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker does not answer"))


def _fenced() -> tuple[int, ...]:
    from confluent_kafka import KafkaError

    return (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def _of_rows() -> tuple[int, ...]:
    """Errors about a record: it is too large, or has no key where it must have one. All others of a batch get one of
    these when one is refused."""
    from confluent_kafka import KafkaError

    return (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD)


def _is_transient(problem: KafkaError) -> bool:
    from confluent_kafka import KafkaError

    if problem.code() in (
        *_fenced(),
        *_of_rows(),
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
    ):
        return False
    unreachable = (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._PURGE_QUEUE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    )
    # A producer with a fatal error of another kind is replaced by a new one, which finds out what was committed.
    return bool(
        problem.code() in unreachable
        or problem.retriable()
        or problem.txn_requires_abort()
        or problem.fatal()
    )
