"""The pipelines of `examples/pipelines/` run as they are, and have what follows from their input; so do the mistakes that people make in them."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

import penstock as ps
from penstock.cli.main import main
from penstock.pipeline.load import load
from penstock.pipeline.run import PipelineRun, plan_pipeline
from penstock.spark import catalogs
from servers.clickhouse import ClickHouse
from servers.http_service import HttpService
from servers.kafka import Broker
from servers.postgres import Postgres
from waiting import wait_for

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "pipelines").glob("*.yaml"))
DATA = ROOT / "examples" / "data"
ORDERS: list[dict[str, Any]] = pq.read_table(DATA / "orders.parquet").to_pylist()
PRODUCTS = [json.loads(line) for line in (DATA / "products.json").read_text().splitlines()]
JSON_LINES = ("type: print", "type: print, format: json, rows: 100000")
"""The terminal shows a thousand rows as a table; the judge reads all of them."""


@dataclass(frozen=True)
class Recipe:
    """An example under a name of its own, with its checkpoint in the folder of the test."""

    folder: Path

    def write(self, name: str, *changes: tuple[str, str]) -> Path:
        """Copy an example, with words of it replaced."""
        text = (ROOT / "examples" / "pipelines" / f"{name}.yaml").read_text()
        own = f"name: {name}-{uuid.uuid4().hex[:8]}\ncheckpoint: {self.folder / 'checkpoint'}\n"
        for old, new in ((f"name: {name}\n", own), *changes):
            assert old in text, f"{name} has no {old!r}"
            text = text.replace(old, new)
        file = self.folder / f"{name}.yaml"
        file.write_text(text)
        return file


@pytest.fixture
def recipe(session: ps.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Examples that the command line runs in this process, in the session of all tests."""

    @contextmanager
    def embedded(**options: object) -> Iterator[ps.Session]:
        yield session

    monkeypatch.setattr("penstock.cli.process.embedded", embedded)
    monkeypatch.chdir(ROOT)
    return Recipe(tmp_path)


@contextmanager
def running(session: ps.Session, file: Path) -> Iterator[PipelineRun]:
    """A pipeline that follows its sources until the body is done."""
    run = PipelineRun(session, plan_pipeline(session, load(file), runs=True))
    run.start()
    with ThreadPoolExecutor(1) as threads:
        # A history is followed by its live source while somebody waits.
        ended = threads.submit(run.wait)
        try:
            yield run
        finally:
            run.stop()
    assert ended.result() is None


def printed(capsys: pytest.CaptureFixture[str], file: Path) -> list[dict[str, Any]]:
    """Run a pipeline to its end, and return the rows that it prints."""
    capsys.readouterr()
    code = main(["run", str(file)])
    out, err = capsys.readouterr()
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def totals(
    rows: list[dict[str, Any]], key: Callable[[dict[str, Any]], Any]
) -> dict[Any, tuple[int, Decimal]]:
    """Number and sum of the amounts of the rows of each key."""
    result: dict[Any, tuple[int, Decimal]] = {}
    for row in rows:
        count, total = result.get(key(row), (0, Decimal(0)))
        result[key(row)] = (count + 1, total + row["amount"])
    return result


def json_lines(folder: Path) -> list[dict[str, Any]]:
    """The rows of all files in a folder."""
    return [json.loads(line) for part in folder.glob("*.json") for line in part.read_text().splitlines()]


def by_id(rows: list[dict[str, Any]], name: str) -> dict[Any, dict[str, Any]]:
    """Rows by their key, which none of them shares with another."""
    result = {row[name]: row for row in rows}
    assert len(result) == len(rows)
    return result


def test_large_transactions(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    rows = by_id(printed(capsys, recipe.write("large-transactions", JSON_LINES)), "customer_id")
    large = totals([row for row in ORDERS if row["amount"] > 150], lambda row: row["customer_id"])
    assert {key: (row["orders"], Decimal(str(row["total"]))) for key, row in rows.items()} == large
    assert {row["_op"] for row in rows.values()} == {"i"}


def test_top_stores(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    rows = printed(capsys, recipe.write("top-stores", JSON_LINES))
    revenue = {store: total for store, (_, total) in totals(ORDERS, lambda row: row["store_id"]).items()}
    best = sorted(revenue, key=lambda store: -revenue[store])[:3]
    assert {row["store_id"]: Decimal(str(row["revenue"])) for row in rows} == {
        store: revenue[store] for store in best
    }


def test_reshape(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    rows = printed(capsys, recipe.write("reshape", JSON_LINES))
    assert by_id(rows, "order_id") == {
        row["order_id"]: {
            "order_id": row["order_id"],
            "customer": f"c{row['customer_id']}",
            "cents": int(row["amount"] * 100),
            "day": f"{row['ordered_at']:%Y-%m-%d}",
        }
        for row in ORDERS
        if row["quantity"] >= 4
    }


def test_history(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    rows = printed(capsys, recipe.write("history", JSON_LINES))
    versions = {(row["product_id"], row["valid_from"][:10]): row for row in rows}
    assert {key: (str(row["price"]), (row.get("valid_to") or "")[:10]) for key, row in versions.items()} == {
        (1, "2026-01-01"): ("2.4", "2026-04-01"),
        (1, "2026-04-01"): ("2.6", ""),
        (2, "2026-01-01"): ("3.6", "2026-07-01"),
    }


def test_hourly_windows(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    file = recipe.write("hourly-windows")
    hours = totals(ORDERS, lambda row: row["ordered_at"].replace(minute=0, second=0, microsecond=0))
    # The second run finds nothing new, and writes nothing.
    for _ in range(2):
        assert main(["run", str(file)]) == 0
        rows = json_lines(tmp_path / "out")
        assert {
            datetime.fromisoformat(row["hour"]).astimezone(UTC): (row["orders"], Decimal(str(row["revenue"])))
            for row in rows
        } == hours
        assert len(rows) == len(hours)


def test_quality(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, letters = tmp_path / "out", tmp_path / "letters"
    monkeypatch.setenv("OUT", str(out))
    monkeypatch.setenv("DEAD_LETTERS", str(letters))
    assert main(["run", str(recipe.write("quality"))]) == 0
    passed = [row for part in out.glob("*.parquet") for row in pq.read_table(part).to_pylist()]
    assert sorted(row["order_id"] for row in passed) == [
        row["order_id"] for row in ORDERS if row["amount"] < 250
    ]
    kept = json_lines(letters)
    assert len(kept) == sum(row["amount"] >= 250 for row in ORDERS) > 0
    assert all("is_affordable" in json.dumps(letter) for letter in kept)


def test_membership(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    with HttpService() as service:
        monkeypatch.setenv("WEBHOOK_URL", service.url)
        assert main(["run", str(recipe.write("membership"))]) == 0
        posted = [row for body in service.bodies for row in (body if isinstance(body, list) else [body])]
    good = {row["customer_id"] for row in ORDERS if row["amount"] > 200}
    assert sorted(row["order_id"] for row in posted) == [
        row["order_id"] for row in ORDERS if row["customer_id"] in good
    ]


def test_revenue_by_category(recipe: Recipe, postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres.new_database()
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", url)
    monkeypatch.setenv("REVENUE_TABLE", "revenue")
    category = {product["product_id"]: product["category"] for product in PRODUCTS}
    expected = totals(
        [row for row in ORDERS if row["product_id"] in category], lambda row: category[row["product_id"]]
    )
    file = recipe.write("revenue-by-category")
    for _ in range(2):
        assert main(["run", str(file)]) == 0
        rows = postgres.execute("SELECT category, orders, revenue FROM revenue", url)
        assert {key: (count, total) for key, count, total in rows} == expected


def test_postgres_to_postgres(
    session: ps.Session, recipe: Recipe, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_database()
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", url)
    postgres.execute("CREATE TABLE orders (id bigint PRIMARY KEY, customer text, amount numeric(10, 2))", url)
    postgres.execute("INSERT INTO orders SELECT i, 'c' || i % 3, i FROM generate_series(1, 30) i", url)

    def expected() -> list[tuple[Any, ...]]:
        return postgres.execute(
            "SELECT customer, count(*), sum(amount) FROM orders GROUP BY customer ORDER BY customer", url
        )

    def result() -> list[tuple[Any, ...]]:
        there = postgres.execute("SELECT to_regclass('order_totals') IS NOT NULL", url)
        if there != [(True,)]:
            return []
        return postgres.execute("SELECT customer, orders, total FROM order_totals ORDER BY customer", url)

    with running(session, recipe.write("postgres-to-postgres")):
        wait_for(lambda: result() == expected(), "the snapshot")
        postgres.execute("UPDATE orders SET customer = 'c9', amount = 7.50 WHERE id <= 4", url)
        postgres.execute("DELETE FROM orders WHERE customer = 'c1'", url)
        postgres.execute("INSERT INTO orders VALUES (31, 'c2', 1.25)", url)
        wait_for(lambda: result() == expected(), "the changes")
        assert [customer for customer, *_ in result()] == ["c0", "c2", "c9"]


def test_kafka_to_clickhouse(
    session: ps.Session,
    recipe: Recipe,
    kafka: Broker,
    clickhouse: ClickHouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, topic = clickhouse.new_database(), kafka.new_topic(partitions=2)
    monkeypatch.setenv("PENSTOCK_KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("PENSTOCK_CLICKHOUSE_URL", url)
    monkeypatch.setenv("TOPIC", topic)
    monkeypatch.setenv("TABLE", "large")
    sent: list[dict[str, Any]] = [
        {"id": number, "amount": number * 10.5, "country": f"c{number % 5}"} for number in range(200)
    ]
    expected = {row["id"]: (row["amount"], row["country"]) for row in sent if row["amount"] > 1000}

    def send(rows: list[dict[str, Any]]) -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for row in rows:
            producer.produce(topic, json.dumps(row).encode(), partition=row["id"] % 2)
        producer.flush()

    def result() -> dict[int, tuple[float, str]]:
        if not clickhouse.execute("EXISTS TABLE large", url)[0]["result"]:
            return {}
        rows = clickhouse.execute("SELECT id, amount, country FROM large FINAL", url)
        return {int(row["id"]): (row["amount"], row["country"]) for row in rows}

    began = datetime.now(UTC).replace(microsecond=0)
    file = recipe.write("kafka-to-clickhouse")
    with running(session, file):
        send(sent[:150])
        wait_for(lambda: result() == {key: row for key, row in expected.items() if key < 150}, "rows")
    send(sent[150:])
    with running(session, file):
        wait_for(lambda: result() == expected, "rows after a second start")
    # The time at which a batch was processed, and not that at which the pipeline was planned.
    times = clickhouse.execute(
        "SELECT toUnixTimestamp(min(ingested_at)) AS first, count(DISTINCT ingested_at) AS different FROM large",
        url,
    )[0]
    assert int(times["first"]) >= began.timestamp()
    assert int(times["different"]) >= 2


def test_postgres_to_iceberg(
    session: ps.Session,
    recipe: Recipe,
    postgres: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, lake = postgres.new_database(), f"lake_{uuid.uuid4().hex[:12]}"
    options = {"type": "hadoop", "warehouse": str(tmp_path / "lake")}
    for name, value in catalogs.conf_of(lake, options).items():
        session.spark.conf.set(name, value)
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", url)
    monkeypatch.setenv("LAKE_TABLE", f"{lake}.shop.orders")
    postgres.execute("CREATE TABLE orders (id bigint PRIMARY KEY, customer text)", url)
    postgres.execute("INSERT INTO orders SELECT i, 'c' || i % 3 FROM generate_series(1, 30) i", url)

    def result() -> list[tuple[Any, ...]]:
        if not session.spark.catalog.tableExists(f"{lake}.shop.orders"):
            return []
        rows = session.spark.sql(f"SELECT id, customer FROM {lake}.shop.orders ORDER BY id").collect()
        return [tuple(row) for row in rows]

    def expected() -> list[tuple[Any, ...]]:
        return postgres.execute("SELECT id, customer FROM orders ORDER BY id", url)

    with running(session, recipe.write("postgres-to-iceberg")):
        wait_for(lambda: result() == expected(), "the snapshot")
        postgres.execute("UPDATE orders SET customer = 'c9' WHERE id <= 4", url)
        postgres.execute("DELETE FROM orders WHERE customer = 'c1'", url)
        wait_for(lambda: result() == expected(), "the changes")


def test_clickhouse_then_kafka(
    session: ps.Session,
    recipe: Recipe,
    clickhouse: ClickHouse,
    kafka: Broker,
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, topic = postgres.new_database(), kafka.new_topic(partitions=1)
    history = clickhouse.new_database()
    addresses = {
        "postgres_url": url,
        "clickhouse_url": history,
        "kafka_bootstrap_servers": kafka.bootstrap_servers,
    }
    for name, address in addresses.items():
        monkeypatch.setenv(f"PENSTOCK_{name.upper()}", address)
    # The parts of a hybrid source are read with the settings of the session, which is that of all tests.
    monkeypatch.setattr(session, "settings", replace(session.settings, **addresses))
    monkeypatch.setenv("TOPIC", topic)
    clickhouse.execute("CREATE TABLE orders (id Int64, customer String, amount Float64) ORDER BY id", history)
    clickhouse.execute(
        "INSERT INTO orders SELECT number, concat('c', toString(number % 3)), number FROM numbers(1, 30)",
        history,
    )
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def send(first: int, last: int) -> None:
        for number in range(first, last + 1):
            row = {"id": number, "customer": f"c{number % 3}", "amount": float(number)}
            producer.produce(topic, json.dumps(row).encode())
        producer.flush()

    def expected(last: int) -> list[tuple[Any, ...]]:
        groups = [[number for number in range(1, last + 1) if number % 3 == rest] for rest in range(3)]
        return [(f"c{rest}", len(group), float(sum(group))) for rest, group in enumerate(groups)]

    def result() -> list[tuple[Any, ...]]:
        there = postgres.execute("SELECT to_regclass('order_totals') IS NOT NULL", url)
        if there != [(True,)]:
            return []
        return postgres.execute("SELECT customer, orders, total FROM order_totals ORDER BY customer", url)

    # The topic has rows that are in the history too.
    send(21, 40)
    with running(session, recipe.write("clickhouse-then-kafka")):
        wait_for(lambda: result() == expected(40), "the history and the rows beyond it")
        send(41, 50)
        wait_for(lambda: result() == expected(50), "rows that come later")


def test_the_rows_of_every_example_are_judged() -> None:
    judged = set(re.findall(r'recipe\.write\("([\w-]+)"', Path(__file__).read_text(encoding="utf-8")))
    assert judged >= {file.stem for file in EXAMPLES}


@pytest.mark.parametrize("name", [file.stem for file in EXAMPLES if "\ntests:" in file.read_text()])
def test_the_tests_of_an_example_pass(
    name: str, recipe: Recipe, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sinks are not written, so that nobody need answer here.
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", "postgresql://nobody@127.0.0.1:9/nothing")
    assert main(["test", str(recipe.write(name))]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("ok ")
    assert "1 passed, 0 failed" in err


def test_a_test_that_fails_says_how_the_rows_differ(
    recipe: Recipe, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recipe.write("large-transactions", ("orders: 1, total: 192", "orders: 1, total: 194"))
    assert main(["test", str(file)]) == 1
    out, _ = capsys.readouterr()
    assert "~ customer_id=7: total: expected 194.0, got 192.0" in out


def test_a_preview_of_each_node(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    file = recipe.write("large-transactions")
    for node, rows in {
        "orders": ORDERS,
        "large_orders": [row for row in ORDERS if row["amount"] > 150],
    }.items():
        assert main(["preview", str(file), "--node", node, "--limit", "5", "--output", "json"]) == 0
        shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert len(shown) == 5
        assert {row["order_id"] for row in shown} <= {row["order_id"] for row in rows}
    assert main(["preview", str(file), "--node", "large_order"]) == 2
    assert "did you mean 'large_orders'?" in capsys.readouterr().err


def test_a_dry_run_shows_types_and_leaves_nothing(
    recipe: Recipe, postgres: Postgres, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_database()
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", url)
    file = recipe.write("revenue-by-category")
    assert main(["dry-run", str(file), "--output", "json"]) == 0
    nodes = {row["node"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert list(nodes) == ["orders", "products", "revenue", "out"]
    assert "revenue decimal(20,2)" in nodes["revenue"]["columns"]
    assert nodes["out"]["guarantee"] == "exactly once"
    assert postgres.execute("SELECT relname FROM pg_stat_user_tables", url) == []
    assert not (recipe.folder / "checkpoint").exists()


def test_a_second_file_of_the_same_name(
    recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"twice-{uuid.uuid4().hex[:8]}"
    files = []
    for number in (1, 2):
        folder = tmp_path / f"folder-{number}"
        folder.mkdir()
        (folder / "in.json").write_text(f'{{"id": {number}}}\n')
        source = f"{{type: file, path: '{folder}/*.json', schema: {{id: int64}}}}"
        sink = f"{{type: file, from: a, format: json, path: '{folder}/out'}}"
        files.append(folder / f"{name}.yaml")
        files[-1].write_text(f"sources: {{a: {source}}}\nsinks: {{b: {sink}}}\n")
    first, second = files
    assert main(["run", str(first)]) == 0
    for command in ("run", "plan"):
        said = refused(capsys, command, second)
        assert f"'{name}' is the name of the pipeline in {first}" in said
        assert f"penstock run {second} --moved" in said
    assert not (second.parent / "out").exists()
    # The first one goes on, and so does the second where it takes its place: another path, that is read from its beginning.
    assert main(["run", str(first)]) == 0
    assert "nothing new" in capsys.readouterr().err
    assert main(["plan", str(second), "--moved"]) == 0
    assert "another path" in capsys.readouterr().out
    assert main(["run", str(second), "--moved", "--yes"]) == 0
    assert main(["run", str(second)]) == 0
    assert f"'{name}' is the name of the pipeline in {second}" in refused(capsys, "run", first)
    # A file that is moved goes on by itself.
    moved = second.rename(first.parent / "moved.yaml")
    moved.write_text(f"name: {name}\n{moved.read_text()}")
    first.unlink()
    capsys.readouterr()
    assert main(["run", str(moved)]) == 0
    assert "nothing new" in capsys.readouterr().err


def refused(capsys: pytest.CaptureFixture[str], command: str, file: Path) -> str:
    """What a command says that ends with a mistake of the user's, or with a server that refuses."""
    capsys.readouterr()
    code = main([command, str(file)])
    out, err = capsys.readouterr()
    assert code in (1, 2), err
    assert out == ""
    assert "Traceback" not in err
    assert "this is not expected" not in err
    return err


def test_a_wrong_column_has_its_place_in_the_file(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    file = recipe.write("large-transactions", ("WHERE amount > 150", "WHERE amuont > 150"))
    said = refused(capsys, "dry-run", file)
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "amuont" in text)
    assert "no column 'amuont'" in said
    assert f"  at: {file}:{line}:" in said
    assert ", line 1, column 28\n    SELECT * FROM orders WHERE amuont > 150\n" in said
    assert "did you mean 'amount'?" in said


def test_a_wrong_column_in_sql_of_several_lines(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    file = recipe.write("revenue-by-category", ("GROUP BY category", "GROUP BY categry"), POSTGRES_TO_PRINT)
    said = refused(capsys, "dry-run", file)
    assert "no column 'categry'" in said
    assert f"  at: {file}:12:5, view 'revenue', line 3, column 10\n    GROUP BY categry\n" in said
    assert "did you mean 'products.category'?" in said


POSTGRES_TO_PRINT = (
    'type: postgres, from: revenue, table: "${REVENUE_TABLE:-revenue_by_category}"',
    "type: print, from: revenue",
)


def test_an_aggregate_in_sql_is_advised_to_be_a_view(
    recipe: Recipe, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recipe.write("revenue-by-category", ("type: view", "type: sql"), POSTGRES_TO_PRINT)
    said = refused(capsys, "dry-run", file)
    assert "type: view" in said
    assert f"{file}:" in said


def test_a_topic_that_is_not_there(
    recipe: Recipe,
    kafka: Broker,
    clickhouse: ClickHouse,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("PENSTOCK_CLICKHOUSE_URL", clickhouse.new_database())
    monkeypatch.setenv("TOPIC", "transactoins")
    file = recipe.write("kafka-to-clickhouse")
    for command in ("dry-run", "run"):
        said = refused(capsys, command, file)
        # What comes from the environment is never shown.
        assert "no such topic: ***" in said


def test_a_wrong_password_is_not_shown(
    recipe: Recipe, postgres: Postgres, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_database().replace(":secret@", ":s3cr3t-w0rd@")
    monkeypatch.setenv("PENSTOCK_POSTGRES_URL", url)
    for name in ("postgres-to-postgres", "revenue-by-category"):
        for command in ("dry-run", "run"):
            said = refused(capsys, command, recipe.write(name))
            assert "s3cr3t-w0rd" not in said
            assert "password" in said


def test_a_variable_that_is_not_set(
    recipe: Recipe, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_POSTGRES_URL", raising=False)
    said = refused(capsys, "run", recipe.write("postgres-to-postgres"))
    assert "PENSTOCK_POSTGRES_URL" in said


def test_what_comes_from_the_environment_is_not_in_the_log_nor_in_the_state(
    session: ps.Session, recipe: Recipe, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORD", "t0p-s3cret")
    monkeypatch.setenv("OUT", str(recipe.folder / "out"))
    broken = "count(*) AS orders, max(raise_error('${WORD} is broken')) AS word,"
    file = recipe.write("hourly-windows", ("count(*) AS orders,", broken))
    assert main(["run", str(file)]) == 1
    said = capsys.readouterr().err
    name = load(file).name
    assert main(["jobs", "show", name, "--output", "json"]) == 0
    job = capsys.readouterr().out
    log = Path(json.loads(job)["log"]).read_text()
    for text in (said, job, log):
        assert "*** is broken" in text
        assert "t0p-s3cret" not in text
    assert Path(json.loads(job)["checkpoint"]).is_relative_to(recipe.folder)
    files = [file for file in recipe.folder.rglob("*") if file.is_file()]
    queries = [file for file in files if b"raise_error" in file.read_bytes()]
    assert {file.name for file in queries} >= {"stage.json"}
    assert [file for file in files if b"t0p-s3cret" in file.read_bytes()] == []


def test_a_view_is_made_again_when_a_variable_in_it_has_another_value(
    recipe: Recipe, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = ("FROM large_orders GROUP BY", "FROM large_orders WHERE store_id < ${BEFORE} GROUP BY")
    file = recipe.write("large-transactions", JSON_LINES, query)
    monkeypatch.setenv("BEFORE", "0002")
    first = by_id(printed(capsys, file), "customer_id")
    monkeypatch.setenv("BEFORE", "0003")
    second = printed(capsys, file)
    assert second
    now = {**first, **{row["customer_id"]: row for row in second}}
    large = [row for row in ORDERS if row["amount"] > 150 and row["store_id"] < 3]
    expected = totals(large, lambda row: row["customer_id"])
    shown = {key: (row["orders"], Decimal(str(row["total"]))) for key, row in now.items()}
    assert shown == expected
