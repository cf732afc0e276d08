"""`penstock sql` as its users run it: a process with arguments, stdin, stdout, stderr and an exit code."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stores.csv").write_text("id,city\n1,Lisbon\n2,Bergen\n3,\n")
    (tmp_path / "sales.json").write_text('{"store": 1, "amount": 2.5}\n{"store": 2, "amount": 4.0}\n')
    return tmp_path


def penstock(folder: Path, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        cwd=folder,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.smoke
def test_files_are_joined_and_written_as_csv(folder: Path) -> None:
    query = (
        "SELECT stores.city, s.amount FROM 'stores.csv' JOIN 'sales.json' s ON s.store = stores.id "
        "WHERE city <> 'sales.json' ORDER BY 1"
    )
    done = penstock(folder, "sql", query, "--output", "csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(csv.reader(io.StringIO(done.stdout))) == [
        ["city", "amount"],
        ["Bergen", "4.0"],
        ["Lisbon", "2.5"],
    ]


def test_a_script_from_stdin_prints_each_result_as_json(folder: Path) -> None:
    script = """
        CREATE TEMPORARY VIEW big AS SELECT 9007199254740993 AS n, 1.10BD AS d, CAST('NaN' AS DOUBLE) AS x;
        SELECT *, timestamp'2024-01-02 03:04:05' AS at, ';' AS semicolon FROM big; -- and ;
        SELECT city FROM 'stores.csv' ORDER BY id
    """
    done = penstock(folder, "sql", "-", "-o", "json", "-c", "spark.sql.session.timeZone=UTC", stdin=script)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"d": 1.10' in done.stdout
    first, *cities = map(json.loads, done.stdout.splitlines())
    assert first["n"] == 9007199254740993
    assert (first["x"], first["semicolon"]) == ("NaN", ";")
    assert first["at"] == "2024-01-02T03:04:05+00:00"
    assert [row["city"] for row in cities] == ["Lisbon", "Bergen", None]


def test_arrow_is_read_by_arrow_and_a_limit_holds(folder: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock",
            "sql",
            "SELECT id, id * 2 AS twice FROM range(5000)",
            "-o",
            "arrow",
            "-n",
            "3000",
        ],
        cwd=folder,
        capture_output=True,
        timeout=240,
        check=True,
    )
    table = pa.ipc.open_stream(done.stdout).read_all()
    assert table.num_rows == 3000
    assert table.column_names == ["id", "twice"]


def test_a_syntax_error_shows_its_place(folder: Path) -> None:
    done = penstock(folder, "sql", "SELECT city\nFROM 'stores.csv' s WHER id = 1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "  at: line 2, column 21\n    FROM 'stores.csv' s WHER id = 1\n" + " " * 24 + "^" in done.stderr
    assert "Traceback" not in done.stderr
    assert "org.apache.spark" not in done.stderr


def test_an_unknown_column_suggests_the_nearest(folder: Path) -> None:
    done = penstock(folder, "sql", "SELECT citty FROM 'stores.csv'")
    assert done.returncode == 2
    assert "city" in done.stderr
    assert "    SELECT citty FROM 'stores.csv'\n           ^^^^^" in done.stderr


def test_a_run_that_fails_exits_with_one_and_debug_shows_why(folder: Path) -> None:
    done = penstock(folder, "sql", "SELECT 1 / (id - 1) FROM range(3)", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "error: " in done.stderr


def test_a_timeout_ends_the_run(folder: Path) -> None:
    done = penstock(
        folder,
        "sql",
        "SELECT count(*) FROM range(1000000000000) a CROSS JOIN range(1000000)",
        "--timeout",
        "1",
    )
    assert done.returncode == 1
    assert "error: the query ran longer than 1 s" in done.stderr


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["sql", "SELECT * FROM 'store.csv'"], "no file '", "did you mean 'stores.csv'?"),
        (["sql", "SELECT * FROM 'a.txt'"], "no file '", "hint: "),
        (["sql", "SELECT 1", "--conf", "spark.x"], "'spark.x' is not KEY=VALUE", "hint: "),
        (["sql", "SELECT 1", "--outptu", "csv"], "no such option", "penstock sql --help"),
        (["sql", "SELECT 1", "-f", "x.sql"], "both a query and --file", "hint: "),
        (["sql", "-f", "missing.sql"], "cannot read '", "missing.sql"),
        (["sql", " ; -- nothing"], "there is no statement", "hint: "),
    ],
)
def test_wrong_input_is_refused_before_spark_starts(
    folder: Path, words: list[str], message: str, hint: str
) -> None:
    done = penstock(folder, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr.lower().replace("key=value", "KEY=VALUE")
    assert hint in done.stderr


def test_a_reader_that_leaves_is_no_error(folder: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m penstock sql 'SELECT id FROM range(200000)' -o csv | head -2",
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("id\n0\n", "")
