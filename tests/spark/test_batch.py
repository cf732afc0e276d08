from __future__ import annotations

import datetime as dt
import json
import os
import time
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from processes import descendants
from waiting import wait_for

ORDERS = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})


@pytest.mark.smoke
def test_sql_gives_a_pyspark_frame(session: ps.Session) -> None:
    frame = session.sql("SELECT :x + 1 AS y", args={"x": 41})
    assert type(frame).__module__.startswith("pyspark.")
    assert frame.collect()[0].y == 42
    assert session.sql("SELECT ? AS y", args=["a"]).collect()[0].y == "a"


@pytest.mark.smoke
def test_sql_with_timeout_gives_arrow(session: ps.Session) -> None:
    table = session.sql_with_timeout("SELECT id, :k AS k FROM range(3)", "30 seconds", args={"k": "v"})
    assert table.to_pylist() == [{"id": number, "k": "v"} for number in range(3)]
    assert session.sql_with_timeout("SELECT 1 AS one", dt.timedelta(minutes=1)).schema.names == ["one"]


@pytest.mark.parametrize(
    "rows",
    [
        ORDERS,
        ORDERS.to_batches()[0],
        ORDERS.to_reader(),
        pl.DataFrame({"id": [1, 2, 3], "name": ["a", "b", None]}),
        pd.DataFrame({"id": [1, 2, 3], "name": ["a", "b", None]}),
        [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3}],
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_register_rows(session: ps.Session, rows: Any) -> None:
    session.register_table("orders_given", rows)
    assert session.sql("SELECT id, name FROM orders_given ORDER BY id").toArrow() == ORDERS


def test_register_a_frame_and_types(session: ps.Session) -> None:
    session.register_table("a_frame", session.sql("SELECT 7 AS seven"))
    assert session.sql("SELECT seven FROM a_frame").collect()[0].seven == 7
    table = pa.table(
        {
            "naive": pa.array([dt.datetime(2024, 1, 1, 12)], pa.timestamp("us")),
            "zoned": pa.array([dt.datetime(2024, 1, 1, 12)], pa.timestamp("ns", tz="UTC")),
            "small": pa.array([200], pa.uint8()),
            "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)),
            "gone": pa.array([None], pa.null()),
        }
    )
    session.register_table("typed", table)
    frame = session.sql("SELECT * FROM typed")
    assert dict(frame.dtypes) == {
        "naive": "timestamp_ntz",
        "zoned": "timestamp",
        "small": "smallint",
        "vector": "array<float>",
        "gone": "void",
    }
    assert frame.toArrow().select(["naive", "small", "vector"]).to_pylist() == [
        {"naive": dt.datetime(2024, 1, 1, 12), "small": 200, "vector": [1.0, 2.0]}
    ]
    session.register_table("with_schema", [{"id": "1"}], schema="id int64, more utf8")
    assert session.sql("SELECT * FROM with_schema").dtypes == [("id", "bigint"), ("more", "string")]


def test_readers_do_what_people_expect(session: ps.Session, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,price,day\n1,1.5,2024-01-01\n2,2.5,2024-01-02\n")
    (tmp_path / "b.csv").write_text("id,price,day\n3,3.5,2024-01-03\n")
    assert session.read_csv(tmp_path / "a.csv").dtypes == [
        ("id", "int"),
        ("price", "double"),
        ("day", "date"),
    ]
    assert session.read_csv(str(tmp_path / "*.csv")).count() == 3
    assert session.read_csv([tmp_path / "a.csv", tmp_path / "b.csv"]).count() == 3
    assert session.read_csv(tmp_path / "a.csv", header=False).count() == 3
    assert session.read_csv(tmp_path / "a.csv", schema="id int64, price float64, day utf8").dtypes == [
        ("id", "bigint"),
        ("price", "double"),
        ("day", "string"),
    ]
    (tmp_path / "t.tsv").write_text("a\tb\n1\t2\n")
    assert session.read_csv(tmp_path / "t.tsv").columns == ["a", "b"]
    (tmp_path / "lines.json").write_text('{"id": 1}\n{"id": 2}\n')
    (tmp_path / "array.json").write_text(json.dumps([{"id": 1}, {"id": 2}], indent=1))
    assert session.read_json(tmp_path / "lines.json").count() == 2
    assert session.read_json(tmp_path / "array.json").count() == 2
    pq.write_table(ORDERS, tmp_path / "orders.parquet")
    assert session.read_parquet(tmp_path / "orders.parquet").toArrow() == ORDERS


def test_paths_are_taken_from_here_and_home(
    session: ps.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(ORDERS, tmp_path / "orders.parquet")
    monkeypatch.chdir(tmp_path)  # the JVM stays where it was
    assert session.read_parquet("orders.parquet").count() == 3
    monkeypatch.setenv("HOME", str(tmp_path))
    assert session.read_parquet("~/orders.parquet").count() == 3
    with pytest.raises(ps.DataError) as caught:
        session.read_parquet("ordres.parquet")
    assert caught.value.code == "DATA_PATH_NOT_FOUND"
    assert str(tmp_path / "ordres.parquet") in caught.value.message
    assert caught.value.hint == f"did you mean '{tmp_path / 'orders.parquet'}'?"


def test_register_paths(session: ps.Session, tmp_path: Path) -> None:
    pq.write_table(ORDERS, tmp_path / "orders.parquet")
    (tmp_path / "folder" / "day=1").mkdir(parents=True)
    (tmp_path / "folder" / "_SUCCESS").touch()
    (tmp_path / "folder" / "day=1" / "part.csv").write_text("id\n1\n")
    for name in ("orders.parquet", "folder"):
        session.register_table("from_path", tmp_path / name)
        assert session.sql("SELECT * FROM from_path").count() >= 1
    assert session.sql("SELECT * FROM from_path").columns == ["id", "day"]
    (tmp_path / "x.xyz").touch()
    for name, code in (("x.xyz", "SQL_FILE_FORMAT"), ("nothing", "SQL_FILE_MISSING")):
        with pytest.raises(ps.SqlError) as caught:
            session.register_table("bad", str(tmp_path / name))
        assert caught.value.code == code
        assert caught.value.where is None


def test_files_stand_for_tables(session: ps.Session, tmp_path: Path) -> None:
    pq.write_table(ORDERS, tmp_path / "orders.parquet")
    (tmp_path / "names.csv").write_text("name,full\na,Anna\n")
    query = f"SELECT o.id, full FROM '{tmp_path}/orders.parquet' o JOIN '{tmp_path}/names.csv' n USING (name)"
    assert session.sql(query).toArrow().to_pylist() == [{"id": 1, "full": "Anna"}]
    assert session.sql_with_timeout(query, 60_000).num_rows == 1
    with pytest.raises(ps.SqlError) as caught:
        session.sql(f"SELECT nmae FROM '{tmp_path}/orders.parquet'")
    assert caught.value.where is not None
    assert caught.value.where.startswith("line 1, column 8\n")


def _workers() -> set[int]:
    found = set()
    for process in descendants(os.getpid()):
        try:
            if "python" in process.name() and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def test_a_timeout_ends_the_jobs(session: ps.Session) -> None:
    tracker = session.spark.sparkContext.statusTracker()
    # The query would run for hours: only the timeout ends it, however busy the machine is.
    with pytest.raises(ps.QueryTimeout) as caught:
        session.sql_with_timeout(
            "SELECT count(*) FROM range(0, 10000000000000L, 1, 4) WHERE id % 7 = 3", 1_500
        )
    assert "1.5 s" in caught.value.message
    wait_for(lambda: not tracker.getActiveJobsIds(), "end of the jobs")
    assert session.sql_with_timeout("SELECT 1 AS x", 60_000).to_pylist() == [{"x": 1}]


def test_a_timeout_ends_a_python_function_and_its_worker(session: ps.Session) -> None:
    def stuck(x: int) -> int:
        time.sleep(1000)
        return x

    session.spark.udf.register("stuck", stuck, "long")
    tracker = session.spark.sparkContext.statusTracker()
    before = _workers()
    with pytest.raises(ps.QueryTimeout):
        session.sql_with_timeout("SELECT stuck(id) FROM range(0, 4, 1, 2)", 8_000)
    wait_for(lambda: not tracker.getActiveJobsIds(), "end of the jobs")
    # The daemon that forks the workers may stay; it is the only new process.
    wait_for(lambda: len(_workers() - before) <= 1, "end of the Python workers")
    assert session.sql_with_timeout("SELECT sum(id) AS s FROM range(100)", 60_000).to_pylist() == [
        {"s": 4950}
    ]


def test_errors_pass_through_a_timeout(session: ps.Session) -> None:
    with pytest.raises(ps.SqlError, match="no table or view 'nowhere'"):
        session.sql_with_timeout("SELECT * FROM nowhere", 60_000)
    with pytest.raises(ps.ConfigError, match="timeout"):
        session.sql_with_timeout("SELECT 1", "soon")


def test_from_env_refuses_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "PENSTOCK_URL", "http://127.0.0.1:8080")
    with pytest.raises(ps.ConfigError, match="no remote sessions"):
        ps.Session.from_env()
