"""Replication slots that sources leave which are gone from the file of their pipeline: what tells of them, and what drops them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock as ps
from penstock.cli.main import main
from penstock.pipeline.load import load
from penstock.pipeline.run import PipelineRun, plan_pipeline
from servers.postgres import Postgres
from waiting import wait_for

BOTH = """
sources:
  orders: {type: postgres_cdc, url: "${SHOP_URL}", table: orders}
  customers: {type: postgres_cdc, url: "${SHOP_URL}", table: customers}
transforms:
  named: {type: view, primary_key: id, sql: "SELECT id, name FROM orders LEFT JOIN customers USING (id)"}
sinks:
  copy: {type: postgres, from: named, url: "${SHOP_URL}", table: copy}
"""
ONE = """
sources:
  orders: {type: postgres_cdc, url: "${SHOP_URL}", table: orders}
transforms:
  named: {type: view, primary_key: id, sql: "SELECT id, 'nobody' AS name FROM orders"}
sinks:
  copy: {type: postgres, from: named, url: "${SHOP_URL}", table: copy}
"""


class Shop:
    """A pipeline over a database of its own."""

    def __init__(self, session: ps.Session, server: Postgres, folder: Path) -> None:
        self.session = session
        self.server = server
        self.name = f"shop{uuid.uuid4().hex[:8]}"
        self.folder = folder
        self.file = folder / "shop.yaml"
        self.url = server.new_database()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY)")
            connection.execute("CREATE TABLE customers (id BIGINT PRIMARY KEY, name TEXT)")
            connection.execute("INSERT INTO orders VALUES (1)")
            connection.execute("INSERT INTO customers VALUES (1, 'Ann')")

    def write(self, text: str) -> None:
        self.file.write_text(f"name: {self.name}\ncheckpoint: {self.folder / 'state'}\n{text}")

    @contextmanager
    def running(self, said: list[str]) -> Iterator[None]:
        plan = plan_pipeline(self.session, load(self.file), runs=True)
        run = PipelineRun(self.session, plan, say=said.append)
        run.start()
        try:
            yield
        finally:
            run.stop()
        assert run.wait() is None

    def copied(self) -> dict[int, str]:
        if self.server.execute("SELECT to_regclass('copy') IS NULL", self.url)[0][0]:
            return {}
        return dict(self.server.execute("SELECT id, name FROM copy", self.url))

    def slots(self) -> set[str]:
        query = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        return {
            name.removeprefix(f"penstock_{self.name}_") for (name,) in self.server.execute(query, self.url)
        }

    def publications(self) -> int:
        return int(self.server.execute("SELECT count(*) FROM pg_publication", self.url)[0][0])

    def command(self, *words: str) -> int:
        return main(["state", *words])


@pytest.fixture
def shop(
    session: ps.Session, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    @contextmanager
    def embedded(**options: object) -> Iterator[ps.Session]:
        yield session

    monkeypatch.setattr("penstock.cli.process.embedded", embedded)
    monkeypatch.delenv("PENSTOCK_POSTGRES_URL", raising=False)
    shop = Shop(session, postgres, tmp_path)
    monkeypatch.setenv("SHOP_URL", shop.url)
    yield shop
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active"
        )


def told(capsys: pytest.CaptureFixture[str], shop: Shop) -> dict[str, Any]:
    """What `penstock plan` says about each node."""
    capsys.readouterr()
    assert main(["plan", str(shop.file), "--output", "json"]) == 0
    return {row["node"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}


def test_the_slot_of_a_source_that_is_gone_is_dropped_while_the_pipeline_runs(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.write(BOTH)
    first: list[str] = []
    with shop.running(first):
        wait_for(lambda: shop.copied() == {1: "Ann"}, "the snapshot", seconds=120)
    assert not any("is not read any more" in text for text in first)
    assert shop.slots() == {"orders", "customers"}

    shop.write(ONE)
    command = f"penstock state reset {shop.name} --source customers"
    reason = told(capsys, shop)["customers"]["reason"]
    assert f"the replication slot penstock_{shop.name}_customers at 127.0.0.1:" in reason
    assert reason.endswith(f"stays until {command}")
    said: list[str] = []
    with shop.running(said):
        wait_for(lambda: shop.copied() == {1: "nobody"}, "the other query", seconds=120)
        [text] = [text for text in said if "is not read any more" in text]
        assert text.endswith(f"and the server keeps its log for it: {command} removes it")
        assert shop.slots() == {"orders", "customers"}
        assert told(capsys, shop)["customers"]["state"] == "left"
        assert shop.command("reset", shop.name, "--source", "orders", "--yes") == 2
        assert "was a source of" in capsys.readouterr().err
        assert shop.command("reset", shop.name, "--source", "customers", "--yes") == 0
        assert f"removed the replication slot penstock_{shop.name}_customers" in capsys.readouterr().out
        assert shop.slots() == {"orders"}
        assert shop.publications() == 1
        shop.server.execute("INSERT INTO orders VALUES (2)", shop.url)
        wait_for(lambda: shop.copied() == {1: "nobody", 2: "nobody"}, "a row of the source that stays")
    assert "customers" not in told(capsys, shop)
    assert shop.command("reset", shop.name, "--source", "customers", "--yes") == 2
    assert "has left nothing" in capsys.readouterr().err


def test_a_reset_drops_what_is_left_too(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(ONE)
    with shop.running([]):
        wait_for(lambda: shop.slots() == {"orders"}, "the slot", seconds=120)
    # The same table through another slot: the first one is of no use any more.
    other = f"other_{shop.name}"
    shop.write(ONE.replace("table: orders}", f"table: orders, slot: {other}}}"))
    with shop.running([]):
        wait_for(lambda: shop.slots() == {"orders", other}, "the other slot", seconds=120)
    # Nothing says how to get in: what is there stays known.
    monkeypatch.delenv("SHOP_URL")
    assert shop.command("reset", shop.name, "--yes") == 0
    said = capsys.readouterr().err
    assert said.count("may still be there: the variable SHOP_URL is not set") == 2
    assert shop.slots() == {"orders", other}
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", shop.url)
    assert shop.command("reset", shop.name, "--yes") == 0
    out, err = capsys.readouterr()
    assert other in out
    assert err == ""
    assert shop.slots() == set()
    assert shop.publications() == 0
