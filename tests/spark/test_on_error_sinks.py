"""`on_error` of sinks in a pipeline: what they refuse are letters, which go to the same sink again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from one_pipeline import Pipeline
from penstock.pipeline.failed_rows import FailedRows
from penstock.pipeline.load import check_text
from penstock.sinks.postgres.sink import PostgresSink
from servers.clickhouse import ClickHouse
from servers.kafka import Broker
from servers.postgres import Postgres

STORED = """
sinks:
  all: {{type: file, from: orders, path: "{folder}/all", format: json}}
  stored: {{type: postgres, from: orders, url: "{url}", table: stored, on_error: dead_letter}}
  copied: {{type: postgres, from: orders, url: "{url}", table: copied, on_error: drop}}
"""


@pytest.fixture
def pipeline(session: ps.Session, tmp_path: Path) -> Pipeline:
    return Pipeline(session, tmp_path)


def stored(postgres: Postgres, url: str, table: str) -> list[tuple[Any, ...]]:
    return postgres.execute(f"SELECT id, amount FROM {table} ORDER BY id", url)


def made(postgres: Postgres) -> str:
    url = postgres.new_database()
    columns = "id BIGINT PRIMARY KEY, amount BIGINT CHECK (amount < 10), parts BIGINT, word TEXT"
    for name in ("stored", "copied"):
        postgres.execute(f"CREATE TABLE {name} ({columns})", url)
    return url


def test_what_a_table_refuses_goes_to_it_again(pipeline: Pipeline, postgres: Postgres) -> None:
    url = made(postgres)
    text = pipeline.text(STORED, url=url)
    pipeline.feed((1, 5, 1, "a"), (2, 50, 1, "b"), (3, 6, 1, "c"), (4, 70, 1, "d"))
    assert pipeline.run(text) is None
    assert stored(postgres, url, "stored") == stored(postgres, url, "copied") == [(1, 5), (3, 6)]
    assert pipeline.failed == [{"stored": 2, "copied": 2}]
    letters = pipeline.letters(text)
    assert [letter[:2] for letter in letters] == [("stored", 2), ("stored", 4)]
    assert 'violates check constraint "stored_amount_check"' in letters[0][2]
    # The table is repaired, and the letters go into it alone.
    postgres.execute("ALTER TABLE stored DROP CONSTRAINT stored_amount_check", url)
    run = pipeline.planned(text)
    pipeline.waiting(text).ask(run.plan)
    run.replay("")
    assert [row[0] for row in stored(postgres, url, "stored")] == [1, 2, 3, 4]
    assert [row[0] for row in stored(postgres, url, "copied")] == [1, 3]
    assert len(pipeline.rows("all", "id")) == 4
    assert pipeline.letters(text) == []


@pytest.mark.parametrize("where", ["letters", "second sink"])
def test_a_crash_behind_the_commit_of_a_sink(
    pipeline: Pipeline, postgres: Postgres, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The rows are in the table, and what was refused is nowhere else than in the note of the sink."""
    url = made(postgres)
    text = pipeline.text(STORED, url=url)
    pipeline.feed((1, 5, 1, "a"), (2, 50, 1, "b"), (3, 6, 1, "c"))
    with monkeypatch.context() as patch:
        if where == "letters":

            def killed(self: FailedRows, epoch: int, rows: Any) -> int:
                raise RuntimeError("killed")

            patch.setattr(FailedRows, "write", killed)
        else:
            write = PostgresSink.write

            def killed_second(self: PostgresSink, epoch: Any) -> int | None:
                if self.table_name == "copied":
                    raise RuntimeError("killed")
                return write(self, epoch)

            patch.setattr(PostgresSink, "write", killed_second)
        error = pipeline.run(text)
        assert error is not None
        assert "killed" in error.message
    assert stored(postgres, url, "stored") == [(1, 5), (3, 6)]
    postgres.execute("ALTER TABLE stored DROP CONSTRAINT stored_amount_check", url)
    assert pipeline.run(text) is None
    assert stored(postgres, url, "stored") == [(1, 5), (3, 6)]
    assert [letter[:2] for letter in pipeline.letters(text)] == [("stored", 2)]
    assert pipeline.failed[-1] == {"stored": 1, "copied": 1}
    # The note is gone with the epoch: a later one has its own.
    pipeline.feed((7, 7, 1, "g"))
    assert pipeline.run(text) is None
    assert pipeline.failed[-1] == {"stored": 0, "copied": 0}


def test_a_query_and_its_sink_both_leave_rows_out(pipeline: Pipeline, postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE stored (id BIGINT PRIMARY KEY, share BIGINT CHECK (share > 1))", url)
    body = """
transforms:
  shares: {{type: sql, sql: "SELECT id, amount div parts AS share FROM orders", on_error: dead_letter}}
sinks:
  stored: {{type: postgres, from: shares, url: "{url}", table: stored, on_error: dead_letter}}
"""
    text = pipeline.text(body, url=url)
    pipeline.feed((1, 5, 0, "a"), (2, 5, 5, "b"), (3, 6, 2, "c"))
    assert pipeline.run(text) is None
    assert postgres.execute("SELECT id, share FROM stored", url) == [(3, 3)]
    assert [letter[:2] for letter in pipeline.letters(text)] == [("shares", 1), ("stored", 2)]
    assert pipeline.failed == [{"shares": 1, "stored": 1}]


def test_letters_of_kafka_and_clickhouse(pipeline: Pipeline, kafka: Broker, clickhouse: ClickHouse) -> None:
    topic, url = kafka.new_topic(), clickhouse.new_database()
    clickhouse.execute(
        "CREATE TABLE out (id Int64, amount Int64, parts Int64, word String, CONSTRAINT small CHECK amount < 10) "
        "ENGINE = ReplacingMergeTree ORDER BY id",
        url,
    )
    body = """
sinks:
  sent: {{type: kafka, from: orders, topic: {topic}, bootstrap_servers: "{servers}", kafka.message.max.bytes: 2000, on_error: dead_letter}}
  out: {{type: clickhouse, from: orders, url: "{url}", table: out, on_error: dead_letter}}
"""
    text = pipeline.text(body, topic=topic, servers=kafka.bootstrap_servers, url=url)
    pipeline.feed((1, 5, 1, "a"), (2, 5, 1, "b" * 5000), (3, 60, 1, "c"))
    assert pipeline.run(text) is None
    assert [letter[:2] for letter in pipeline.letters(text)] == [("out", 3), ("sent", 2)]
    rows = clickhouse.execute("SELECT id FROM out FINAL ORDER BY id", url)
    assert [int(row["id"]) for row in rows] == [1, 2]
    sent = (
        pipeline.session.spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .load()
        .collect()
    )
    assert sorted(json.loads(row.value)["id"] for row in sent) == [1, 3]


def test_a_sink_that_cannot_name_rows_has_no_on_error(pipeline: Pipeline) -> None:
    body = 'sinks: {{out: {{type: file, from: orders, path: "{folder}/out", on_error: drop}}}}'
    [mistake] = check_text(pipeline.text(body), "p.yaml").mistakes
    assert "has no field 'on_error'" in mistake.text
    assert "postgres, postgres_aggregate, kafka, clickhouse and webhook" in mistake.hint
