from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.files import extension, rewrite_files, stem


@pytest.mark.parametrize(
    ("query", "paths"),
    [
        ("SELECT * FROM 'a.parquet'", ["a.parquet"]),
        ('select * from "a.parquet"', ["a.parquet"]),
        ("SELECT * FROM 'a.csv' x JOIN 'b.json' AS y ON x.id = y.id", ["a.csv", "b.json"]),
        (
            "SELECT * FROM t, 'a.csv', u LEFT ANTI JOIN 'b.csv' USING (id), 'c.csv' z",
            ["a.csv", "b.csv", "c.csv"],
        ),
        ("WITH c AS (SELECT * FROM 'a.csv') SELECT * FROM c JOIN 'b.csv'", ["a.csv", "b.csv"]),
        ("SELECT * FROM (SELECT id FROM 'a.csv') s WHERE id IN (SELECT id FROM 'b.csv')", ["a.csv", "b.csv"]),
        ("SELECT * FROM ('a.csv' JOIN ('b.csv' CROSS JOIN 'c.csv'))", ["a.csv", "b.csv", "c.csv"]),
        ("FROM 'a.csv' SELECT id, 'b.csv' WHERE x = 'c.csv'", ["a.csv"]),
        ("FROM 'a.csv' |> SELECT id, 'x' |> JOIN 'b.csv' USING (id)", ["a.csv", "b.csv"]),
        ("INSERT INTO t SELECT * FROM 'a.csv' UNION ALL SELECT 1, 'b.csv' FROM 'c.csv'", ["a.csv", "c.csv"]),
        ("CREATE TABLE t AS SELECT * FROM 'a.csv'", ["a.csv"]),
        ("EXPLAIN SELECT * FROM r'a.csv'", ["a.csv"]),
        (
            "MERGE INTO t USING 'a.csv' s ON t.id = s.id WHEN MATCHED THEN UPDATE SET x = 'b', y = 'c'",
            ["a.csv"],
        ),
        ("SELECT /* FROM 'x' */ * FROM -- 'y'\n 'it''s.csv'", ["it's.csv"]),
        ("SELECT exists(SELECT 1 FROM 'a.csv'), trim(FROM 'abc') FROM t", ["a.csv"]),
        ("SELECT * FROM t JOIN LATERAL (SELECT * FROM 'a.csv')", ["a.csv"]),
        # Strings that are only strings.
        ("SELECT extract(day FROM '2020-01-01'), trim(BOTH 'x' FROM 'abc.csv')", []),
        ("SELECT substring('abc' FROM 2), overlay('a' PLACING 'b' FROM 1), trim(LEADING FROM 'a')", []),
        ("SELECT * FROM t WHERE x = 'a.parquet' AND y IN ('b.csv', 'c.csv') ORDER BY 'd', 'e'", []),
        ("SELECT * FROM t WHERE a IS DISTINCT FROM 'b.csv' OR a IS NOT DISTINCT FROM 'c.csv'", []),
        ("SELECT * FROM VALUES 'a.csv', 'b.csv' AS t(x)", []),
        ("SELECT * FROM VALUES ('a.csv', 1), ('b.csv', 2)", []),
        ("SELECT * FROM read('a.csv'), t GROUP BY x, 'b.csv'", []),
        ("SELECT 'a', 'b' FROM t", []),
        ("SELECT * FROM t LATERAL VIEW explode(array('a', 'b')) v AS c", []),
        ("SELECT `from` 'a.csv', t.from 'b.csv' FROM t", []),
        ("INSERT OVERWRITE DIRECTORY 'out' USING csv OPTIONS ('a' 'b') SELECT * FROM t", []),
        ("SHOW TABLES FROM 'x'", []),
        ("DELETE FROM t WHERE x = 'a'", []),
        ("SELECT * FROM t WHERE d = date '2020-01-01', 'x'", []),
    ],
)
def test_only_relations_are_files(query: str, paths: list[str]) -> None:
    rewritten = rewrite_files(query)
    assert [file.path for file in rewritten.files] == paths
    for file in rewritten.files:
        assert query[file.start] in "'\"r"
        assert query[file.end - 1] in "'\""
        assert file.view in rewritten.sql
    if not paths:
        assert rewritten.sql == query


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("", " AS `orders`"),
        (" o", " o"),
        (" AS o", " AS o"),
        (" `o`", " `o`"),
        (" WHERE true", " AS `orders` WHERE true"),
        (" LEFT JOIN t", " AS `orders` LEFT JOIN t"),
        (", t", " AS `orders`, t"),
        (" TABLESAMPLE (10 ROWS)", " TABLESAMPLE (10 ROWS) AS `orders`"),
        (" TABLESAMPLE (10 ROWS) o", " TABLESAMPLE (10 ROWS) o"),
        (" -- why\n", " AS `orders` -- why\n"),
    ],
)
def test_without_an_alias_the_stem_is_one(tail: str, expected: str) -> None:
    rewritten = rewrite_files("SELECT * FROM 'data/orders.parquet'" + tail)
    assert rewritten.sql == f"SELECT * FROM {rewritten.files[0].view}{expected}"


def test_the_same_path_has_the_same_view_and_other_paths_have_others() -> None:
    views = [
        file.view for file in rewrite_files("SELECT * FROM 'a/o.csv' JOIN 'b/o.csv' JOIN 'a/o.csv' x").files
    ]
    assert views[0] == views[2] != views[1]


QUERY = "SELECT idd FROM 'data/orders.parquet' JOIN 'c.csv' AS c ON idd = c.id WHERE x = 'y' LIMIT banana"


@given(st.sampled_from(["idd", "JOIN", "AS c", "= c.id", "WHERE", "'y'", "banana"]))
def test_places_lead_back_to_what_the_user_wrote(piece: str) -> None:
    rewritten = rewrite_files(QUERY)
    assert rewritten.original(rewritten.sql.index(piece)) == QUERY.index(piece)
    assert rewritten.original(len(rewritten.sql)) == len(QUERY)


def test_a_place_inside_a_replaced_path_is_the_path() -> None:
    rewritten = rewrite_files(QUERY)
    inside = rewritten.sql.index(rewritten.files[1].view) + 5
    assert rewritten.original(inside) == QUERY.index("'c.csv'")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.csv", ".csv"),
        ("A.CSV.GZ", ".csv"),
        ("dir.v1/a", ""),
        ("dir/*.json", ".json"),
        ("dir/*", ""),
        ("x.parquet/", ".parquet"),
        ("plain", ""),
    ],
)
def test_extension(path: str, expected: str) -> None:
    assert extension(path) == expected


def test_stem() -> None:
    assert stem("./.hidden/a-b.tar.csv") == "a-b"
    assert stem("~/x/") == "x"
    assert stem("s3://bucket/*.csv") == "bucket"


def test_formats() -> None:
    parquet, tsv, folder = rewrite_files("SELECT 1 FROM 'a.parquet', 'b.tsv.gz', 'c/'").files
    assert (parquet.format, tsv.format, folder.format) == ("parquet", "csv", None)
    assert (tsv.separator, parquet.separator) == ("\t", ",")
