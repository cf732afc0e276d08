"""A dry run tries the places of rows beside the main way: dead letters, quarantines and the side outputs of plugins; it writes nothing."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import penstock as ps
from penstock.backend import open_backend
from penstock.cli.main import main
from servers.kafka import Broker
from servers.postgres import Postgres

MODULE = "penstock_test_dry_run"
PLUGINS = """
import pyarrow as pa
import penstock as ps

class Numbers(ps.SourcePlugin):
    schema = "id BIGINT"
    bounded = True

    def read(self, offset, limit):
        return [], 0

class Same(ps.TransformPlugin):
    parallel = False

    def process_batch(self, batch):
        return batch

class Rows(ps.SinkPlugin):
    def process_batch(self, batch):
        raise AssertionError("nothing is to be written")
"""
CHECKED = """
sources:
  orders: {type: file, path: 'IN/*.json', format: json, schema: {id: int64}, primary_key: id, SOURCE}
transforms:
  positive:
    type: expect
    from: orders
    expectations: {id: {condition: id > 0, action: quarantine}}
    LETTERS
sinks:
  out: {type: file, from: positive, format: json, path: 'OUT'}
"""
PLUGGED = """
sources:
  numbers: {type: python, module: 'MODULE:Numbers', primary_key: id SOURCE}
transforms:
  same: {type: python, module: 'MODULE:Same', from: numbers TRANSFORM}
sinks:
  out: {type: python, module: 'MODULE:Rows', from: same SINK}
"""
Run = Callable[[str], tuple[int, str]]


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The module with the plugins, found by its name."""
    folder = tmp_path_factory.mktemp("site")
    (folder / f"{MODULE}.py").write_text(PLUGINS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield
    sys.modules.pop(MODULE, None)


@pytest.fixture
def dry_run(
    session: ps.Session,
    kafka: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Dry-runs a pipeline, and returns the code and what was said; nothing may be left of it."""

    @contextmanager
    def embedded(**options: object) -> Iterator[ps.Session]:
        yield session

    monkeypatch.setattr("penstock.cli.process.embedded", embedded)
    monkeypatch.setenv("PENSTOCK_KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    # A session reads it when it starts, and this one is that of all tests.
    settings = replace(session.settings, kafka_bootstrap_servers=kafka.bootstrap_servers)
    monkeypatch.setattr(session, "settings", settings)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n{"id": -1}\nno json\n')

    def run(text: str) -> tuple[int, str]:
        name = f"dry-{uuid.uuid4().hex[:8]}"
        for old, new in (("IN", tmp_path / "in"), ("OUT", tmp_path / "out"), ("MODULE", MODULE)):
            text = text.replace(f"'{old}", f"'{new}")
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        before = (
            AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=10).topics.keys()
        )
        code = main(["dry-run", str(file)])
        after = (
            AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=10).topics.keys()
        )
        assert after == before
        assert {path.name for path in tmp_path.iterdir()} <= {"in", file.name}
        file.unlink()
        with open_backend(session.settings.state) as backend:
            assert backend.jobs.find(name) is None
            assert backend.leases.get(name) is None
        return code, capsys.readouterr().err

    return run


def checked(letters: str = "", source: str = "max_files: 9") -> str:
    return CHECKED.replace("LETTERS", letters).replace("SOURCE", source)


def test_places_that_are_well(dry_run: Run, kafka: Broker, postgres: Postgres) -> None:
    topic, url = kafka.new_topic(), postgres.new_database()
    for letters in (
        "",
        f"dead_letter: {{type: kafka, topic: {topic}}}",
        f"dead_letter: {{type: postgres, table: letters, url: '{url}'}}",
    ):
        code, said = dry_run(checked(letters, "on_bad_record: quarantine, quarantine: 'IN/../bad'"))
        assert (code, "can run" in said) == (0, True), said
    assert postgres.execute("SELECT relname FROM pg_stat_user_tables", url) == []


@pytest.mark.parametrize("place", ["topic", "broker"])
def test_dead_letters_for_a_topic_that_cannot_be(dry_run: Run, kafka: Broker, place: str) -> None:
    servers = kafka.bootstrap_servers if place == "topic" else "127.0.0.1:1"
    letters = f"dead_letter: {{type: kafka, topic: nowhere, bootstrap_servers: '{servers}'}}"
    code, said = dry_run(checked(letters))
    assert code == 1
    assert ("the topic does not exist" if place == "topic" else "kafka topic nowhere at 127.0.0.1:1") in said
    assert ".yaml:5:3" in said


def test_dead_letters_for_a_table_that_does_not_fit(dry_run: Run, postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE letters (id TEXT, reason INT)", url)
    code, said = dry_run(checked(f"dead_letter: {{type: postgres, table: letters, url: '{url}'}}"))
    assert code == 1
    assert "'reason'" in said
    assert ".yaml:5:3" in said
    assert postgres.execute("SELECT count(*) FROM letters", url) == [(0,)]
    away = url.replace("secret", "wrong-password")
    code, said = dry_run(checked(f"dead_letter: {{type: postgres, table: letters, url: '{away}'}}"))
    assert code == 1
    assert "wrong-password" not in said
    assert "password authentication failed" in said


def test_dead_letters_for_files_of_other_columns(
    dry_run: Run, session: ps.Session, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("letters")
    session.spark.range(3).write.mode("overwrite").json(str(folder / "a"))
    (folder / "a" / "_penstock").mkdir()
    schema = session.spark.createDataFrame([], "id STRING, reason BOOLEAN").schema
    (folder / "a" / "_penstock" / "schema.json").write_text(json.dumps(json.loads(schema.json())))
    code, said = dry_run(checked(f"dead_letter: {{path: '{folder / 'a'}'}}"))
    assert code == 1
    assert "reason" in said
    assert ".yaml:5:3" in said


def test_a_quarantine_of_bad_records_that_cannot_be(dry_run: Run) -> None:
    code, said = dry_run(checked("", "on_bad_record: quarantine, quarantine: 'topic:nowhere'"))
    assert code in (1, 2)
    assert "nowhere" in said or "bootstrap_servers" in said


@pytest.mark.parametrize("kind", ["SOURCE", "TRANSFORM", "SINK"])
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("{type: kafka, topic: nowhere}", "the topic does not exist"),
        ("{type: postgres, table: rejected, url: 'URL', create: false}", "there is no table rejected"),
        ("{type: postgres, table: rejected, url: 'AWAY'}", "password authentication failed"),
    ],
)
def test_side_outputs_of_plugins(dry_run: Run, postgres: Postgres, kind: str, place: str, words: str) -> None:
    url = postgres.new_database()
    place = place.replace("URL", url).replace("AWAY", url.replace("secret", "wrong-password"))
    text = PLUGGED.replace(kind, f", side_outputs: {{rejected: {place}}}")
    for other in ("SOURCE", "TRANSFORM", "SINK"):
        text = text.replace(f" {other}", "")
    code, said = dry_run(text)
    assert code == 1, said
    assert words in said
    assert "wrong-password" not in said
    line = {"SOURCE": 3, "TRANSFORM": 5, "SINK": 7}[kind]
    assert f".yaml:{line}:3" in said
    assert postgres.execute("SELECT relname FROM pg_stat_user_tables", url) == []


def test_side_outputs_that_are_well(dry_run: Run, postgres: Postgres, kafka: Broker) -> None:
    url = postgres.new_database()
    text = PLUGGED.replace("SOURCE", f", side_outputs: {{a: {{type: kafka, topic: {kafka.new_topic()}}}}}")
    text = text.replace("TRANSFORM", f", side_outputs: {{b: {{type: postgres, table: t, url: '{url}'}}}}")
    text = text.replace("SINK", ", side_outputs: {c: {type: file, path: 'IN/../c', format: json}}")
    code, said = dry_run(text)
    assert code == 0, said
    assert postgres.execute("SELECT relname FROM pg_stat_user_tables", url) == []
