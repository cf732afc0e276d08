from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from penstock.cli.backslash import interpret
from penstock.cli.complete import CompletionNames, candidates, relations
from penstock.cli.output import Format, Written
from penstock.cli.prompt import is_finished, make_prompt
from penstock.cli.script import Printing, summary
from penstock.errors import ConfigError
from penstock.sql.lexer import significant

COLUMNS = {"orders": ("id", "amount", "at"), "'c.csv'": ("name",)}
NAMES = CompletionNames(
    tables=("orders", "stores", "lake.items"), functions=("abs", "avg"), columns=lambda n: COLUMNS.get(n, ())
)


def _texts(before: str) -> list[str]:
    return [found.text for found in candidates(before, NAMES)]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("SEL", ["SELECT"]),
        ("sel", ["select"]),
        ("SELECT * FROM st", ["stores"]),
        ("SELECT * FROM orders WHERE am", ["amount"]),
        ("SELECT * FROM orders o WHERE o.", ["id", "amount", "at"]),
        ("SELECT * FROM orders AS o WHERE o.a", ["amount", "at"]),
        ("SELECT * FROM 'c.csv' WHERE n", ["name", "natural", "not", "null", "nulls"]),
        ("SELECT * FROM lake.", ["items"]),
        ("SELECT av", ["avg"]),
        ("SELECT 'it' -- fr", []),
        ("SELECT 12", []),
    ],
)
def test_completion(before: str, expected: list[str]) -> None:
    assert _texts(before) == expected


def test_columns_are_known_from_what_stands_behind_the_cursor() -> None:
    assert [found.text for found in candidates("SELECT am", NAMES, " FROM orders")] == ["amount"]


def test_files_are_completed_inside_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "orders.parquet").touch()
    (tmp_path / "data" / ".hidden").touch()
    monkeypatch.chdir(tmp_path)
    assert _texts("SELECT * FROM 'da") == ["data/"]
    assert _texts("SELECT * FROM 'data/") == ["orders.parquet"]
    assert _texts(f"SELECT * FROM '{tmp_path}/data/o") == ["orders.parquet"]
    assert _texts("SELECT * FROM 'nowhere/") == []


def test_relations_by_alias() -> None:
    words = significant("SELECT 1 FROM a JOIN db.b AS x ON true JOIN `c` y WHERE true")
    assert relations(words) == {"a": "a", "x": "db.b", "y": "`c`"}


@pytest.mark.parametrize(
    ("typed", "finished"),
    [
        ("", True),
        ("\\d", True),
        ("exit", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT ';", False),
    ],
)
def test_enter_runs_what_is_finished(typed: str, finished: bool) -> None:
    assert is_finished(typed) is finished


def test_the_prompt_takes_several_lines_and_remembers_them(tmp_path: Path) -> None:
    history = tmp_path / "home" / "history"
    with create_pipe_input() as typed:
        prompt = make_prompt(history, NAMES, input=typed, output=DummyOutput())
        typed.send_text("SELECT 1,\r 2;\r")
        assert prompt.prompt() == "SELECT 1,\n 2;"
    assert "+ 2;" in history.read_text()


def test_backslash_commands() -> None:
    plain = Printing(summary=True)
    assert interpret("\\d", plain).statement == "SHOW TABLES"
    assert interpret("\\d lake.items;", plain).statement == "DESCRIBE TABLE lake.items"
    assert interpret("\\d 'a.csv'", plain).statement == "DESCRIBE QUERY SELECT * FROM 'a.csv'"
    assert interpret("\\output json", plain).printing.output is Format.JSON
    assert interpret("\\limit 5", plain).printing.limit == 5
    assert interpret("\\timing", plain).printing.summary is False
    assert interpret("\\q", plain).leave
    assert "\\timing" in str(interpret("\\?", plain).say)


@pytest.mark.parametrize("line", ["\\x", "\\output xml", "\\output", "\\limit many"])
def test_wrong_backslash_commands_say_what_is_right(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        interpret(line, Printing())
    assert caught.value.hint


def test_the_summary_counts_rows() -> None:
    assert summary(Written(1), 0.5) == "1 row in 0.50 s"
    assert summary(Written(12345), 2) == "12,345 rows in 2.00 s"
