"""A pipeline as an operator has it: what a run says, how it fails, how its place is shown and thrown away, and that no secret gets out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_process import PipelineProcess, home_in
from servers.postgres import Postgres
from waiting import wait_for

SECRET = "Zebra-crossing-88"
FOLLOWED = """
name: followed
sources:
  orders: {type: postgres_cdc, url: "${SHOP_URL}", table: orders, primary_key: id}
sinks:
  copy: {type: postgres, from: orders, url: "${SHOP_URL}", table: copy}
"""


def command(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **own(folder), **environment},
        timeout=240,
        check=False,
    )


def own(folder: Path) -> dict[str, str]:
    """The environment in which all state is in a folder."""
    return {"PENSTOCK_HOME": str(home_in(folder)), "PENSTOCK_STATE": f"sqlite:///{folder / 'state.db'}"}


def event_log(folder: Path) -> str:
    """The settings by which Spark writes down its work, as text that can be searched."""
    events = folder / "events"
    events.mkdir()
    return f"spark.eventLog.enabled=true spark.eventLog.compress=false spark.eventLog.dir=file:{events}"


def with_password(postgres: Postgres, url: str) -> str:
    """The address of a database for a user whose password is the secret."""
    scheme, _, rest = url.partition("://")
    place = rest.rpartition("@")[2]
    user = f"owner_{place.rpartition('/')[2]}"
    postgres.execute(f"CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{SECRET}'", url)
    return f"{scheme}://{user}:{SECRET}@{place}"


def leaks(folder: Path) -> list[str]:
    """The files below a folder that have the secret in them."""
    return [
        str(path) for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]


def test_a_followed_table_is_paused_reset_and_fails_without_a_secret(
    tmp_path: Path, postgres: Postgres
) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, amount INT)", url)
    postgres.execute("INSERT INTO orders VALUES (1, 10)", url)
    environment = {
        **own(tmp_path),
        "SHOP_URL": with_password(postgres, url),
        "PENSTOCK_CONF": event_log(tmp_path),
    }

    def copied() -> int:
        there = postgres.execute("SELECT to_regclass('copy') IS NOT NULL", url)[0][0]
        return int(postgres.execute("SELECT count(*) FROM copy", url)[0][0]) if there else 0

    with PipelineProcess(tmp_path, FOLLOWED, environment) as pipeline:
        pipeline.start()
        wait_for(lambda: not pipeline.is_running or copied() == 1, "the snapshot", seconds=120)
        assert pipeline.is_running, pipeline.said()
        wait_for(lambda: "'orders': snapshot done, following" in pipeline.said(), "the end of the snapshot")
        assert "'followed' runs; Ctrl-C stops it" in pipeline.said()
        refused = command(tmp_path, "state", "reset", "followed", "--yes")
        assert (refused.returncode, "is owned by" in refused.stderr) == (1, True)
        paused = command(tmp_path, "jobs", "pause", "followed", "--node", "copy")
        assert pipeline.is_running, pipeline.said()
        assert (paused.returncode, paused.stdout) == (0, "'followed' is paused\n")
        postgres.execute("INSERT INTO orders VALUES (2, 20)", url)
        listed = command(tmp_path, "jobs", "list", "--output", "json")
        assert json.loads(listed.stdout)["state"] == "PAUSED"
        assert copied() == 1
        assert command(tmp_path, "jobs", "resume", "followed").returncode == 0
        wait_for(lambda: copied() == 2, "the row of the pause")
        # From now on the sink cannot write.
        postgres.execute("ALTER TABLE copy RENAME COLUMN amount TO other", url)
        postgres.execute("INSERT INTO orders VALUES (3, 30)", url)
        assert pipeline.wait() == 1
        assert f"at: {pipeline.file}:6:" in pipeline.said()
        assert "Traceback" not in pipeline.said()
    shown = command(tmp_path, "jobs", "show", "followed")
    logged = command(tmp_path, "jobs", "logs", "followed")
    assert "snapshot done, following" in logged.stdout
    assert SECRET not in shown.stdout + logged.stdout
    offsets = command(tmp_path, "state", "show", "followed", "offsets", "--output", "json")
    assert json.loads(offsets.stdout)["read"].startswith("snapshot done, following: read to ")
    assert leaks(tmp_path) == []

    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert postgres.execute(slots, url) == [(1,)]
    reset = command(tmp_path, "state", "reset", "followed", "--yes", SHOP_URL=environment["SHOP_URL"])
    assert reset.returncode == 0, reset.stderr
    assert "replication slot penstock_followed_orders" in reset.stdout
    assert postgres.execute(slots, url) == [(0,)]
    assert not (tmp_path / "home" / "pipelines" / "followed" / "main").exists()


@pytest.mark.parametrize("node", ["source", "sink"])
def test_a_server_that_cannot_be_reached_is_named_without_its_password(tmp_path: Path, node: str) -> None:
    away = f"postgresql://ann:{SECRET}@localhost:1/shop"
    source = '{type: postgres, url: "${SHOP_URL}", table: t}'
    sink = '{type: postgres, from: a, url: "${SHOP_URL}", table: t, retry_for: 1s}'
    made = "{type: file, path: rows.json, schema: {id: int64}, mode: {type: bounded}, primary_key: id}"
    (tmp_path / "rows.json").write_text('{"id": 1}\n')
    text = (
        f"name: away\nsources:\n  a: {source if node == 'source' else made}\n"
        f"sinks:\n  b: {sink if node == 'sink' else '{type: print, from: a}'}\n"
    )
    with PipelineProcess(tmp_path, text, {**own(tmp_path), "SHOP_URL": away}) as pipeline:
        pipeline.start()
        assert pipeline.wait() == 1
    assert f"pipeline.yaml:{3 if node == 'source' else 5}:3" in pipeline.said()
    assert "Traceback" not in pipeline.said()
    assert leaks(tmp_path) == []


SPOKEN = """
name: spoken
sources:
  a: {type: file, path: rows.json, schema: {id: int64}, mode: {type: bounded}, primary_key: id}
transforms:
  q: {type: sql, sql: "SELECT id, '${WORD}' <> concat('', id) AS ok FROM a WHERE concat(id, 'x') <> '${WORD}'"}
  v: {type: view, primary_key: ok, sql: "SELECT ok, count(*) AS n FROM q WHERE concat(id, 'y') <> '${WORD}' GROUP BY ok"}
  e: {type: expect, from: q, expectations: {word: {condition: "id < 3 OR raise_error('no ${WORD}') IS NULL", action: fail}}}
sinks:
  b: {type: print, from: v}
  c: {type: print, from: e}
"""


def test_a_word_of_the_environment_is_in_nothing_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"id": 1}\n{"id": 3}\n')
    environment = {**own(tmp_path), "WORD": SECRET, "PENSTOCK_CONF": event_log(tmp_path)}
    with PipelineProcess(tmp_path, SPOKEN, environment) as pipeline:
        pipeline.start()
        assert pipeline.wait() == 1
    assert "no ***" in pipeline.said()
    events = "".join(path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file())
    # The plan with the condition, and the error of the task.
    assert "= ***" in events
    assert "no ***" in events
    assert leaks(tmp_path) == []


KEPT = """
name: kept
sources:
  a: {type: file, path: "${IN_PATH}", schema: {id: int64, word: string}, mode: {type: bounded}, primary_key: id}
transforms:
  q: {type: sql, sql: "SELECT id, length('${API_TOKEN}') AS n FROM a WHERE word <> '${API_TOKEN}'"}
  v: {type: view, primary_key: n, sql: "SELECT n, count(*) AS rows FROM q WHERE concat(id, 'y') <> '${API_TOKEN}' GROUP BY n"}
  e: {type: expect, from: q, expectations: {word: {condition: "concat(id, '') <> '${API_TOKEN}'", action: quarantine}}}
sinks:
  b: {type: file, format: json, from: e, path: out}
  c: {type: postgres, from: v, url: "${SHOP_URL}", table: counts}
"""


def test_a_secret_is_in_no_checkpoint_and_in_no_state(tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.new_database()
    (tmp_path / "rows.json").write_text('{"id": 1, "word": "a"}\n{"id": 3, "word": "b"}\n')
    environment = {
        **own(tmp_path),
        "API_TOKEN": SECRET,
        "SHOP_URL": with_password(postgres, url),
        "IN_PATH": str(tmp_path / "rows.json"),
    }
    with PipelineProcess(tmp_path, KEPT, environment) as pipeline:
        for _ in range(2):
            pipeline.start()
            assert pipeline.wait() == 0, pipeline.said()
    assert postgres.execute("SELECT n, rows FROM counts", url) == [(len(SECRET), 2)]
    kept = list((tmp_path / "home" / "pipelines" / "kept").rglob("*"))
    assert any(path.parent.name == "offsets" for path in kept)
    assert any("views-1" in str(path) for path in kept)
    assert leaks(tmp_path) == []

    (tmp_path / "pipeline.yaml").write_text(KEPT.replace("${IN_PATH}", "/in/${API_TOKEN}/rows.json"))
    refused = command(tmp_path, "run", "pipeline.yaml", **environment)
    assert refused.returncode == 2
    assert "'path' of the source 'a' has the secret ${API_TOKEN}" in refused.stderr
    assert "at: pipeline.yaml:4:25" in refused.stderr
