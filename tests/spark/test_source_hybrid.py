"""A history and then a live source: every id once, whatever is written before, while and after the boundary is taken."""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # not in its __all__
from pyspark.sql import DataFrame

import penstock as ps
import seed
from drained import drained_rows
from penstock.config import load
from penstock.pipeline.sources.hybrid import HybridNode
from penstock.sources.base import Source, SourceContext, SourceFrame
from penstock.sources.hybrid import Boundary, LiveSource
from penstock.spark import catalogs
from remembered import Remembered
from servers.clickhouse import ClickHouse
from servers.kafka import Broker
from servers.postgres import Postgres

COLUMNS = {"id": "int64", "v": "int64"}


class Pipeline:
    """What runs a hybrid source: it notes the boundary, reads the history to its end, and then what is live."""

    def __init__(self, session: ps.Session, folder: Path, **fields: Any) -> None:
        self._node = HybridNode.model_validate({"type": "hybrid", **fields})
        self._folder, self._settings = folder, load()
        self._context = SourceContext(
            session.spark, self._settings, state=Remembered(), folder=str(folder / "source"), goes_on=True
        )
        self.boundary: Mapping[str, Any] = {}

    def begin(self) -> None:
        self.boundary = json.loads(json.dumps(self._node.boundary(self._settings, self._context)))

    def history(self) -> list[dict[str, Any]]:
        source = self._node.history_source(self._settings, self.boundary)
        return drained_rows(source.read(self._context).frame, self._folder / "history")

    def live(self) -> list[dict[str, Any]]:
        source = self._node.live_source(self._settings, self.boundary)
        return drained_rows(source.read(self._context).frame, self._folder / "live")


def kafka_part(broker: Broker, topic: str, **fields: Any) -> dict[str, Any]:
    servers = broker.bootstrap_servers
    return {"type": "kafka", "topic": topic, "bootstrap_servers": servers, "schema": COLUMNS, **fields}


def send(broker: Broker, topic: str, rows: Sequence[tuple[int, int | None]]) -> None:
    """Send rows; one without a value is deleted."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value in rows:
        content = None if value is None else json.dumps({"id": key, "v": value})
        producer.produce(topic, content, key=str(key))
    assert producer.flush(30) == 0


@contextmanager
def writing(step: Any) -> Iterator[threading.Event]:
    """Do something again and again beside the block; the event says that it was done once more since the block has looked."""
    over, done = threading.Event(), threading.Event()
    problems: list[BaseException] = []

    def run() -> None:
        try:
            while not over.is_set():
                step()
                done.set()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()
    assert problems == []


def again(done: threading.Event) -> None:
    """Wait until the writer was there at least once more."""
    for _ in range(2):
        done.clear()
        assert done.wait(60)


def test_every_id_once_by_a_cursor(
    session: ps.Session, clickhouse: ClickHouse, kafka: Broker, tmp_path: Path
) -> None:
    url, topic = clickhouse.new_database(), kafka.new_topic(partitions=2)
    clickhouse.execute("CREATE TABLE t (id UInt32, v Int64) ENGINE = MergeTree ORDER BY v", url)
    clickhouse.execute("INSERT INTO t SELECT number, cityHash64(number) % 997 FROM numbers(2000)", url)
    send(
        kafka, topic, [(number, number) for number in range(1_500, 2_000)]
    )  # what the topic still has of them
    written = 2_000

    def write() -> None:
        """The topic is ahead of the table, which gets the rows of the step before."""
        nonlocal written
        send(kafka, topic, [(number, number) for number in range(written, written + 50)])
        clickhouse.execute(
            f"INSERT INTO t SELECT number, number % 997 FROM numbers({written - 50}, 50) WHERE number >= 2000",
            url,
        )
        written += 50

    history = {"type": "clickhouse", "table": "t", "url": url, "batch_size": 600, "parallelism": 2}
    pipeline = Pipeline(session, tmp_path, history=history, live=kafka_part(kafka, topic), cursor="id")
    with writing(write) as done:
        again(done)
        pipeline.begin()
        again(done)
        old = pipeline.history()
        again(done)
        new = pipeline.live()
        again(done)
    new += pipeline.live()
    assert pipeline.history() == []
    bound = int(pipeline.boundary["cursor"])
    assert sorted(row["id"] for row in old) == list(range(bound + 1))
    assert sorted(row["id"] for row in new) == list(range(bound + 1, written))
    assert {tuple(row) for row in (*old, *new)} == {("id", "v", "_op")}
    assert {row["_op"] for row in old} == {"i"}


def test_every_change_is_there_by_a_key(
    session: ps.Session, clickhouse: ClickHouse, kafka: Broker, tmp_path: Path
) -> None:
    url, topic, chance = (
        clickhouse.new_database(),
        kafka.new_topic(partitions=2),
        random.Random(seed.SEED),
    )
    clickhouse.execute(
        "CREATE TABLE t (id UInt64, v Int64, version UInt64, gone UInt8) ENGINE = ReplacingMergeTree(version, gone) ORDER BY id",
        url,
    )
    truth: dict[int, int | None] = {}
    version = 0

    def change(rows: Sequence[tuple[int, int | None]]) -> None:
        """The table has every change before the topic has it."""
        nonlocal version
        version += 1
        values = ", ".join(f"({key}, {value or 0}, {version}, {int(value is None)})" for key, value in rows)
        clickhouse.execute(f"INSERT INTO t VALUES {values}", url)
        send(kafka, topic, rows)
        truth.update(rows)

    def write() -> None:
        keys = chance.sample(range(300), 10)
        change([(key, None if chance.random() < 0.3 else chance.randrange(1_000)) for key in keys])

    change([(key, 1) for key in range(200)])
    history = {
        "type": "clickhouse",
        "table": "t",
        "url": url,
        "columns": "id, v",
        "batch_size": 100,
        "parallelism": 1,
    }
    pipeline = Pipeline(session, tmp_path, history=history, live=kafka_part(kafka, topic), primary_key="id")
    with writing(write) as done:
        again(done)
        pipeline.begin()
        again(done)
        rows = pipeline.history()
        again(done)
        rows += pipeline.live()
        again(done)
    rows += pipeline.live()
    found = {row["id"]: None if row["_op"] == "d" else row["v"] for row in rows}
    assert {key: value for key, value in found.items() if value is not None} == {
        key: value for key, value in truth.items() if value is not None
    }
    assert sum(json.loads(pipeline.boundary["offsets"])[topic].values()) >= 200


def test_partitions_that_come_later_are_read_from_their_beginning(
    session: ps.Session, kafka: Broker, tmp_path: Path
) -> None:
    topic, data = kafka.new_topic(), tmp_path / "old.jsonl"
    data.write_text('{"id": 1, "v": 1}\n')
    send(kafka, topic, [(1, 1)])
    live = kafka_part(kafka, topic)
    pipeline = Pipeline(
        session, tmp_path, history={"type": "file", "path": str(data)}, live=live, primary_key="id"
    )
    pipeline.begin()
    assert [row["id"] for row in pipeline.history()] == [1]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for created in admin.create_partitions([NewPartitions(topic, 2)]).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, '{"id": 2, "v": 2}', key="2", partition=1)
    producer.produce(topic, '{"id": 3, "v": 3}', key="3", partition=0)
    assert producer.flush(30) == 0
    assert sorted(row["id"] for row in pipeline.live()) == [2, 3]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            "timestamp",
            [
                "2020-01-01T00:00:00Z",
                "2020-01-01T00:00:00.000001Z",
                "2020-06-01T00:00:00Z",
                "2021-01-01T00:00:00Z",
            ],
        ),
        ("decimal(20,3)", [1, 1.5, 9, 10]),
        ("string", ["a", "b", "b'", "c"]),
    ],
)
def test_files_and_a_cursor_of_each_kind(
    session: ps.Session, kafka: Broker, tmp_path: Path, kind: str, values: list[Any]
) -> None:
    topic, data = kafka.new_topic(), tmp_path / "data"
    data.mkdir()
    rows = [json.dumps({"at": value, "n": number}) for number, value in enumerate(values)]
    (data / "a.json").write_text("\n".join(rows[:3]))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for row in rows:
        producer.produce(topic, row)
    assert producer.flush(30) == 0
    schema = {"at": kind, "n": "int32"}
    history = {"type": "file", "path": str(data), "format": "json", "schema": schema}
    live = kafka_part(kafka, topic, schema=schema, operations="none")
    pipeline = Pipeline(session, tmp_path, history=history, live=live, cursor="at")
    pipeline.begin()
    (data / "b.json").write_text(rows[3])  # beyond the boundary: the topic has it
    assert sorted(row["n"] for row in pipeline.history()) == [0, 1, 2]
    assert [row["n"] for row in pipeline.live()] == [3]


class Changes(Source):
    """Rows with operations, as a live source has them."""

    def __init__(self, frame: DataFrame) -> None:
        super().__init__({})
        self._frame = frame

    def read(self, context: SourceContext) -> SourceFrame:
        return SourceFrame(self._frame)


def test_what_changes_rows_of_the_history_is_behind_no_boundary(session: ps.Session) -> None:
    rows = [(3, "i"), (3, "u"), (2, "d"), (None, "d"), (None, "i"), (6, "i"), (7, "u")]
    changes = Changes(session.spark.createDataFrame(rows, "id BIGINT, _op STRING").coalesce(1))
    live = LiveSource(lambda _: changes, Boundary("5", None), cursor="id")
    later = live.read(SourceContext(session.spark, load())).frame.collect()
    assert [tuple(row) for row in later] == [(3, "u"), (2, "d"), (None, "d"), (6, "i"), (7, "u")]


def test_a_history_without_rows(
    session: ps.Session, clickhouse: ClickHouse, kafka: Broker, tmp_path: Path
) -> None:
    url, topic = clickhouse.new_database(), kafka.new_topic()
    clickhouse.execute("CREATE TABLE t (id UInt32, v Int64) ENGINE = MergeTree ORDER BY id", url)
    send(kafka, topic, [(1, 1)])
    history = {"type": "clickhouse", "table": "t", "url": url}
    pipeline = Pipeline(session, tmp_path, history=history, live=kafka_part(kafka, topic), cursor="id")
    pipeline.begin()
    clickhouse.execute("INSERT INTO t VALUES (1, 1)", url)
    assert pipeline.boundary == {"cursor": None, "offsets": None}
    assert pipeline.history() == []
    assert [row["id"] for row in pipeline.live()] == [1]


def test_what_the_history_lacks_is_said(
    session: ps.Session, clickhouse: ClickHouse, kafka: Broker, tmp_path: Path
) -> None:
    url = clickhouse.new_database()
    clickhouse.execute("CREATE TABLE t (id UInt32, value Int64) ENGINE = MergeTree ORDER BY id", url)
    history = {"type": "clickhouse", "table": "t", "url": url}
    live = kafka_part(kafka, kafka.new_topic())
    pipeline = Pipeline(session, tmp_path, history=history, live=live, cursor="id")
    pipeline.begin()
    with pytest.raises(ps.DataError, match="the history has no column 'v'") as caught:
        pipeline.history()
    assert caught.value.code == "SOURCE_COLUMN"
    looked_at = HybridNode.model_validate({"history": history, "live": live, "cursor": "id"}).source(load())
    looked_at.read(SourceContext(session.spark, load()))
    with pytest.raises(ps.DataError, match="the history has no column 'v'"):
        looked_at.check()


@pytest.mark.parametrize("key", [{"primary_key": "id"}, {"cursor": "id"}])
def test_a_table_of_postgres_as_the_history(
    session: ps.Session, postgres: Postgres, kafka: Broker, tmp_path: Path, key: dict[str, str]
) -> None:
    url, topic = postgres.new_database(), kafka.new_topic()
    postgres.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)", url)
    postgres.execute("INSERT INTO t SELECT n, n FROM generate_series(0, 99) n", url)
    send(kafka, topic, [(number, number) for number in range(90, 100)])
    history = {"type": "postgres", "table": "t", "url": url}
    pipeline = Pipeline(session, tmp_path, history=history, live=kafka_part(kafka, topic), **key)
    pipeline.begin()
    send(kafka, topic, [(number, number) for number in range(100, 110)])
    old = pipeline.history()
    assert sorted(row["id"] for row in old) == list(range(100))
    assert sorted(row["id"] for row in pipeline.live()) == list(range(100, 110))


@pytest.mark.parametrize("key", [{"primary_key": "id"}, {"cursor": "id"}])
def test_a_table_of_a_lake_as_the_history(
    session: ps.Session, kafka: Broker, tmp_path: Path, key: dict[str, str]
) -> None:
    lake, topic = f"lake_{uuid.uuid4().hex[:12]}", kafka.new_topic()
    for name, value in catalogs.conf_of(
        lake, {"type": "hadoop", "warehouse": str(tmp_path / "lake")}
    ).items():
        session.spark.conf.set(name, value)
    session.spark.sql(f"CREATE TABLE {lake}.db.t USING iceberg AS SELECT id, id AS v FROM range(20)")
    send(kafka, topic, [(number, number) for number in range(10, 20)])
    history = {"type": "iceberg", "table": f"{lake}.db.t", "mode": "bounded"}
    pipeline = Pipeline(session, tmp_path, history=history, live=kafka_part(kafka, topic), **key)
    pipeline.begin()
    send(kafka, topic, [(number, number) for number in range(20, 30)])
    assert sorted(row["id"] for row in pipeline.history()) == list(range(20))
    assert sorted(row["id"] for row in pipeline.live()) == list(range(20, 30))
