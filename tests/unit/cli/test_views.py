"""`penstock views`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import penstock as ps
from penstock.cli.main import main
from penstock.cli.rows_file import read_rows
from penstock.plan.node import Field

ORDERS = "id BIGINT NOT NULL, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"
FIELDS = (
    Field("id", "bigint", False),
    Field("customer", "string", True),
    Field("amount", "decimal(10,2)", True),
    Field("at", "timestamp", True),
)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A flow with two sources and a view that needs no Spark."""
    monkeypatch.chdir(tmp_path)
    with ps.IncrementalFlow(path="flows/orders") as flow:
        flow.register_source("orders", ORDERS, primary_key="id")
        flow.register_source("prices", "customer STRING, at TIMESTAMP, price BIGINT")
        flow.register_asof_view(
            "priced",
            left="orders",
            right="prices",
            by="customer",
            left_time="at",
            right_time="at",
            columns=["price"],
        )
        flow.tick("orders", [{"id": 1, "customer": "ann", "amount": 5, "at": None}])
    return "flows/orders"


def test_the_list(directory: str, capsys: pytest.CaptureFixture[str]) -> None:
    with ps.IncrementalFlow(path=directory):  # open elsewhere
        assert main(["views", directory, "-o", "json"]) == 0
    orders, prices, priced = map(json.loads, capsys.readouterr().out.splitlines())
    assert (orders["name"], orders["kind"], orders["rows"], orders["primary_key"]) == (
        "orders",
        "source",
        1,
        "id",
    )
    assert (prices["rows"], prices["primary_key"]) == (0, None)
    assert (priced["kind"], priced["tier"], priced["reads"]) == ("view", "kernel", "orders, prices")
    assert main(["views", "list", directory]) == 0
    table = capsys.readouterr().out
    assert "priced" in table
    assert "suspended" not in table


def test_explain_and_snapshot(directory: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["views", directory, "explain", "priced"]) == 0
    assert capsys.readouterr().out.startswith("priced: kernel\n")
    assert main(["views", directory, "snapshot", "orders", "-o", "csv"]) == 0
    assert capsys.readouterr().out == "id,customer,amount,at\n1,ann,5.00,\n"
    assert main(["views", "snapshot", directory, "priced", "--output", "json", "--limit", "0"]) == 0
    assert capsys.readouterr().out == ""


def test_ticks(directory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.csv").write_text("id,customer,amount,at\n2,bob,1.5,2024-05-01 10:00:00\n3,,,\n")
    assert main(["views", directory, "tick", "orders", "new.csv", "--ordinal", "7"]) == 0
    assert capsys.readouterr().out.startswith("tick 2: 2 rows in, 2 out")
    assert main(["views", directory, "tick", "ORDERS", "new.csv", "--ordinal", "7", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows_in"] == 0
    (tmp_path / "gone.json").write_text('{"id": 2}\n')
    assert main(["views", directory, "tick", "orders", "gone.json", "--delete"]) == 0
    (tmp_path / "both.csv").write_text("_weight,id,customer,amount,at\n1,9,,,\n-1,3,,,\n")
    assert main(["views", directory, "tick", "orders", "both.csv"]) == 0
    capsys.readouterr()
    assert main(["views", directory, "snapshot", "orders", "-o", "json"]) == 0
    assert sorted(json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()) == [1, 9]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["flows/order"], 1, "there is no flow here"),
        (["flows/order", "tick", "orders", "new.csv"], 1, "there is no flow here"),
        (["flows/orders", "explian", "priced"], 2, "did you mean 'explain'?"),
        (["flows/orders", "explain", "pricd"], 2, "did you mean 'priced'?"),
        (["flows/orders", "explain"], 2, "missing argument 'NAME'"),
        (["flows/orders", "snapshot", "order"], 2, "did you mean 'orders'?"),
        (["flows/orders", "tick", "priced", "new.csv"], 2, "only sources are fed"),
        (["flows/orders", "tick", "orders", "missing.csv"], 2, "no file"),
        (["flows/orders", "tick", "orders", "notes.txt"], 2, "readable are"),
        (["flows/orders", "tick", "orders", "bad.csv"], 1, "cannot read"),
        (["flows/orders", "tick", "orders", "weighted.csv", "--delete"], 2, "leave --delete out"),
    ],
)
def test_mistakes(
    directory: str,
    tmp_path: Path,
    words: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "new.csv").write_text("id\n1\n")
    (tmp_path / "bad.csv").write_text("id,amount\none,2\n")
    (tmp_path / "weighted.csv").write_text("id,_weight\n1,-1\n")
    assert main(["views", *words]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "flows" / "order").exists()


def test_a_tick_needs_the_directory_for_itself(
    directory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new.csv").write_text("id\n7\n")
    with ps.IncrementalFlow(path=directory):
        assert main(["views", directory, "tick", "orders", "new.csv"]) == 1
    shown = capsys.readouterr().err
    assert "the flow is open in process" in shown
    assert "hint: close it there first" in shown


def test_every_format_gives_the_same_rows(tmp_path: Path) -> None:
    rows = [{"id": 1, "customer": "a, b", "amount": "1.50", "at": "2024-05-01T10:00:00"}]
    (tmp_path / "rows.csv").write_text('id,customer,amount,at\n1,"a, b",1.50,2024-05-01T10:00:00\n')
    (tmp_path / "rows.tsv").write_text("id\tcustomer\tamount\tat\n1\ta, b\t1.50\t2024-05-01T10:00:00\n")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = read_rows(tmp_path / "rows.csv", FIELDS)
    parquet.write_table(table, tmp_path / "rows.parquet")
    feather.write_feather(table, tmp_path / "rows.feather")
    with pa.ipc.new_stream(tmp_path / "rows.arrow", table.schema) as writer:
        writer.write_table(table)
    tables = [
        read_rows(tmp_path / f"rows.{form}", FIELDS)
        for form in ("tsv", "jsonl", "parquet", "feather", "arrow")
    ]
    assert [one.to_pylist() for one in tables] == [table.to_pylist()] * 5
    assert table.schema.field("at").type.tz == "UTC"


def test_empty_texts_and_nulls_of_csv(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('id,customer\n1,\n2,""\n3,NULL\n')
    assert read_rows(tmp_path / "rows.csv", FIELDS).column("customer").to_pylist() == [None, "", "NULL"]


def test_an_array_of_objects(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('[{"id": 1,\n "customer": "a"}, {"id": 2}]')
    assert read_rows(tmp_path / "rows.json", FIELDS).column("id").to_pylist() == [1, 2]
