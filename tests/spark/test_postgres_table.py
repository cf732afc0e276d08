"""Tables of PostgreSQL, read as a whole."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.errors import ConnectorError, DataError
from penstock.transforms.postgres_table import PostgresTable
from servers.postgres import Postgres


def test_values_of_all_types(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.execute(
        """CREATE TABLE t (id bigint, ok boolean, small smallint, i integer, r real, d double precision, n numeric(20,4), wide numeric,
        huge numeric(50,2), s text, v varchar(9), u uuid, j jsonb, raw bytea, day date, at timestamptz, local timestamp, tags int[])""",
        url,
    )
    postgres.execute(
        """INSERT INTO t VALUES (1, true, -2, 3, 'NaN', '-Infinity', 1234567890123456.7891, 0.5, 7, E'Zoë "x",\\n', '', NULL, '{"a": 1}',
        '\\x00ff', '1582-10-01', '1890-01-01 00:00:00.123456+00', '2024-02-29 12:30:59.000001', '{1,NULL}')""",
        url,
    )
    postgres.execute("INSERT INTO t VALUES (2)", url)
    table = PostgresTable(url, "public.t")
    frame = table.frame(spark)
    assert frame.schema.simpleString() == (
        "struct<id:bigint,ok:boolean,small:smallint,i:int,r:float,d:double,n:decimal(20,4),wide:decimal(38,18),huge:string,s:string,"
        "v:string,u:string,j:string,raw:binary,day:date,at:timestamp,local:timestamp_ntz,tags:string>"
    )
    [first, second] = (
        frame.selectExpr("*", "unix_micros(at) AS us", "CAST(day AS STRING) AS ds").orderBy("id").collect()
    )
    assert (first.ok, first.small, first.i, repr(first.r), first.d) == (True, -2, 3, "nan", float("-inf"))
    assert (str(first.n), str(first.wide), first.huge) == (
        "1234567890123456.7891",
        "0.500000000000000000",
        "7.00",
    )
    assert (first.s, first.v, first.u, first.j) == ('Zoë "x",\n', "", None, '{"a": 1}')
    assert (bytes(first.raw), first.us, first.ds, str(first.local)) == (
        b"\x00\xff",
        -2524521599876544,
        "1582-10-01",
        "2024-02-29 12:30:59.000001",
    )
    assert first.tags == "{1,NULL}"
    assert set(second.asDict().values()) == {2, None}
    assert table.frame(spark, ["s"]).count() == 2
    assert [row.s for row in table.frame(spark, ["s"]).collect() if row.s is None] == [None]


def test_an_empty_table_and_a_query_have_columns(spark: SparkSession, postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.execute('CREATE TABLE t (id bigint, "a.b" text)', url)
    assert PostgresTable(url, "t").frame(spark).schema.simpleString() == "struct<id:bigint,a.b:string>"
    query = PostgresTable(url, query="SELECT id * 2 AS twice, '%s' AS s FROM t")
    assert [column.name for column in query.columns()] == ["twice", "s"]
    assert query.read().num_rows == 0
    assert not PostgresTable(url, "nowhere").exists()


def test_what_cannot_be_read_says_why(postgres: Postgres) -> None:
    url = postgres.new_database()
    with pytest.raises(ConnectorError) as refused:
        PostgresTable(url, "nowhere").columns()
    assert (refused.value.code, refused.value.retryable) == ("POSTGRES_REFUSED", False)
    assert "secret" not in str(refused.value)
    postgres.execute("CREATE TABLE t AS SELECT 'infinity'::timestamptz AS at", url)
    with pytest.raises(DataError) as value:
        PostgresTable(url, "t").read()
    assert value.value.code == "POSTGRES_VALUE"
    with pytest.raises(ConnectorError) as away:
        PostgresTable("postgresql://penstock:secret@127.0.0.1:9/d", "t").columns()
    assert (away.value.code, away.value.retryable) == ("POSTGRES_UNREACHABLE", True)
    assert "secret" not in str(away.value)
