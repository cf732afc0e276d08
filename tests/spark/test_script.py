"""Statements run and printed as the command line does, in the shared session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import penstock as ps
from penstock.cli.output import Format
from penstock.cli.script import Printing, run_statement
from penstock.spark import arrow_stream


def test_rows_are_printed_and_statements_without_rows_are_silent(
    session: ps.Session, capsys: pytest.CaptureFixture[str]
) -> None:
    run_statement(
        session, "CREATE OR REPLACE TEMP VIEW printed AS SELECT 1 AS one, NULL AS nothing", Printing()
    )
    run_statement(session, "SELECT * FROM printed", Printing())
    run_statement(session, "SELECT * FROM printed WHERE one = 2", Printing())
    out, err = capsys.readouterr()
    head = " one │ nothing\n─────┼─────────\n"
    assert out == head + "   1 │ NULL\n" + head
    assert err == ""


def test_a_large_result_is_printed_while_it_arrives(
    session: ps.Session, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_stream, "SPOOLED_BYTES", 1000)
    run_statement(session, "SELECT id FROM range(0, 5000, 1, 3) ORDER BY id", Printing(Format.JSON))
    out, _ = capsys.readouterr()
    assert [json.loads(line)["id"] for line in out.splitlines()] == list(range(5000))


def test_every_type_that_spark_has_can_be_printed(
    session: ps.Session, capsys: pytest.CaptureFixture[str]
) -> None:
    query = """
        SELECT 1Y AS b, 1.5F AS f, true AS t, date'2024-02-29' AS d, timestamp_ntz'2024-01-01 00:00:00' AS n,
               X'00ff' AS x, array(1, NULL) AS a, map('k', 1) AS m, named_struct('s', 'v') AS s,
               interval '1 02:00:00' day to second AS i, void AS v
        FROM (SELECT NULL AS void)
    """
    run_statement(session, query, Printing(Format.JSON))
    assert json.loads(capsys.readouterr().out) == {
        "b": 1,
        "f": 1.5,
        "t": True,
        "d": "2024-02-29",
        "n": "2024-01-01T00:00:00",
        "x": "AP8=",
        "a": [1, None],
        "m": {"k": 1},
        "s": {"s": "v"},
        "i": "P1DT2H",
        "v": None,
    }


def test_an_error_while_rows_are_made_has_its_place_in_the_users_text(
    session: ps.Session, tmp_path: Path
) -> None:
    (tmp_path / "numbers.csv").write_text("n\n0\n")
    query = f"SELECT 1 / n FROM '{tmp_path}/numbers.csv'"
    with pytest.raises(ps.PenstockError) as caught:
        run_statement(session, query, Printing())
    assert str(caught.value.where).startswith("line 1, column 8\n")


def test_a_timeout_is_seconds(session: ps.Session) -> None:
    with pytest.raises(ps.QueryTimeout, match=r"longer than 500 ms"):
        run_statement(
            session,
            "SELECT count(*) FROM range(1000000000000) CROSS JOIN range(100000)",
            Printing(timeout=0.5),
        )
