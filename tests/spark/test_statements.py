"""Sources and incremental views in SQL: what the statements do, what queries see, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import penstock as ps

FOLDED = {"spark.sql.shuffle.partitions": "2"}


@pytest.fixture
def sql(session: ps.Session) -> Iterator[ps.Session]:
    """The session with a flow that is empty again afterwards."""
    yield session
    for view in reversed(session.flow.views()):
        session.flow.drop_view(view.name)
    for source in session.flow.sources():
        session.flow.drop_source(source.name)
    for table in session.spark.catalog.listTables():
        if table.name.startswith("t_"):
            session.spark.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} {table.name}")


@pytest.fixture
def orders(sql: ps.Session) -> ps.Session:
    sql.sql("CREATE SOURCE orders (id BIGINT, customer STRING, amount DECIMAL(10,2)) PRIMARY KEY (id)")
    sql.sql(
        "CREATE INCREMENTAL VIEW totals AS SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer"
    )
    sql.sql("INSERT INTO orders VALUES (1, 'ann', 10), (2, 'bob', 4.5), (3, 'ann', 1)")
    return sql


def rows(session: ps.Session, query: str, **options: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in session.sql(query, **options).collect())


def refused(session: ps.Session, text: str) -> ps.PenstockError:
    before = session.flow.definition(), session.last_step
    with pytest.raises(ps.PenstockError) as caught:
        session.sql_with_timeout(text, 60_000)
    assert (session.flow.definition(), session.last_step) == before
    return caught.value


TOTALS = [("ann", Decimal("11.00")), ("bob", Decimal("4.50"))]


def test_changes_are_ticks(orders: ps.Session) -> None:
    assert rows(orders, "SELECT * FROM totals") == TOTALS
    first = orders.last_step
    assert (first.rows_in, first.views["totals"].inserted) == (3, 2)
    assert (
        orders.sql("UPDATE orders SET amount = amount * 2, customer = upper(customer) WHERE id < 3").columns
        == []
    )
    assert orders.last_step.tick == first.tick + 1
    assert rows(orders, "SELECT * FROM totals") == [
        ("ANN", Decimal("20.00")),
        ("BOB", Decimal("9.00")),
        ("ann", Decimal("1.00")),
    ]
    orders.sql("DELETE FROM orders AS o WHERE o.amount < (SELECT avg(amount) FROM orders)")
    assert rows(orders, "SELECT * FROM totals") == [("ANN", Decimal("20.00"))]
    orders.sql("INSERT INTO orders (customer, id) SELECT lower(customer), id + 10 FROM orders")
    assert rows(orders, "SELECT id, customer, amount FROM orders") == [
        (1, "ANN", Decimal("20.00")),
        (11, "ann", None),
    ]
    orders.sql(
        "WITH low AS (SELECT 11 AS id) INSERT INTO orders BY NAME SELECT id, 3 AS amount, 'x' AS customer FROM low"
    )
    assert rows(orders, "SELECT customer, amount FROM orders WHERE id = 11") == [("x", Decimal("3.00"))]
    orders.sql("DELETE FROM orders")
    assert rows(orders, "SELECT * FROM totals") == []


def test_parameters(orders: ps.Session) -> None:
    orders.sql("INSERT INTO orders VALUES (?, ?, ?)", [7, "zoe", 2])
    orders.sql("UPDATE orders SET amount = :more WHERE id = :id", {"more": 5, "id": 7})
    assert rows(orders, "SELECT total FROM totals WHERE customer = :who", args={"who": "zoe"}) == [
        (Decimal("5.00"),)
    ]
    orders.sql("DELETE FROM orders WHERE customer = :who", {"who": "zoe"})
    assert rows(orders, "SELECT * FROM totals") == TOTALS
    with pytest.raises(ps.SqlError) as caught:
        orders.sql("CREATE INCREMENTAL VIEW v AS SELECT * FROM orders WHERE id = :id", {"id": 1})
    assert caught.value.code == "SQL_PARAMETER"


def test_a_source_without_a_key_counts_equal_rows(sql: ps.Session) -> None:
    sql.sql("CREATE SOURCE points (x DOUBLE, tags ARRAY<STRING>)")
    sql.sql(
        "INSERT INTO points VALUES (1, array('a')), (1, array('a')), (double('NaN'), NULL), (-0.0, array())"
    )
    sql.sql("UPDATE points SET tags = concat(tags, array('b')) WHERE x = 1")
    assert sql.last_step.rows_in == 4
    assert rows(sql, "SELECT x, tags FROM points WHERE x = 1") == [(1.0, ["a", "b"])] * 2
    sql.sql("DELETE FROM points WHERE isnan(x) OR size(tags) = 0")
    assert rows(sql, "SELECT count(*) FROM points") == [(2,)]


TYPES = {
    "a": ("DATE", "DATE'2024-05-01'"),
    "b": ("TIMESTAMP", "TIMESTAMP'2024-05-01 10:00:00.123456'"),
    "c": ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ'2024-05-01 10:00:00'"),
    "d": ("BINARY", "X'00FF'"),
    "e": ("STRUCT<p: INT, q: ARRAY<STRING>>", "named_struct('p', 1, 'q', array('x'))"),
    "f": ("MAP<STRING, DOUBLE>", "map('k', double(1.5))"),
    "g": ("INTERVAL YEAR TO MONTH", "INTERVAL '1-2' YEAR TO MONTH"),
    "h": ("INTERVAL DAY TO SECOND", "INTERVAL '1 02:03:04' DAY TO SECOND"),
    "i": ("VARCHAR(5)", "'ab'"),
    "j": ("CHAR(4)", "'ab'"),
    "k": ("BOOLEAN", "true"),
    "l": ("VARIANT", "parse_json('{\"x\": [1, null]}')"),
    "m": ("FLOAT", "float(0.1)"),
    "n": ("STRING COLLATE UTF8_LCASE", "'Ab' COLLATE UTF8_LCASE"),
}


def test_every_type_goes_in_and_comes_out_and_is_deleted(sql: ps.Session) -> None:
    sql.sql(
        f"CREATE SOURCE t_types (key INT, {', '.join(f'{name} {kind}' for name, (kind, _) in TYPES.items())})"
    )
    values = ", ".join(value for _, value in TYPES.values())
    sql.sql(f"INSERT INTO t_types VALUES (1, {values}), (2, {', '.join(['NULL'] * len(TYPES))})")
    shown = {name: f"to_json(struct({name}))" if name == "l" else f"string({name})" for name in TYPES}
    query = ", ".join(shown.values())
    expected = [
        f"to_json(struct({value} AS l))" if name == "l" else f"string({value})"
        for name, (_, value) in TYPES.items()
    ]
    expected[list(TYPES).index("j")] = "'ab  '"
    stored = sql.sql(f"SELECT {query} FROM t_types WHERE key = 1").first()
    wanted = sql.sql(f"SELECT {', '.join(expected)}").first()
    assert tuple(stored) == tuple(wanted)
    sql.sql("UPDATE t_types SET key = key + 10 WHERE j = 'ab' OR key = 2")
    assert rows(sql, "SELECT key FROM t_types") == [(11,), (12,)]
    sql.sql("DELETE FROM t_types WHERE n = 'aB'")
    assert rows(sql, "SELECT key FROM t_types") == [(12,)]


def test_a_query_reads_the_tick_at_which_it_runs(orders: ps.Session) -> None:
    frame = orders.sql("SELECT sum(total) AS s FROM totals")
    orders.sql("CREATE TEMP VIEW t_rich AS SELECT * FROM totals WHERE total > 5")
    orders.flow.tick("orders", [{"id": 9, "customer": "cem", "amount": 100}])
    assert frame.first().s == Decimal("115.50")
    assert rows(orders, "SELECT customer FROM t_rich") == [("ann",), ("cem",)]
    assert orders.spark.table("totals").count() == 3
    assert orders.spark.sql("SELECT * FROM totals t JOIN orders o USING (customer)").count() == 4
    joined = "SELECT o.id FROM orders o JOIN (VALUES ('cem')) AS v(name) ON v.name = o.customer"
    assert rows(orders, joined) == [(9,)]


def test_all_tables_of_a_query_are_of_one_tick(sql: ps.Session) -> None:
    sql.sql("CREATE SOURCE t_a (n BIGINT)")
    sql.sql("CREATE INCREMENTAL VIEW t_b AS SELECT count(*) AS n FROM t_a")
    sql.sql("CREATE INCREMENTAL VIEW t_c AS SELECT n + 0 AS n FROM t_b")
    ended = threading.Event()

    def tick() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            sql.flow.tick("t_a", [{"n": number}])

    ticking = threading.Thread(target=tick)
    ticking.start()
    try:
        query = """SELECT (SELECT count(*) FROM t_a) AS a, t_b.n AS b, t_c.n AS c, (SELECT max(n) FROM t_a) AS d
                   FROM t_b CROSS JOIN t_c WHERE t_b.n NOT IN (SELECT -n FROM t_a)"""
        seen = [tuple(row) for _ in range(20) for row in sql.sql(query).collect()]
    finally:
        ended.set()
        ticking.join()
    assert len(seen) == 20
    assert all(len(set(one)) == 1 for one in seen)
    assert seen[0] < seen[-1]


def test_views_on_views_and_recursion(sql: ps.Session) -> None:
    sql.sql("CREATE SOURCE edges (a INT, b INT)")
    sql.sql(
        """CREATE RECURSIVE INCREMENTAL VIEW reach (src, dst) AS
           SELECT a, b FROM edges UNION ALL SELECT r.src, e.b FROM reach r JOIN edges e ON r.dst = e.a"""
    )
    sql.sql("CREATE INCREMENTAL VIEW degrees AS SELECT src, count(*) AS n FROM reach GROUP BY src")
    sql.sql("INSERT INTO edges VALUES (1, 2), (2, 3), (3, 4)")
    assert rows(sql, "SELECT * FROM degrees") == [(1, 3), (2, 2), (3, 1)]
    sql.sql("DELETE FROM edges WHERE a = 2")
    assert rows(sql, "SELECT * FROM degrees") == [(1, 1), (3, 1)]


def test_a_view_over_views_and_dataframes_of_spark_follows_the_sources(orders: ps.Session) -> None:
    orders.sql("CREATE TEMP VIEW t_big AS SELECT * FROM totals WHERE total > 5")
    orders.sql("CREATE INCREMENTAL VIEW big AS SELECT count(*) AS n FROM t_big")
    frame = orders.sql("SELECT max(amount) AS top FROM orders")
    orders.flow.register_view("top", frame)
    orders.sql("INSERT INTO orders VALUES (5, 'eva', 50)")
    assert rows(orders, "SELECT n, top FROM big, top") == [(2, Decimal("50.00"))]
    assert orders.flow.explain("big").tier == orders.flow.explain("top").tier == "kernel"


def test_replacing(orders: ps.Session) -> None:
    orders.sql("CREATE OR REPLACE INCREMENTAL VIEW totals AS SELECT count(*) AS n FROM orders")
    assert rows(orders, "SELECT * FROM totals") == [(3,)]
    orders.sql("INSERT INTO orders VALUES (4, 'x', 1)")
    assert rows(orders, "SELECT n FROM totals") == [(4,)]
    for wrong in ("SELECT nothing FROM orders", "SELECT 1 / (amount - 1) AS q FROM orders"):
        refused(orders, f"CREATE OR REPLACE INCREMENTAL VIEW totals AS {wrong}")
        assert rows(orders, "SELECT n FROM totals") == [(4,)]
    orders.sql("INSERT INTO orders VALUES (5, 'x', 1)")
    assert rows(orders, "SELECT n FROM totals") == [(5,)]
    assert refused(orders, "CREATE OR REPLACE SOURCE orders (id INT)").code == "FLOW_IN_USE"
    orders.sql("DROP INCREMENTAL VIEW totals")
    refused(orders, "CREATE OR REPLACE SOURCE orders (id NOSUCHTYPE)")
    assert rows(orders, "SELECT count(*) FROM orders") == [(5,)]
    orders.sql("CREATE OR REPLACE SOURCE orders (id INT, more STRING)")
    assert rows(orders, "SELECT count(more) FROM orders") == [(0,)]


def test_if_exists_and_if_not_exists(orders: ps.Session) -> None:
    orders.sql("CREATE SOURCE IF NOT EXISTS orders (other INT)")
    orders.sql("CREATE INCREMENTAL VIEW IF NOT EXISTS totals AS SELECT 1 AS one FROM orders")
    assert rows(orders, "SELECT * FROM totals") == TOTALS
    orders.sql("DROP INCREMENTAL VIEW IF EXISTS nothing")
    orders.sql("DROP SOURCE IF EXISTS nothing")
    assert (
        refused(orders, "DROP INCREMENTAL VIEW totlas").hint == "did you mean 'totals'? Known views: totals"
    )


def test_refresh_reads_tables_of_spark_again(orders: ps.Session) -> None:
    orders.register_table("t_names", [{"customer": "ann", "name": "Ann"}])
    orders.sql(
        "CREATE INCREMENTAL VIEW named AS SELECT name, total FROM totals JOIN t_names USING (customer)"
    )
    orders.sql("CREATE INCREMENTAL VIEW names AS SELECT count(*) AS n FROM named")
    assert rows(orders, "SELECT * FROM names") == [(1,)]
    orders.register_table("t_names", [{"customer": "ann", "name": "A"}, {"customer": "bob", "name": "B"}])
    orders.sql("REFRESH INCREMENTAL VIEW names")
    assert rows(orders, "SELECT * FROM named") == [("A", Decimal("11.00")), ("B", Decimal("4.50"))]
    assert rows(orders, "SELECT * FROM names") == [(2,)]


def test_a_suspended_view_goes_on_after_refresh(orders: ps.Session) -> None:
    orders.sql(
        "CREATE INCREMENTAL VIEW shares WITH (on_error = 'suspend') AS SELECT id, 100 / amount AS s FROM orders"
    )
    orders.sql("INSERT INTO orders VALUES (4, 'x', 0)")
    (shown,) = [row for row in orders.sql("SHOW INCREMENTAL VIEWS").collect() if row.name == "shares"]
    assert "suspended" in shown.suspended
    assert rows(orders, "SELECT count(*) FROM shares") == [(3,)]
    orders.sql("DELETE FROM orders WHERE id = 4")
    orders.sql("INSERT INTO orders VALUES (5, 'x', 5)")
    orders.sql("REFRESH INCREMENTAL VIEW shares")
    assert rows(orders, "SELECT count(*) FROM shares") == [(4,)]


def test_showing(orders: ps.Session) -> None:
    orders.sql("CREATE SOURCE late (at TIMESTAMP, n INT) WITH (lateness = '10 minutes', dedup = true)")
    sources = {row.name: row for row in orders.sql("SHOW SOURCES").collect()}
    assert (sources["orders"].primary_key, sources["orders"].rows, sources["orders"].read_by) == (
        "id",
        3,
        "totals",
    )
    assert sources["late"].options == "dedup = True, lateness = 600 seconds, event_time = at"
    (view,) = orders.sql("SHOW INCREMENTAL VIEWS").collect()
    assert (view.name, view.tier, view.rows, view.reads) == ("totals", "kernel", 2, "orders")
    described = {
        row.col_name: row.data_type for row in orders.sql("DESCRIBE INCREMENTAL VIEW totals").collect()
    }
    assert described["total"] == "decimal(20,2)"
    assert described["query"].startswith("SELECT customer, SUM(amount)")
    assert {row.col_name for row in orders.sql("DESCRIBE SOURCE orders").collect()} >= {"id", "primary key"}
    plan = (
        orders.sql("EXPLAIN INCREMENTAL SELECT customer, max(amount) FROM orders GROUP BY customer")
        .first()
        .plan
    )
    assert plan.startswith("query: kernel\n")
    assert "query" not in [view.name for view in orders.flow.views()]
    assert orders.sql("EXPLAIN INCREMENTAL VIEW totals").first().plan == str(orders.flow.explain("totals"))
    assert {"orders", "totals"} <= {row.tableName for row in orders.sql("SHOW TABLES").collect()}


def test_rows_of_files_and_tables(orders: ps.Session, tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"id": [20, 21], "who": ["a", "b"]}), tmp_path / "new.parquet")
    orders.sql(f"INSERT INTO orders SELECT id, who, 1 FROM '{tmp_path}/new.parquet'")
    assert rows(orders, "SELECT count(*) FROM orders") == [(5,)]
    error = refused(orders, f"CREATE INCREMENTAL VIEW v AS SELECT * FROM '{tmp_path}/new.parquet'")
    assert error.code == "SQL_FILE_IN_VIEW"


REFUSED = {
    "INSERT INTO orders VALUES (1, 'x')": ("SQL_COLUMNS", "3 are wanted", 20),
    "INSERT INTO orders (id, amuont) VALUES (1, 2)": ("SQL_UNKNOWN_COLUMN", "did you mean 'amount'?", 25),
    "INSERT INTO orders (id, ID) VALUES (1, 2)": ("SQL_COLUMNS", "named twice", 13),
    "INSERT INTO orders VALUES ('one', 'x', 3)": ("SQL_TYPE", "CAST(... AS BIGINT)", 13),
    "INSERT INTO orders VALUES (1, 'x', 123456789012)": ("DATA_OVERFLOW", "", 13),
    "INSERT INTO totals VALUES ('a', 1)": ("FLOW_UNKNOWN_SOURCE", "only sources are fed", 13),
    "INSERT INTO orders SELECT idd, customer, amount FROM orders": ("SQL_UNKNOWN_COLUMN", "'id'", 27),
    "INSERT INTO orders VALUES (NULL, 'x', 1)": ("DATA_NULL_KEY", "", 13),
    "DELETE FROM orders WHERE idd = 1": ("SQL_UNKNOWN_COLUMN", "did you mean 'id'?", 26),
    "DELETE FROM orders WHERE id =": ("SQL_SYNTAX", "", 30),
    "UPDATE orders SET amuont = 1": ("SQL_UNKNOWN_COLUMN", "did you mean 'amount'?", 19),
    "UPDATE orders o SET o.amount = id + amuont WHERE o.id = 1": ("SQL_UNKNOWN_COLUMN", "'amount'", 37),
    "UPDATE orders SET id = 'x'": ("SQL_TYPE", "CAST(... AS BIGINT)", 8),
    "DROP SOURCE orders": ("FLOW_IN_USE", "DROP INCREMENTAL VIEW totals", 13),
    "DROP SOURCE totals": ("SQL_WRONG_KIND", "write DROP INCREMENTAL VIEW totals", 13),
    "DROP VIEW totals": ("SQL_WRONG_KIND", "use DROP INCREMENTAL VIEW totals", 11),
    "DROP TABLE orders": ("SQL_WRONG_KIND", "use DROP SOURCE orders", 12),
    "TRUNCATE TABLE orders": ("SQL_WRONG_KIND", "DELETE FROM orders", 16),
    "ALTER VIEW totals AS SELECT 1": ("SQL_WRONG_KIND", "CREATE OR REPLACE INCREMENTAL VIEW totals", 12),
    "MERGE INTO totals USING orders ON true WHEN MATCHED THEN DELETE": ("SQL_WRONG_KIND", "sources", 12),
    "CREATE TEMP VIEW orders AS SELECT 1": ("FLOW_NAME_TAKEN", "DROP SOURCE orders", 18),
    "CREATE TABLE default.Totals (a INT)": ("FLOW_NAME_TAKEN", "DROP INCREMENTAL VIEW totals", 14),
    "CREATE SOURCE t_spark (a INT)": ("FLOW_NAME_TAKEN", "in Spark already", 15),
    "CREATE INCREMENTAL VIEW T_SPARK AS SELECT * FROM orders": ("FLOW_NAME_TAKEN", "in Spark already", 25),
    "CREATE SOURCE totals (a INT)": ("FLOW_NAME_TAKEN", "choose another name", 15),
    "CREATE SOURCE s (a NOSUCHTYPE)": ("CONFIG_UNKNOWN_TYPE", "", 15),
    "CREATE SOURCE s (a INT) PRIMARY KEY (b)": ("FLOW_UNKNOWN_COLUMN", "Known columns: a", 15),
    "CREATE SOURCE s (a INT) WITH (retain = 'some')": ("FLOW_OPTION", "Known choices: all, open, used", 15),
    "CREATE SOURCE s (a INT) WITH (lateness = '1 hour')": ("FLOW_OPTION", "event_time = ts", 15),
    "CREATE SOURCE s (a INT) WITH (event_time = a)": ("FLOW_OPTION", "lateness = '10 minutes'", 15),
    "CREATE INCREMENTAL VIEW v AS SELECT custmer FROM orders": ("SQL_UNKNOWN_COLUMN", "'customer'", 37),
    "CREATE INCREMENTAL VIEW v AS SELECT * FROM ordrs": ("SQL_UNKNOWN_TABLE", "'orders'", 44),
    "CREATE INCREMENTAL VIEW v AS SELECT rand() FROM orders": ("SQL_NONDETERMINISTIC", "", 1),
    "CREATE INCREMENTAL VIEW v AS DROP TABLE orders": ("SQL_NOT_A_QUERY", "", 1),
    "EXPLAIN INCREMENTAL SELECT idd FROM orders": ("SQL_UNKNOWN_COLUMN", "'id'", 28),
    "DESCRIBE INCREMENTAL VIEW totlas": ("FLOW_UNKNOWN_VIEW", "did you mean 'totals'?", 27),
    "REFRESH INCREMENTAL VIEW totlas": ("FLOW_UNKNOWN_VIEW", "did you mean 'totals'?", 26),
}


def test_what_is_refused_says_where_and_what_to_do(orders: ps.Session) -> None:
    orders.spark.sql("CREATE TEMP VIEW t_spark AS SELECT 1 AS a")
    for text, (code, words, column) in REFUSED.items():
        error = refused(orders, text)
        assert (error.code, words in str(error)) == (code, True), f"{text}: {error.code} {error}"
        if column > 1:
            assert f"line 1, column {column}\n" in (error.where or ""), f"{text}: {error}"
    with pytest.raises(ps.ConfigError) as caught:
        orders.register_table("Totals", [{"a": 1}])
    assert caught.value.code == "FLOW_NAME_TAKEN"
    with pytest.raises(ps.ConfigError) as caught:
        orders.flow.register_source("t_spark", "a INT")
    assert caught.value.code == "FLOW_NAME_TAKEN"
    assert rows(orders, "SELECT * FROM totals") == TOTALS


def test_a_source_that_does_not_keep_its_rows_cannot_be_read(sql: ps.Session) -> None:
    sql.sql("CREATE SOURCE slim (id BIGINT, amount INT) WITH (retain = 'used')")
    sql.sql("CREATE INCREMENTAL VIEW n AS SELECT count(id) AS n FROM slim")
    sql.sql("INSERT INTO slim VALUES (1, 2)")
    assert rows(sql, "SELECT * FROM n") == [(1,)]
    for text in ("SELECT * FROM slim", "DELETE FROM slim", "SELECT (SELECT max(amount) FROM slim)"):
        error = refused(sql, text)
        assert error.code == "FLOW_NOT_RETAINED"
        assert "retain" in (error.hint or "")


def test_names_in_any_case_and_with_points(sql: ps.Session) -> None:
    sql.sql("CREATE SOURCE Shop.Orders (Id INT, `two words` STRING)")
    sql.sql("INSERT INTO shop.orders (ID) VALUES (1)")
    sql.sql("CREATE INCREMENTAL VIEW Counts AS SELECT count(*) AS n FROM shop.orders")
    sql.sql("UPDATE `shop.orders` SET `two words` = 'x'")
    sql.sql("INSERT INTO SHOP.ORDERS SELECT id + 1, `two words` FROM `shop.orders`")
    assert rows(sql, "SELECT * FROM `Shop.Orders`") == [(1, "x"), (2, "x")]
    assert rows(sql, "SELECT n FROM counts") == [(2,)]
    assert refused(sql, "CREATE SOURCE COUNTS (a INT)").code == "FLOW_NAME_TAKEN"


def test_the_flow_outlives_the_session(session: ps.Session, tmp_path: Path) -> None:
    with ps.Session.embedded(conf=FOLDED, flow=tmp_path / "flow") as first:
        first.sql("CREATE SOURCE orders (id BIGINT, amount INT)")
        first.sql("CREATE INCREMENTAL VIEW sums AS SELECT sum(amount) AS s FROM orders")
        first.sql("INSERT INTO orders VALUES (1, 5), (2, 6)")
        with pytest.raises(ps.StateError) as caught:
            ps.Session.embedded(conf=FOLDED, flow=tmp_path / "flow")
        assert caught.value.code == "FLOW_OPEN"
    with ps.Session.embedded(conf=FOLDED, flow=tmp_path / "flow") as second:
        assert rows(second, "SELECT * FROM sums") == [(11,)]
        second.sql("DELETE FROM orders WHERE id = 1")
        assert second.spark.table("sums").first().s == 6
    with ps.IncrementalFlow.read(tmp_path / "flow") as flow:
        assert flow.snapshot("sums").to_pylist() == [{"s": 6}]
    assert not session.spark.catalog.tableExists("sums")


def test_the_setting(session: ps.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_FLOW", str(tmp_path / "flow"))
    with ps.Session.embedded(conf=FOLDED) as first:
        first.sql("CREATE SOURCE orders (id BIGINT)")
        first.sql("INSERT INTO orders VALUES (1)")
    with ps.Session.embedded(conf=FOLDED) as second:
        assert rows(second, "SELECT * FROM orders") == [(1,)]
