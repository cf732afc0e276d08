"""The changes of a view as records of a Kafka topic: one transaction with the mark of the tick, in their order.

With a key, a record says what the row of the key is now: JSON of the row, or a tombstone when it is gone, as a
compacted topic wants it; or with `envelope="debezium"` what it was and what it is. Without a key, a record is a row
with `_weight`. The header `tick` says to which tick a record belongs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, StringConstraints

from penstock.errors import ConfigError, PenstockError
from penstock.options import IgnoringCase, Others
from penstock.sinks.base import Guarantee
from penstock.sinks.json_row import json_name, json_texts, require_json, row_texts
from penstock.sinks.kafka import transaction
from penstock.sinks.kafka.options import PREFIX
from penstock.sinks.key_change import by_key
from penstock.sinks.require import require_package
from penstock.sinks.server import ServerOptions
from penstock.sinks.view_sink import Change, ViewSink, ViewTarget
from penstock.spark.kafka_access import BootstrapServers, access, for_librdkafka, unprefixed

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.config import Settings

Record = tuple[str | None, str | None]
"""Key and value; without a value it is a tombstone."""


class KafkaViewOptions(ServerOptions):
    """The topic, how changes become records, and settings of the producer."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[Annotated[str, StringConstraints(pattern=r"^kafka\.")], Any]
    other_options: ClassVar[Others | None] = Others(
        PREFIX, "settings of the producer, as those of librdkafka"
    )

    topic: str = Field(description="the topic; it must exist unless the broker creates topics by itself")
    bootstrap_servers: BootstrapServers
    envelope: Annotated[Literal["upsert", "debezium"], IgnoringCase] = Field(
        "upsert",
        description="`upsert`: the row, or a tombstone for a key that is gone; `debezium`: `before`, `after`, `op` and `source`",
    )


class KafkaViewSink(ViewSink):
    """A topic that only grows."""

    Options = KafkaViewOptions
    needs_key: ClassVar[bool] = False
    replaces: ClassVar[bool] = False

    options: KafkaViewOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        require_package("confluent_kafka", extra="kafka")
        super().__init__(options, settings)
        self._client = {
            **unprefixed(self.options.model_extra or {}),
            "bootstrap.servers": self.options.bootstrap_servers,
        }
        self._transactions: transaction.TransactionalProducer | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def describe(self) -> str:
        return f"kafka topic {self.options.topic} at {self.options.bootstrap_servers}"

    def check(self, target: ViewTarget) -> None:
        if target.overwrite:
            raise ConfigError(
                "records of a topic cannot be overwritten",
                code="FLOW_SINK_OPTION_VALUE",
                where=self.describe(),
                hint="leave overwrite out: records of others in the topic do no harm, or take a topic of its own",
            )
        require_json(target.fields, where=target.name)
        settings = access(self._client)
        if settings is not None:
            transaction.find_topic(settings, self.options.topic)

    def open(self, target: ViewTarget) -> int | None:
        self._target = target
        if self._transactions is None:
            self._transactions = transaction.TransactionalProducer(
                for_librdkafka(self._client),
                topic=self.options.topic,
                transactional_id=f"penstock-{target.id}",
                query=target.id,
            )
        return self._transactions.mark if self._transactions.mark >= 0 else None

    def replace(self, rows: pa.Table, tick: int) -> None:
        after = row_texts(rows, self.target.fields)
        if self.target.keys:
            records = self._keyed("r", self._keys(rows), [None] * len(after), after, tick)
        else:
            records = [(None, _weighted(text, 1)) for text in after]
        self._send([(tick, records)])

    def apply(self, changes: Sequence[Change]) -> None:
        self._send([(change.tick, self._records(change)) for change in changes])

    def close(self) -> None:
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            transactions.close()

    def transient(self, error: Exception) -> str | None:
        return transaction.transient(error)

    def translate(self, error: Exception) -> PenstockError | None:
        return transaction.translate(error, where=self.describe())

    def _records(self, change: Change) -> list[Record]:
        fields, tick = self.target.fields, change.tick
        if not self.target.keys:
            texts = row_texts(change.rows.table, fields)
            return [
                (None, _weighted(text, int(weight)))
                for text, weight in zip(texts, change.rows.weights, strict=True)
            ]
        keyed = by_key(change.rows, self.target.keys, where=self.target.name)
        gone, old, new, first = (
            row_texts(rows, fields) for rows in (keyed.deleted, keyed.replaced, keyed.updated, keyed.inserted)
        )
        return [
            *self._keyed("d", self._keys(keyed.deleted), gone, [None] * len(gone), tick),
            *self._keyed("u", self._keys(keyed.updated), old, new, tick),
            *self._keyed("c", self._keys(keyed.inserted), [None] * len(first), first, tick),
        ]

    def _keyed(
        self,
        operation: str,
        keys: Sequence[str],
        before: Sequence[str | None],
        after: Sequence[str | None],
        tick: int,
    ) -> list[Record]:
        if self.options.envelope == "upsert":
            return list(zip(keys, after, strict=True))
        source = f'{{"view":{json_name(self.target.name)},"tick":{tick}}}'
        return [
            (
                key,
                f'{{"before":{old or "null"},"after":{new or "null"},"op":"{operation}","source":{source}}}',
            )
            for key, old, new in zip(keys, before, after, strict=True)
        ]

    def _keys(self, rows: pa.Table) -> list[str]:
        """One key column as its text, several as JSON."""
        fields = [field for field in self.target.fields if field.name in self.target.keys]
        ordered = sorted(fields, key=lambda field: self.target.keys.index(field.name))
        if len(ordered) > 1:
            return row_texts(rows, ordered)
        [field] = ordered
        if field.type == "string":
            return [str(text) for text in rows.column(field.name).to_pylist()]
        return [text.strip('"') for text in json_texts(rows.column(field.name), field.type).to_pylist()]

    def _send(self, ticks: Sequence[tuple[int, list[Record]]]) -> None:
        import pyarrow as pa

        transactions = self._transactions
        assert transactions is not None, "the sink was not opened"
        batches = [
            pa.record_batch(
                {
                    "key": pa.array(
                        [None if key is None else key.encode() for key, _ in records], pa.binary()
                    ),
                    "value": pa.array(
                        [None if value is None else value.encode() for _, value in records], pa.binary()
                    ),
                    "headers": pa.array([[{"key": "tick", "value": str(tick).encode()}]] * len(records)),
                }
            )
            for tick, records in ticks
            if records
        ]
        transactions.write(ticks[-1][0], batches)


def _weighted(row: str, weight: int) -> str:
    """A row with its weight as the last member."""
    return f'{row[:-1]},"_weight":{weight}}}'
