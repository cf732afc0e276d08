"""Streaming queries to a webhook: chunks, keys that tell repetitions, retries, refusals."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from open_sink import open_sink
from penstock import config
from penstock.sinks.base import Epoch, QueryStatus, Target
from penstock.sinks.webhook import WebhookSink


class Receiver(ThreadingHTTPServer):
    """Keeps what it is sent; answers what the test asks for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[int] = []
        self.after: str | None = None
        self.requests: list[tuple[str, str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/hook?a=1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.answers.pop(0) if self.server.answers else 200
        if status == 0:
            self.close_connection = True
            return
        if status == 200:
            self.server.requests.append((self.path, self.headers["Idempotency-Key"], body))
        text = b"" if status == 200 else b"no such hook here"
        self.send_response(status)
        if status == 503 and self.server.after is not None:
            self.send_header("Retry-After", self.server.after)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _sink(
    receiver: Receiver, spark: SparkSession, status: QueryStatus | None = None, **options: Any
) -> WebhookSink:
    sink = WebhookSink({"url": receiver.url, **options})
    sink.open(
        Target(
            spark,
            "q-1",
            "q",
            "append",
            spark.range(1).schema,
            status=status or QueryStatus(),
            settings=config.load(),
        )
    )
    return sink


@pytest.mark.smoke
def test_chunks_with_keys_that_tell_repetitions(spark: SparkSession, receiver: Receiver) -> None:
    sink = _sink(receiver, spark, batch_rows=4)
    frame = spark.createDataFrame(
        [(n, None if n else "Zoë") for n in range(10)], "id BIGINT, name STRING"
    ).coalesce(1)
    assert sink.write(Epoch(7, frame)) == 10
    assert sink.write(Epoch(7, frame)) == 10
    assert sink.write(Epoch(8, frame.limit(0))) == 0
    sink.close()
    keys = [key for _, key, _ in receiver.requests]
    assert keys == ["q-1-7-0", "q-1-7-1", "q-1-7-2"] * 2
    assert {path for path, _, _ in receiver.requests} == {"/hook?a=1"}
    rows = [row for _, _, body in receiver.requests[:3] for row in body]
    assert [row["id"] for row in rows] == list(range(10))
    assert rows[:2] == [{"id": 0, "name": "Zoë"}, {"id": 1, "name": None}]


def test_a_receiver_that_is_busy_is_asked_again(spark: SparkSession, receiver: Receiver) -> None:
    status = QueryStatus()
    sink = _sink(receiver, spark, status)
    receiver.answers = [503, 429, 0, 500]
    assert sink.write(Epoch(0, spark.range(3))) == 3
    sink.close()
    assert status.retries == 4
    assert status.message is None
    assert len(receiver.requests) == 1


def test_a_receiver_that_says_when_is_not_asked_before(spark: SparkSession, receiver: Receiver) -> None:
    status = QueryStatus()
    sink = _sink(receiver, spark, status)
    receiver.after, receiver.answers = "1", [503]
    began = time.monotonic()
    assert sink.write(Epoch(0, spark.range(3))) == 3
    assert time.monotonic() - began >= 0.9
    until = datetime.now(UTC) + timedelta(seconds=3)
    receiver.after, receiver.answers = format_datetime(until, usegmt=True), [503]
    assert sink.write(Epoch(0, spark.range(3))) == 3
    assert datetime.now(UTC) >= until.replace(microsecond=0)
    assert status.retries == 2
    receiver.after, receiver.answers = "3600", [503, 503, 503]
    hurried = _sink(receiver, spark, retry_for="1 second")
    with pytest.raises(ps.ConnectorError, match="gave up after"):
        hurried.write(Epoch(1, spark.range(3)))
    sink.close()
    hurried.close()


def test_a_refusal_fails_at_once_with_the_answer(spark: SparkSession, receiver: Receiver) -> None:
    status = QueryStatus()
    sink = _sink(receiver, spark, status)
    receiver.answers = [404]
    with pytest.raises(ps.ConnectorError, match="404 Not Found: no such hook here") as refused:
        sink.write(Epoch(0, spark.range(3)))
    sink.close()
    assert not refused.value.retryable
    assert status.retries == 0
    receiver.answers = [503] * 100
    patient = _sink(receiver, spark, retry_for="500 ms")
    with pytest.raises(ps.ConnectorError, match=r"503.*gave up after") as given_up:
        patient.write(Epoch(0, spark.range(3)))
    patient.close()
    assert given_up.value.retryable


def test_options_that_cannot_work() -> None:
    with pytest.raises(ps.ConfigError, match="starts with http"):
        WebhookSink({"url": "ftp://x"})
    with pytest.raises(ps.ConfigError, match="needs the option 'url'"):
        WebhookSink({})
    with pytest.raises(ps.ConfigError, match="headers must be a dictionary"):
        WebhookSink({"url": "http://x", "headers": "a: b"})


def test_a_query_posts_its_rows(session: ps.Session, receiver: Receiver, tmp_path: Path) -> None:
    query = (
        session.stream([{"id": 1}, {"id": 2}])
        .write_stream.trigger(ps.Trigger.available_now())
        .format("webhook")
        .option("url", receiver.url)
        .option("headers", {"Authorization": "Bearer x"})
        .option("checkpoint.location", tmp_path / "ckpt")
        .start("posts")
    )
    query.await_termination()
    assert sorted(row["id"] for _, _, body in receiver.requests for row in body) == [1, 2]
    assert "at least once" in query.explain()


def test_a_request_per_row_and_the_operation_with_it(spark: SparkSession, receiver: Receiver) -> None:
    frame = spark.createDataFrame([(1, "i"), (2, "u"), (1, "d")], "id INT, _op STRING").coalesce(1)
    with closing(_sink(receiver, spark, one_row_per_request=True)) as sink:
        assert sink.write(Epoch(3, frame)) == 3
    assert [(key, body) for _, key, body in receiver.requests] == [
        ("q-1-3-0", {"id": 1, "_op": "i"}),
        ("q-1-3-1", {"id": 2, "_op": "u"}),
        ("q-1-3-2", {"id": 1, "_op": "d"}),
    ]


def test_the_size_of_a_batch_has_two_names(spark: SparkSession, receiver: Receiver) -> None:
    with closing(_sink(receiver, spark, batch_size=2)) as sink:
        sink.write(Epoch(0, spark.range(5).coalesce(1)))
    assert [len(body) for _, _, body in receiver.requests] == [2, 2, 1]


def test_a_name_of_any_characters_is_part_of_the_key(spark: SparkSession, receiver: Receiver) -> None:
    sink = WebhookSink({"url": receiver.url})
    open_sink(sink, spark.range(1), query="q-1-表")
    sink.write(Epoch(0, spark.range(1)))
    sink.close()
    assert [key for _, key, _ in receiver.requests] == ["q-1-%E8%A1%A8-0-0"]
