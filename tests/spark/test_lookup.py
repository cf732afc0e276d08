"""Rows with values that are looked up in PostgreSQL, over HTTP and in files."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock import config
from penstock.errors import ConfigError, ConnectorError, DataError, PenstockError
from penstock.pipeline.transforms.lookup import LookupNode
from penstock.transforms.failure import Split
from penstock.transforms.lookup.options import LookupOptions
from penstock.transforms.lookup.postgres import PostgresBackend
from penstock.transforms.lookup.relation import LookupRelation
from penstock.transforms.lookup.transform import LookupTransform
from servers.postgres import Postgres
from transform_context import context


class Service(ThreadingHTTPServer):
    """Customers by their number, `GET /c/7` or `POST /many`; answers what the test asks for first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[Any] = []
        self.answers: list[tuple[int, str]] = []
        self.customers: dict[str, str] = {}
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_GET(self) -> None:
        key = unquote(self.path.partition("/c/")[2].partition("?")[0])
        self.server.asked.append(key)
        text = self.server.customers.get(key)
        self._answer(*(404, "nobody") if text is None else (200, text))

    def do_POST(self) -> None:
        keys = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(keys)
        texts = [text for key in keys if (text := self.server.customers.get(str(key["id"]))) is not None]
        self._answer(200, f"[{', '.join(texts)}]")

    def _answer(self, status: int, text: str) -> None:
        if self.server.answers:
            status, text = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def customers(postgres: Postgres) -> str:
    """The address of a database with the table `customers`."""
    url = postgres.new_database()
    postgres.execute(
        "CREATE TABLE customers (id bigint, name text, credit numeric(12,2), since timestamptz, tags jsonb, ref uuid)",
        url,
    )
    postgres.execute(
        "INSERT INTO customers SELECT n, 'c' || n, n + 0.25, '2024-02-29 12:30:59.000001+00', '[1]', "
        "lpad(n::text, 32, '0')::uuid FROM generate_series(1, 9) AS n",
        url,
    )
    return url


def _lookup(url: str, **options: Any) -> LookupTransform:
    return LookupTransform(
        {"backend": "postgres", "url": url, "table": "customers", "on": {"customer": "id"}, **options}
    )


def _orders(spark: SparkSession, *customers: Any, kind: str = "BIGINT") -> DataFrame:
    return spark.createDataFrame(list(enumerate(customers)), f"id BIGINT, customer {kind}").coalesce(1)


def _rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.select(*columns or ["*"]).collect()), key=repr)


@pytest.mark.smoke
def test_columns_of_a_table_with_their_types(spark: SparkSession, customers: str) -> None:
    transform = _lookup(customers)
    out = transform.apply(_orders(spark, 3, 99, None, 3), context(spark))
    assert out.schema.simpleString() == (
        "struct<id:bigint,customer:bigint,name:string,credit:decimal(12,2),since:timestamp,tags:string,ref:string>"
    )
    assert _rows(out.selectExpr("id", "name", "credit", "unix_micros(since)", "tags", "ref")) == [
        (0, "c3", Decimal("3.25"), 1709209859000001, "[1]", "00000000-0000-0000-0000-000000000003"),
        (1, None, None, None, None, None),
        (2, None, None, None, None, None),
        (3, "c3", Decimal("3.25"), 1709209859000001, "[1]", "00000000-0000-0000-0000-000000000003"),
    ]
    assert transform.counts() == {"missing": 2}
    transform.close()


def test_keys_are_cast_to_the_type_that_they_have_there(spark: SparkSession, customers: str) -> None:
    rows = _orders(spark, "3", "x", " 4 ", kind="STRING")
    transform = _lookup(customers, columns="name")
    assert _rows(transform.apply(rows, context(spark)), "id", "name") == [(0, "c3"), (1, None), (2, "c4")]
    transform.close()
    by_uuid = _lookup(customers, on={"customer": "ref"}, columns={"name": "who"})
    rows = _orders(spark, "00000000000000000000000000000005", "no uuid", kind="STRING")
    split = Split(by_uuid.apply(rows, context(spark, on_error="drop")), repeatable=False)
    assert _rows(split.good) == [(0, "00000000000000000000000000000005", "c5")]
    failed = split.failed()
    assert failed is not None
    [row] = failed.collect()
    assert 'invalid input syntax for type uuid: "no uuid"' in row["_error"]
    assert json.loads(row["_input"]) == {"id": 1, "customer": "no uuid"}
    split.release()


def test_several_columns_are_a_key(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE t (a int, b text, v int)", url)
    postgres.execute(
        "INSERT INTO t VALUES (1, 'x', 10), (1, 'y', 11), (2, 'x', 20), (2, 'z', 22), (2, 'z', 23)", url
    )
    transform = LookupTransform(
        {"backend": "postgres", "url": url, "query": "SELECT * FROM t -- '%s'\n", "on": "a, b"}
    )
    rows = spark.createDataFrame(
        [(1, "x"), (1, "y"), (2, "x"), (2, "y"), (None, "x"), (1, None)], "a INT, b STRING"
    )
    out = transform.apply(rows, context(spark))
    assert _rows(out) == _rows(
        spark.createDataFrame(
            [(1, "x", 10), (1, "y", 11), (2, "x", 20), (2, "y", None), (None, "x", None), (1, None, None)],
            out.schema,
        )
    )
    several = transform.apply(spark.createDataFrame([(2, "z")], "a INT, b STRING"), context(spark, name="t"))
    with pytest.raises(Exception, match="penstock") as raised:
        several.collect()
    error = transform.failure(raised.value)
    assert isinstance(error, DataError)
    assert (error.code, error.where) == ("LOOKUP_ROW", "t")
    assert "the first one, with a = 2, b = 'z': several rows have the key" in error.message


def test_answers_are_good_for_a_while(spark: SparkSession, postgres: Postgres, customers: str) -> None:
    for ttl, name in (("1 hour", "c1"), ("0", "new")):
        transform = _lookup(customers, columns="name", ttl=ttl)
        orders = _orders(spark, 1, 50)
        run = context(spark, name=f"ttl-{ttl}")
        assert _rows(transform.apply(orders, run), "name") == [("c1",), (None,)]
        postgres.execute("UPDATE customers SET name = 'new' WHERE id = 1", customers)
        postgres.execute("INSERT INTO customers (id, name) VALUES (50, 'late')", customers)
        # One of two workers may run the task: it has asked or it has not, so only what is certain is compared.
        names = {row.name for _ in range(6) for row in transform.apply(orders, run).where("id = 0").collect()}
        assert name in names
        assert ttl != "0" or names == {"new"}
        postgres.execute("UPDATE customers SET name = 'c1' WHERE id = 1", customers)
        postgres.execute("DELETE FROM customers WHERE id = 50", customers)
        transform.close()


@pytest.mark.parametrize("backend", ["postgres", "file"])
def test_keys_that_are_not_there(spark: SparkSession, customers: str, tmp_path: Path, backend: str) -> None:
    (tmp_path / "c.csv").write_text("id,name\n1,c1\n2,c2\n")
    places: dict[str, dict[str, Any]] = {
        "postgres": {
            "backend": "postgres",
            "url": customers,
            "query": "SELECT * FROM customers WHERE id < 3",
        },
        "file": {"backend": "file", "path": str(tmp_path / "c.csv")},
    }
    rows = spark.createDataFrame(
        [(1, "i"), (2, "d"), (7, "u"), (8, "i"), (9, "d"), (None, "d")], "customer BIGINT, _op STRING"
    ).coalesce(1)

    def lookup(missing: str) -> LookupTransform:
        return LookupTransform(
            {**places[backend], "on": {"customer": "id"}, "columns": "name", "missing": missing}
        )

    dropped = lookup("drop")
    assert _rows(dropped.apply(rows, context(spark))) == [
        (1, "i", "c1"),
        (2, "d", "c2"),
        (7, "d", None),
        (9, "d", None),
        (None, "d", None),
    ]
    assert dropped.counts() == {"missing": 4}
    strict = lookup("error")
    with pytest.raises(Exception, match="penstock") as raised:
        strict.apply(rows, context(spark)).collect()
    error = strict.failure(raised.value)
    assert isinstance(error, DataError)
    assert error.code == "LOOKUP_ROW"
    assert "7" in error.message
    where = context(spark, on_error="dead_letter", keys=("customer",))
    split = Split(lookup("error").apply(rows, where), repeatable=False)
    assert [row[:2] for row in _rows(split.good)] == [(1, "i"), (2, "d"), (7, "d"), (9, "d"), (None, "d")]
    failed = split.failed()
    assert failed is not None
    assert [(row["_error"], json.loads(row["_input"])) for row in failed.collect()] == [
        ("cannot be looked up by customer: the key is not there", {"customer": 7, "_op": "u"}),
        ("cannot be looked up by customer: the key is not there", {"customer": 8, "_op": "i"}),
    ]
    split.release()
    for transform in (dropped, strict):
        transform.close()


def test_a_database_that_is_away_is_waited_for_and_then_retryable(
    spark: SparkSession, customers: str
) -> None:
    transform = _lookup(customers, retry_for="100 ms", columns="name")
    plan = transform._planned(context(spark))
    away = _lookup(customers)
    assert isinstance(plan.backend, PostgresBackend)
    away._plan = replace(
        plan, backend=replace(plan.backend, url="postgresql://penstock:secret@127.0.0.1:9/d")
    )
    with pytest.raises(Exception, match="penstock") as raised:
        away.apply(_orders(spark, 1), context(spark)).collect()
    error = away.failure(raised.value)
    assert isinstance(error, ConnectorError)
    assert (error.code, error.retryable) == ("LOOKUP_UNREACHABLE", True)
    assert "secret" not in str(error)


def _http(service: Service, method: str = "GET", **options: Any) -> LookupTransform:
    url = f"{service.url}/c/{{customer}}?token=secret" if method == "GET" else f"{service.url}/many"
    return LookupTransform(
        {
            "backend": "http",
            "method": method,
            "url": url,
            "on": {"customer": "id"},
            "schema": {"name": "string", "credit": "decimal(38,18)"},
            **options,
        }
    )


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_service_is_asked_for_each_key_once(spark: SparkSession, service: Service, method: str) -> None:
    exact = "12345678901234567890.012345678901234567"
    service.customers = {
        "1": f'{{"id": 1, "name": "Zoë", "credit": {exact}}}',
        "a/b": '{"id": "a/b", "credit": null}',
    }
    rows = _orders(spark, "1", "a/b", "1", "none", kind="STRING")
    transform = _http(service, method)
    run = context(spark, name=f"asked-{method}-{service.server_port}")
    out = transform.apply(rows, run)
    assert _rows(out.selectExpr("id", "name", "CAST(credit AS STRING)")) == [
        (0, "Zoë", exact),
        (1, None, None),
        (2, "Zoë", exact),
        (3, None, None),
    ]
    if method == "GET":
        assert sorted(service.asked) == ["1", "a/b", "none"]
    else:
        assert sorted(key["id"] for key in service.asked[0]) == ["1", "a/b", "none"]
    assert transform.counts() == {"missing": 1}


def test_a_service_that_is_busy_is_asked_again_and_one_that_refuses_is_not(
    spark: SparkSession, service: Service
) -> None:
    service.customers = {"1": '{"name": "a"}'}
    service.answers = [(503, "later"), (429, "")]
    transform = _http(service, columns="name")
    run = context(spark, name=f"busy-{service.server_port}")
    assert _rows(transform.apply(_orders(spark, 1), run), "name") == [("a",)]
    assert len(service.asked) == 3
    service.answers = [(401, "who are you")]
    with pytest.raises(Exception, match="penstock") as raised:
        transform.apply(_orders(spark, 2), run).collect()
    error = transform.failure(raised.value)
    assert isinstance(error, ConnectorError)
    assert (error.code, error.retryable) == ("LOOKUP_REFUSED", False)
    assert "secret" not in str(error)
    assert "who are you" in str(error)


def test_answers_that_make_no_sense_are_errors_of_their_rows(spark: SparkSession, service: Service) -> None:
    service.customers = {
        "1": '{"name": "a", "credit": 1}',
        "2": "no json",
        "3": "[1]",
        "4": '{"credit": "much"}',
    }
    transform = _http(service)
    rows = _orders(spark, 1, 2, 3, 4)
    split = Split(
        transform.apply(rows, context(spark, name=f"odd-{service.server_port}", on_error="drop")),
        repeatable=False,
    )
    assert _rows(split.good, "id", "name") == [(0, "a")]
    failed = split.failed()
    assert failed is not None
    assert {
        json.loads(row["_input"])["id"]: row["_error"].partition(": ")[2] for row in failed.collect()
    } == {
        1: "the service answers what is no JSON: no json",
        2: "the service answers no object: [1]",
        3: 'the answer does not fit the columns: {"credit": "much"}',
    }
    split.release()
    strict = _http(service)
    with pytest.raises(Exception, match="penstock") as raised:
        strict.apply(rows.where("id = 3"), context(spark, name=f"odd-{service.server_port}")).collect()
    error = strict.failure(raised.value)
    assert isinstance(error, DataError)
    assert 'with {"customer":4}: the answer does not fit the columns' in error.message


def test_a_file_is_a_table_that_is_read_again_when_it_is_old(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"id": 1, "name": "a", "other": 0}\n')
    node = LookupNode.model_validate(
        {"backend": "file", "path": str(path), "on": "id", "columns": {"name": "who"}, "ttl": "0"}
    )
    assert node.is_table
    assert node.inputs({}) == ()
    relation = node.relation(config.load(), name="customers")
    assert _rows(relation.frame(spark)) == [(1, "a")]
    assert relation.frame(spark).columns == ["id", "who"]
    path.write_text('{"id": 1, "name": "b", "other": 0}\n{"id": 2, "name": "c", "other": 0}\n')
    assert _rows(relation.frame(spark)) == [(1, "b"), (2, "c")]
    relation.close()
    path.write_text('{"id": 1, "name": "b"}\n{"id": 1, "name": "c"}\n')
    with pytest.raises(DataError, match="2 rows of the look-up customers have the key id = 1") as raised:
        relation.frame(spark)
    assert raised.value.code == "LOOKUP_KEY"


def test_a_table_of_postgres_can_be_joined(spark: SparkSession, customers: str) -> None:
    node = LookupNode.model_validate(
        {"type": "lookup", "backend": "postgres", "table": "customers", "url": customers}
    )
    relation = node.relation(config.load(), name="customers")
    relation.frame(spark).createOrReplaceTempView("lookup_customers")
    joined = spark.sql(
        "SELECT name FROM VALUES (2), (77) AS o(customer) JOIN lookup_customers AS c ON c.id = o.customer"
    )
    assert [row.name for row in joined.collect()] == ["c2"]
    assert relation.frame(spark) is relation.frame(spark)
    relation.close()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda options: options.update(on="custmer"), "SQL_UNKNOWN_COLUMN"),
        (lambda options: options.update(columns="nam"), "SQL_UNKNOWN_COLUMN"),
        (lambda options: options.update(columns={"name": "id"}), "LOOKUP_COLUMN"),
        (lambda options: options.update(table="nowhere"), "POSTGRES_REFUSED"),
        (lambda options: options.pop("on"), "TRANSFORM_OPTION_MISSING"),
    ],
)
def test_what_cannot_work_is_refused(
    spark: SparkSession, customers: str, change: Callable[[dict[str, Any]], None], code: str
) -> None:
    options: dict[str, Any] = {
        "backend": "postgres",
        "url": customers,
        "table": "customers",
        "on": {"customer": "id"},
    }
    change(options)
    with pytest.raises(PenstockError) as raised:
        LookupTransform(options).apply(_orders(spark), context(spark))
    assert raised.value.code == code


def test_an_http_service_is_no_table() -> None:
    options = LookupOptions.model_validate(
        {"backend": "http", "url": "http://h/{a}", "on": "a", "schema": {"b": "int"}}
    )
    with pytest.raises(ConfigError, match="cannot be listed"):
        LookupRelation(options, config.load(), name="c")


def test_an_empty_epoch_asks_nobody(spark: SparkSession, service: Service) -> None:
    transform = _http(service)
    out = transform.apply(_orders(spark).limit(0), context(spark))
    assert out.columns == ["id", "customer", "name", "credit"]
    began = time.monotonic()
    assert out.collect() == []
    assert service.asked == []
    assert time.monotonic() - began < 30
