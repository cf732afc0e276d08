"""The example of every node type runs as a pipeline against real servers, and its sink has what follows from the input."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import penstock as ps
from penstock.errors import PenstockError
from penstock.pipeline.node_type import BUILT_IN
from penstock.pipeline.run import PipelinePlan, PipelineRun, plan_pipeline
from penstock.sinks.memory import MemorySink
from penstock.spark import catalogs
from pipeline_text import load
from servers.clickhouse import ClickHouse
from servers.http_service import HttpService
from servers.kafka import Broker
from servers.postgres import Postgres
from waiting import wait_for

ROOT = Path(__file__).parents[2]
DATA = ROOT / "examples" / "data"
Row = dict[str, Any]
ORDERS: list[Row] = pq.read_table(DATA / "orders.parquet").to_pylist()
PRODUCTS: list[Row] = [json.loads(line) for line in (DATA / "products.json").read_text().splitlines()]


@dataclass
class Site:
    """Servers with places of the example's own, a folder in which it runs, and what it has printed."""

    session: ps.Session
    folder: Path
    kafka: Broker
    postgres: Postgres
    clickhouse: ClickHouse
    service: HttpService
    postgres_url: str
    clickhouse_url: str
    topic: str
    lake: str
    capture: pytest.CaptureFixture[str]
    lines: list[str] = field(default_factory=list)
    lake_versions: list[Path] = field(default_factory=list)
    lake_answer: list[tuple[Any, ...]] = field(default_factory=list)
    plan: PipelinePlan | None = None
    run: PipelineRun | None = None

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return self.postgres.execute(statement, self.postgres_url)

    def rows_of(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        """The rows of a PostgreSQL table in order; none when the sink has not created it yet."""
        if self.sql(f"SELECT to_regclass('{table}')") == [(None,)]:
            return []
        return self.sql(f"SELECT {columns} FROM {table} ORDER BY 1")

    def send(self, *records: Row, op: str | None = None) -> None:
        """Records of the topic, with what they do in a header."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers})
        for record in records:
            headers: list[tuple[str, str | bytes | None]] = [] if op is None else [("dbz.op", op)]
            producer.produce(
                self.topic, json.dumps(record).encode(), key=str(record["order_id"]), headers=headers
            )
        assert producer.flush(30) == 0

    def messages(self) -> list[tuple[str, Row]]:
        """The records of the topic that readers see, with their keys."""
        settings: dict[str, str | bool] = {
            "bootstrap.servers": self.kafka.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        consumer = Consumer(settings)
        result: list[tuple[str, Row]] = []
        try:
            consumer.assign([TopicPartition(self.topic, 0, 0)])
            while True:
                for message in consumer.consume(500, timeout=0.1):
                    if message.error() is not None:
                        return result
                    key, value = message.key(), message.value()
                    assert isinstance(key, bytes)
                    assert isinstance(value, bytes)
                    result.append((key.decode(), json.loads(value)))
        finally:
            consumer.close()

    def printed(self) -> list[Row]:
        self.lines += self.capture.readouterr().out.splitlines()
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    def files(self, folder: str) -> list[Row]:
        """The rows of all Parquet files in a folder, by their ids."""
        rows = [
            row
            for part in (self.folder / folder).glob("*.parquet")
            for row in pq.read_table(part).to_pylist()
        ]
        return sorted(rows, key=lambda row: row["order_id"])

    def lake_rows(self) -> list[tuple[Any, ...]]:
        """The rows of the table in the lake, asked of Spark when there is a new version of it."""
        versions = sorted((self.folder / "lake").rglob("*.metadata.json"))
        if versions != self.lake_versions:
            frame = self.session.spark.sql(f"SELECT * FROM {self.lake}.shop.orders ORDER BY 1")
            self.lake_versions, self.lake_answer = versions, [tuple(row) for row in frame.collect()]
        return self.lake_answer


Steps = Iterator[tuple[Callable[[], Any], Any]]
"""Each step prepares something, and gives what is to be looked at and what is to be there then; the pipeline starts after the first."""


def orders_table(site: Site, schema: str = "public") -> Callable[[], list[tuple[Any, ...]]]:
    """A table of orders in PostgreSQL, and how to read it."""
    site.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    site.sql(
        f"CREATE TABLE {schema}.orders (order_id bigint PRIMARY KEY, customer_id bigint, amount numeric(10, 2))"
    )
    site.sql(f"INSERT INTO {schema}.orders SELECT i, i % 3, i * 20 FROM generate_series(1, 20) i")
    return lambda: site.sql(f"SELECT * FROM {schema}.orders ORDER BY 1")


def change_orders(site: Site, schema: str = "public") -> None:
    site.sql(f"UPDATE {schema}.orders SET customer_id = 7, amount = 1.50 WHERE order_id <= 4")
    site.sql(f"DELETE FROM {schema}.orders WHERE customer_id = 2")
    site.sql(f"INSERT INTO {schema}.orders VALUES (21, 0, 3.25)")


def clickhouse_orders(site: Site, count: int) -> list[Row]:
    site.clickhouse.execute(
        "CREATE TABLE orders (order_id Int64, amount Float64, note String) ENGINE = MergeTree ORDER BY order_id",
        site.clickhouse_url,
    )
    site.clickhouse.execute(
        f"INSERT INTO orders SELECT number, number * 1.5, 'x' FROM numbers({count})", site.clickhouse_url
    )
    return [{"order_id": number, "amount": number * 1.5} for number in range(count)]


def decimals(rows: list[Row], *names: str) -> list[Row]:
    """Rows with columns that hold decimals as JSON has them."""
    return [{**row, **{name: Decimal(str(row[name])) for name in names}} for row in rows]


def sink_blackhole(site: Site) -> Steps:
    yield lambda: site.run and site.run.rows_read, len(ORDERS)


def sink_clickhouse(site: Site) -> Steps:
    def look() -> dict[int, float]:
        if not site.clickhouse.execute("EXISTS TABLE orders", site.clickhouse_url)[0]["result"]:
            return {}
        rows = site.clickhouse.execute("SELECT order_id, amount FROM orders FINAL", site.clickhouse_url)
        return {int(row["order_id"]): row["amount"] for row in rows}

    site.send(*({"order_id": number, "amount": number / 2} for number in range(20)))
    yield look, {number: number / 2 for number in range(20)}
    site.send({"order_id": 3, "amount": 30.5}, op="u")
    site.send({"order_id": 4}, op="d")
    yield look, {number: 30.5 if number == 3 else number / 2 for number in range(20) if number != 4}


def sink_file(site: Site) -> Steps:
    rows = [{"order_id": number, "amount": number / 2} for number in range(20)]
    site.send(*rows[:15])
    yield lambda: _without_operation(site.files("out/orders")), rows[:15]
    site.send(*rows[15:])
    yield lambda: _without_operation(site.files("out/orders")), rows


def _without_operation(rows: list[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name != "_op"} for row in rows]


def sink_iceberg(site: Site) -> Steps:
    table = orders_table(site)
    yield site.lake_rows, table()
    change_orders(site)
    yield site.lake_rows, table()


def sink_kafka(site: Site) -> Steps:
    def look() -> list[tuple[int, str, Decimal]]:
        messages = site.messages()
        return sorted((row["order_id"], key, Decimal(str(row["amount"]))) for key, row in messages)

    yield look, [(row["order_id"], str(row["order_id"]), row["amount"]) for row in ORDERS]


def sink_memory(site: Site) -> Steps:
    def look() -> list[int]:
        assert site.plan is not None
        [sink] = [plan.sink for group in site.plan.groups for plan in group.sinks]
        assert isinstance(sink, MemorySink)
        return sorted(pa.Table.from_batches(sink.batches())["order_id"].to_pylist())

    yield look, [row["order_id"] for row in ORDERS]


def sink_postgres(site: Site) -> Steps:
    table = orders_table(site)

    def copies() -> list[tuple[Any, ...]]:
        return site.rows_of("copies.orders", "order_id, customer_id, amount")

    yield copies, table()
    change_orders(site)
    yield copies, table()


def sink_postgres_aggregate(site: Site) -> Steps:
    table = orders_table(site)

    def look() -> list[Any]:
        return [
            site.rows_of("totals.orders", "order_id, customer_id, amount"),
            site.rows_of("totals.by_customer", "customer_id, total, orders"),
        ]

    def expected() -> list[Any]:
        sums = "SELECT customer_id, sum(amount), count(*) FROM orders GROUP BY customer_id ORDER BY 1"
        return [table(), site.sql(sums)]

    yield look, expected()
    change_orders(site)
    yield look, expected()


def sink_print(site: Site) -> Steps:
    yield lambda: [row["value"] for row in site.printed()][:2], [0, 10]


def sink_webhook(site: Site) -> Steps:
    def look() -> list[int]:
        return sorted(row["order_id"] for body in site.service.bodies for row in body)

    yield look, [row["order_id"] for row in ORDERS]
    assert {headers["Authorization"] for headers in site.service.headers} == {"Bearer s3cr3t"}


def source_clickhouse(site: Site) -> Steps:
    rows = clickhouse_orders(site, 200)
    yield lambda: site.files("out"), [row for row in rows if row["amount"] > 100]


def source_file(site: Site) -> Steps:
    def look() -> list[tuple[Any, ...]]:
        rows = decimals(site.printed(), "price")
        return [(row["product_id"], row["price"], row["changed_at"][:10], row["removed"]) for row in rows]

    expected = [
        (1, Decimal("2.4"), "2026-01-01", False),
        (2, Decimal("3.6"), "2026-01-01", False),
        (1, Decimal("2.6"), "2026-04-01", False),
        (2, Decimal("3.6"), "2026-07-01", True),
    ]
    yield look, expected
    change = {"product_id": 3, "price": "6.90", "changed_at": "2026-08-01T00:00:00Z", "removed": True}
    (site.folder / "examples" / "data" / "later.jsonl").write_text(json.dumps(change))
    yield look, [*expected, (3, Decimal("6.9"), "2026-08-01", True)]


def source_hybrid(site: Site) -> Steps:
    clickhouse_orders(site, 20)
    site.send(*({"order_id": number, "amount": number * 1.5} for number in range(15, 25)))

    def look() -> list[tuple[int, float]]:
        return sorted((row["order_id"], row["amount"]) for row in site.printed())

    yield look, [(number, number * 1.5) for number in range(25)]
    site.send({"order_id": 25, "amount": 1.0})
    yield look, [*((number, number * 1.5) for number in range(25)), (25, 1.0)]


def source_iceberg(site: Site) -> Steps:
    spark = site.session.spark
    spark.sql(f"CREATE TABLE {site.lake}.shop.orders (order_id BIGINT, amount DOUBLE) USING iceberg")
    spark.sql(f"INSERT INTO {site.lake}.shop.orders VALUES (1, 1.5), (2, 2.5)")

    def look() -> list[tuple[int, float]]:
        return sorted((row["order_id"], row["amount"]) for row in site.printed())

    yield look, [(1, 1.5), (2, 2.5)]
    spark.sql(f"INSERT INTO {site.lake}.shop.orders VALUES (3, 3.5)")
    yield look, [(1, 1.5), (2, 2.5), (3, 3.5)]


def source_kafka(site: Site) -> Steps:
    def look() -> list[tuple[Any, ...]]:
        return [(row["_op"], row["order_id"], row["amount"]) for row in site.printed()]

    order = {"order_id": 1, "amount": 2.25, "ordered_at": "2026-01-01T10:00:00Z"}
    site.send(order)
    yield look, [("i", 1, 2.25)]
    assert site.printed()[0]["ordered_at"].startswith("2026-01-01T10:00:00")
    site.send({**order, "amount": 3.25}, op="u")
    yield look, [("i", 1, 2.25), ("u", 1, 3.25)]
    site.send(order, op="d")
    yield lambda: [row[:2] for row in look()], [("i", 1), ("u", 1), ("d", 1)]


def source_postgres(site: Site) -> Steps:
    orders_table(site, "shop")
    expected = site.sql("SELECT order_id, amount FROM shop.orders WHERE amount > 100 ORDER BY 1")
    yield lambda: [(row["order_id"], row["amount"]) for row in site.files("out")], expected


def source_postgres_cdc(site: Site) -> Steps:
    orders_table(site, "shop")
    sums = "SELECT customer_id, sum(amount) FROM shop.orders GROUP BY customer_id ORDER BY 1"

    def look() -> list[tuple[Any, ...]]:
        return site.rows_of("totals", "customer_id, total")

    yield look, site.sql(sums)
    change_orders(site, "shop")
    yield look, site.sql(sums)


def source_rate(site: Site) -> Steps:
    yield lambda: sorted(row["value"] for row in site.printed())[:5], [0, 2, 4, 6, 8]


def transform_cdc(site: Site) -> Steps:
    def look() -> dict[Any, Any]:
        return {
            (row["product_id"], row["valid_from"][:10]): (
                Decimal(str(row["price"])),
                (row.get("valid_to") or "")[:10],
            )
            for row in site.printed()
        }

    yield (
        look,
        {
            (1, "2026-01-01"): (Decimal("2.4"), "2026-04-01"),
            (1, "2026-04-01"): (Decimal("2.6"), ""),
            (2, "2026-01-01"): (Decimal("3.6"), "2026-07-01"),
        },
    )


def transform_dedup(site: Site) -> Steps:
    # Orders that come again, later and earlier than they were.
    first = pq.read_table(DATA / "orders.parquet").slice(0, 6)
    times = first["ordered_at"].to_pylist()
    changed = [time.replace(year=2027 if number % 2 else 2025) for number, time in enumerate(times)]
    again = first.set_column(
        first.schema.get_field_index("ordered_at"), "ordered_at", pa.array(changed, first["ordered_at"].type)
    )
    whole = pa.concat_tables([pq.read_table(DATA / "orders.parquet"), again])
    pq.write_table(whole, site.folder / "examples" / "data" / "orders.parquet")
    newest = {row["order_id"]: f"{row['ordered_at']:%Y-%m-%d}" for row in ORDERS}
    newest |= {number: f"{changed[number - 1]:%Y-%m-%d}" for number in (2, 4, 6)}

    def look() -> dict[int, str]:
        rows = site.printed()
        assert len(rows) == len({row["order_id"] for row in rows})
        return {row["order_id"]: row["ordered_at"][:10] for row in rows}

    yield look, newest


def transform_dynamic_table(site: Site) -> Steps:
    good = {row["customer_id"] for row in ORDERS if row["amount"] > 200}
    expected = [row["order_id"] for row in ORDERS if row["customer_id"] in good]
    yield lambda: sorted(row["order_id"] for row in site.printed()), expected


def transform_expect(site: Site) -> Steps:
    yield (
        lambda: sorted(row["order_id"] for row in site.printed()),
        [row["order_id"] for row in ORDERS if row["amount"] < 250],
    )
    letters = [
        json.loads(line)
        for part in (site.folder / "dead-letters").glob("*.json")
        for line in part.read_text().splitlines()
    ]
    assert sorted(json.loads(letter["row"])["order_id"] for letter in letters) == [
        row["order_id"] for row in ORDERS if row["amount"] >= 250
    ]
    assert all("is_affordable" in letter["reason"] for letter in letters)


def transform_handler(site: Site) -> Steps:
    site.service.respond = lambda rows: [
        {"order_id": row["order_id"], "score": row["quantity"] / 4} for row in rows
    ]
    yield (
        lambda: sorted((row["order_id"], row["score"]) for row in site.printed()),
        [(row["order_id"], row["quantity"] / 4) for row in ORDERS],
    )
    assert max(len(body) for body in site.service.bodies) == 200


def transform_lookup(site: Site) -> Steps:
    site.sql("CREATE TABLE customers (id bigint PRIMARY KEY, name text)")
    site.sql("INSERT INTO customers SELECT i, 'c' || i FROM generate_series(1, 20) i")
    expected = [
        (row["order_id"], f"c{row['customer_id']}" if row["customer_id"] <= 20 else None) for row in ORDERS
    ]
    yield lambda: sorted((row["order_id"], row.get("customer_name")) for row in site.printed()), expected


def transform_script(site: Site) -> Steps:
    yield (
        lambda: sorted((row["order_id"], row["customer"], row["cents"]) for row in site.printed()),
        [
            (row["order_id"], f"c{row['customer_id']}", int(row["amount"] * 100))
            for row in ORDERS
            if row["quantity"] >= 4
        ],
    )


def transform_sql(site: Site) -> Steps:
    yield (
        lambda: sorted((row["order_id"], row["amount"]) for row in decimals(site.printed(), "amount")),
        [(row["order_id"], row["amount"]) for row in ORDERS if row["amount"] > 100],
    )
    assert len({row["processed_at"] for row in site.printed()}) == 1


def transform_view(site: Site) -> Steps:
    category = {product["product_id"]: product["category"] for product in PRODUCTS}
    revenue: dict[str, Decimal] = {}
    for row in ORDERS:
        if row["product_id"] in category:
            name = category[row["product_id"]]
            revenue[name] = revenue.get(name, Decimal(0)) + row["amount"]
    # Two sources of one view may come in two epochs: the last row of a key counts.
    yield lambda: {row["category"]: row["revenue"] for row in decimals(site.printed(), "revenue")}, revenue


STEPS: dict[str, Callable[[Site], Steps]] = {
    "sink-blackhole": sink_blackhole,
    "sink-clickhouse": sink_clickhouse,
    "sink-file": sink_file,
    "sink-iceberg": sink_iceberg,
    "sink-kafka": sink_kafka,
    "sink-memory": sink_memory,
    "sink-postgres": sink_postgres,
    "sink-postgres_aggregate": sink_postgres_aggregate,
    "sink-print": sink_print,
    "sink-webhook": sink_webhook,
    "source-clickhouse": source_clickhouse,
    "source-file": source_file,
    "source-hybrid": source_hybrid,
    "source-iceberg": source_iceberg,
    "source-kafka": source_kafka,
    "source-postgres": source_postgres,
    "source-postgres_cdc": source_postgres_cdc,
    "source-rate": source_rate,
    "transform-cdc": transform_cdc,
    "transform-dedup": transform_dedup,
    "transform-dynamic_table": transform_dynamic_table,
    "transform-expect": transform_expect,
    "transform-handler": transform_handler,
    "transform-lookup": transform_lookup,
    "transform-script": transform_script,
    "transform-sql": transform_sql,
    "transform-view": transform_view,
}


@pytest.fixture
def site(
    session: ps.Session,
    tmp_path: Path,
    kafka: Broker,
    postgres: Postgres,
    clickhouse: ClickHouse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Site]:
    postgres_url, clickhouse_url = postgres.new_database(), clickhouse.new_database()
    lake = f"lake_{uuid.uuid4().hex[:12]}"
    # A query has a session of its own, with a catalog of its own: what this one has cached would not be what is there.
    options = {"type": "hadoop", "warehouse": str(tmp_path / "lake"), "cache-enabled": "false"}
    for key, value in catalogs.conf_of(lake, options).items():
        session.spark.conf.set(key, value)
    shutil.copytree(DATA, tmp_path / "examples" / "data")
    monkeypatch.chdir(tmp_path)
    servers = kafka.bootstrap_servers
    settings = replace(
        session.settings,
        kafka_bootstrap_servers=servers,
        postgres_url=postgres_url,
        clickhouse_url=clickhouse_url,
    )
    monkeypatch.setattr(session, "settings", settings)
    with HttpService() as service:
        for name, value in {
            "PENSTOCK_KAFKA_BOOTSTRAP_SERVERS": servers,
            "PENSTOCK_POSTGRES_URL": postgres_url,
            "PENSTOCK_CLICKHOUSE_URL": clickhouse_url,
            "WEBHOOK_URL": service.url,
            "WEBHOOK_TOKEN": "s3cr3t",
            "SCORES_URL": service.url,
        }.items():
            monkeypatch.setenv(name, value)
        yield Site(
            session,
            tmp_path,
            kafka,
            postgres,
            clickhouse,
            service,
            postgres_url,
            clickhouse_url,
            kafka.new_topic(),
            lake,
            capsys,
        )


def written(site: Site, name: str) -> Path:
    """The example with a name and a checkpoint of its own, and places on servers that no other test uses."""
    text = (ROOT / "examples" / "nodes" / f"{name}.yaml").read_text()
    for old, new in {
        "topic: orders": f"topic: {site.topic}",
        "lake.shop": f"{site.lake}.shop",
        "type: print": "type: print, format: json, rows: 100000",
    }.items():
        text = text.replace(old, new)
    head = (
        f"name: {name}-{uuid.uuid4().hex[:8]}\ncheckpoint: '{site.folder / 'checkpoint'}'\ntrigger: 100 ms\n"
    )
    file = site.folder / f"{name}.yaml"
    file.write_text(head + text)
    return file


@pytest.mark.parametrize("name", STEPS)
def test_an_example_runs(name: str, site: Site) -> None:
    steps = STEPS[name](site)
    look, expected = next(steps)
    site.plan = plan_pipeline(site.session, load(written(site, name)), runs=True)
    run = site.run = PipelineRun(site.session, site.plan)
    ended: list[PenstockError | None] = []
    run.start()
    thread = threading.Thread(target=lambda: ended.append(run.wait()))
    thread.start()
    try:
        if site.plan.is_bounded:
            thread.join()
            assert (ended, look()) == ([None], expected)
            assert next(steps, None) is None
            return
        following: tuple[Callable[[], Any], Any] | None = (look, expected)
        while following is not None:
            look, expected = following
            with suppress(AssertionError):
                wait_for(lambda: ended or look() == expected)  # noqa: B023  # called at once
            assert (ended, look()) == ([], expected)
            following = next(steps, None)
    finally:
        run.stop()
        thread.join()
    assert ended == [None]


def test_every_type_has_an_example_that_runs() -> None:
    assert {f"{kind}-{name}" for kind, registry in BUILT_IN.items() for name in registry.builtin} == set(
        STEPS
    )
    assert {file.stem for file in (ROOT / "examples" / "nodes").glob("*.yaml")} == set(STEPS)
