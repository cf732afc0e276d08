"""`on_error` of a `sql` node: rows for which its query fails are left out, all others are what Spark makes of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from one_pipeline import Pipeline
from penstock.errors import PenstockError
from penstock.pipeline.case import run_tests
from penstock.pipeline.evaluator import Evaluator
from penstock.pipeline.failed_rows import FailedRows
from penstock.pipeline.load import check_text
from penstock.sinks.file import FileSink
from penstock.spark.micro_batch import failing_rows

BODY = """
transforms:
  shares:
    type: sql
    sql: {sql}
    on_error: {on_error}
  large: {{type: sql, sql: "SELECT id, share FROM shares WHERE share > 10"}}
sinks:
  all: {{type: file, from: orders, path: "{folder}/all", format: json}}
  rows: {{type: file, from: shares, path: "{folder}/rows", format: json}}
  large_rows: {{type: file, from: large, path: "{folder}/large", format: json}}
"""
SHARE = "SELECT id, amount div parts AS share FROM orders"


class Shares(Pipeline):
    """With one query that divides, where a test says nothing else."""

    def text(self, body: str = BODY, **values: str) -> str:
        return super().text(body, **{"sql": SHARE, "on_error": "dead_letter", **values})


@pytest.fixture
def pipeline(session: ps.Session, tmp_path: Path) -> Shares:
    return Shares(session, tmp_path)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether rows that fail were found, each time that somebody has looked for them."""
    times: list[bool] = []
    failing = failing_rows.failing

    def counted(*frames: Any) -> Any:
        found = failing(*frames)
        times.append(found is not None)
        return found

    monkeypatch.setattr("penstock.transforms.failing_query.failing", counted)
    return times


def test_rows_that_fail_are_letters(pipeline: Shares, looked: list[bool]) -> None:
    text = pipeline.text()
    pipeline.feed((1, 100, 5, "a"), (2, 7, 2, "b"))
    assert pipeline.run(text) is None
    assert looked == []  # nobody has looked: nothing has failed
    pipeline.feed((3, 1, 0, "c"), (4, 50, 2, "d"), (5, 2, 0, "e"))
    assert pipeline.run(text) is None
    assert pipeline.rows("rows", "id", "share") == [(1, 20), (2, 3), (4, 25)]
    assert pipeline.rows("large", "id") == [(1,), (4,)]
    assert pipeline.rows("all", "id") == [(1,), (2,), (3,), (4,), (5,)]
    letters = pipeline.letters(text)
    assert [letter[:2] for letter in letters] == [("shares", 3), ("shares", 5)]
    assert letters[0][2].startswith("[DIVIDE_BY_ZERO] Division by zero.")
    assert letters[0][2].endswith("SQLSTATE: 22012")
    assert pipeline.failed == [{}, {"shares": 2}]
    # The letters come again when the query was repaired, into its node alone.
    repaired = pipeline.text(sql="SELECT id, amount div greatest(parts, 1) AS share FROM orders")
    run = pipeline.planned(repaired)
    pipeline.waiting(repaired).ask(run.plan)
    run.replay("")
    assert pipeline.rows("rows", "id", "share") == [(1, 20), (2, 3), (3, 1), (4, 25), (5, 2)]
    assert len(pipeline.rows("all", "id")) == 5
    assert pipeline.letters(repaired) == []


def test_rows_that_fail_are_dropped_and_counted(pipeline: Shares) -> None:
    text = pipeline.text(on_error="drop", sql="SELECT id, CAST(word AS INT) AS share FROM orders")
    pipeline.feed((1, 1, 1, "12"), (2, 1, 1, "x"), (3, 1, 1, "3"))
    assert pipeline.run(text) is None
    assert pipeline.rows("rows", "id", "share") == [(1, 12), (3, 3)]
    assert pipeline.failed == [{"shares": 1}]


def test_an_epoch_behind_one_with_failures_looks_at_once(pipeline: Shares, looked: list[bool]) -> None:
    text = pipeline.text().replace("{type: bounded}", "{type: bounded}\n    max_files: 1")
    for at in range(4):
        pipeline.feed((at, 1, 0 if at == 1 else 1, "a"))
        os.utime(pipeline.folder / "in" / f"{at}.json", (at, at))
    assert pipeline.run(text) is None
    assert pipeline.rows("rows", "id") == [(0,), (2,), (3,)]
    assert pipeline.failed == [{}, {"shares": 1}, {}, {}]
    assert looked == [True, False, False]


def test_a_node_fails_for_what_nobody_reads_of_it(pipeline: Shares) -> None:
    """Whether a row fails does not depend on who reads it: a query is evaluated by itself."""
    body = """
transforms:
  shares: {{type: sql, sql: "{sql}", on_error: dead_letter}}
  ids: {{type: sql, sql: SELECT id FROM shares WHERE id <> 2}}
sinks:
  rows: {{type: file, from: ids, path: "{folder}/rows", format: json}}
"""
    text = pipeline.text(body)
    pipeline.feed((1, 1, 1, "a"), (2, 1, 0, "b"), (3, 1, 0, "c"))
    assert pipeline.run(text) is None
    assert pipeline.rows("rows", "id") == [(1,)]
    assert [letter[1] for letter in pipeline.letters(text)] == [2, 3]


@pytest.mark.parametrize("where", ["sink", "letters"])
def test_an_epoch_that_comes_again_has_the_same_letters(
    pipeline: Shares, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    text = pipeline.text()
    pipeline.feed((1, 100, 5, "a"), (2, 7, 0, "b"), (3, 7, 0, "c"))
    with monkeypatch.context() as patch:
        if where == "sink":
            write = FileSink.write
            written: list[int] = []

            def killed_behind_one(self: FileSink, epoch: Any) -> Any:
                if written:
                    raise RuntimeError("killed")
                result = write(self, epoch)
                if "rows" in self.describe():
                    written.append(1)
                return result

            patch.setattr(FileSink, "write", killed_behind_one)
        else:

            def killed_before_letters(self: FailedRows, epoch: int, rows: Any) -> int:
                raise RuntimeError("killed")

            patch.setattr(FailedRows, "write", killed_before_letters)
        error = pipeline.run(text)
        assert error is not None
        assert "killed" in error.message
    assert pipeline.run(text) is None
    assert pipeline.rows("rows", "id") == [(1,)]
    assert pipeline.rows("large", "id") == [(1,)]
    assert [letter[1] for letter in pipeline.letters(text)] == [2, 3]
    assert pipeline.failed[-1] == {"shares": 2}
    before = pipeline.letters(text)
    # Once more, when the letters were written and their epoch was not noted.
    pipeline.feed((7, 7, 0, "g"))
    with monkeypatch.context() as patch:

        def killed(self: Evaluator, epoch: int) -> None:
            raise RuntimeError("killed")

        patch.setattr(Evaluator, "commit", killed)
        assert pipeline.run(text) is not None
    assert pipeline.run(text) is None
    assert [letter[1] for letter in pipeline.letters(text)] == [2, 3, 7]
    assert pipeline.letters(text)[:2] == before


def test_several_nodes_and_a_view(pipeline: Shares) -> None:
    """Rows fail in several nodes, above and below a view, which reads its rows while the epoch is computed."""
    body = """
transforms:
  numbers: {{type: sql, sql: "SELECT *, CAST(word AS INT) AS number FROM orders", on_error: dead_letter}}
  totals:
    type: view
    primary_key: parts
    sql: SELECT parts, sum(number) AS total FROM numbers GROUP BY parts
  shares:
    type: sql
    primary_key: parts
    sql: SELECT parts, total div parts AS share FROM totals
    on_error: dead_letter
sinks:
  rows: {{type: file, from: shares, path: "{folder}/rows", format: json}}
  totals_rows: {{type: file, from: totals, path: "{folder}/totals", format: json}}
"""
    text = pipeline.text(body)
    pipeline.feed((1, 1, 1, "10"), (2, 1, 0, "5"), (3, 1, 2, "x"), (4, 1, 2, "8"))
    assert pipeline.run(text) is None
    assert pipeline.rows("rows", "parts", "share", "_op") == [(1, 10, "i"), (2, 4, "i")]
    assert pipeline.rows("totals", "parts", "total") == [(0, 5), (1, 10), (2, 8)]
    assert pipeline.failed == [{"numbers": 1, "shares": 1}]
    # An update that fails is the delete of its key; the view goes on.
    pipeline.feed((5, 1, 0, "6"), (6, 1, 1, "1"))
    assert pipeline.run(text) is None
    assert (0, None, "d") in pipeline.rows("rows", "parts", "share", "_op")
    assert (1, 11, "u") in pipeline.rows("rows", "parts", "share", "_op")
    assert [(node, row) for node, row in letters_of(pipeline, text)] == [
        ("numbers", "x"),
        ("shares", 0),
        ("shares", 0),
    ]


def letters_of(pipeline: Shares, text: str) -> list[tuple[str, Any]]:
    rows = [(row.node, json.loads(row.row)) for row in pipeline.waiting(text).frame().collect()]
    return sorted((node, row["word"] if node == "numbers" else row["parts"]) for node, row in rows)


def test_an_update_whose_key_cannot_be_computed_is_gone(pipeline: Shares) -> None:
    body = """
transforms:
  totals: {{type: view, primary_key: word, sql: "SELECT word, sum(amount) AS total FROM orders GROUP BY word"}}
  numbers:
    type: sql
    primary_key: number
    sql: SELECT CAST(word AS INT) AS number, total FROM totals
    on_error: drop
sinks:
  rows: {{type: file, from: numbers, path: "{folder}/rows", format: json}}
"""
    text = pipeline.text(body)
    pipeline.feed((1, 1, 1, "10"), (2, 1, 0, "x"))
    assert pipeline.run(text) is None
    pipeline.feed((3, 1, 1, "10"), (4, 1, 0, "x"))
    assert pipeline.run(text) is None
    assert pipeline.rows("rows", "number", "total", "_op") == [(10, 1, "i"), (10, 2, "u")]
    assert pipeline.failed == [{"numbers": 1}, {"numbers": 1}]


def test_a_script_above_is_asked_once(pipeline: Shares) -> None:
    body = """
transforms:
  seen: {{type: script, from: orders, language: javascript, primary_key: id, on_error: dead_letter, schema: {{id: int64, parts: int64}},
    script: "function invoke(row) {{ if (row.word === 'bad') throw new Error('bad'); return {{id: row.id, parts: row.parts}} }}"}}
  shares: {{type: sql, sql: "SELECT id, 10 div parts AS share FROM seen", on_error: dead_letter}}
sinks:
  rows: {{type: file, from: shares, path: "{folder}/rows", format: json}}
  seen_rows: {{type: file, from: seen, path: "{folder}/seen", format: json}}
"""
    text = pipeline.text(body)
    pipeline.feed((1, 1, 1, "a"), (2, 1, 0, "b"), (3, 1, 2, "bad"))
    assert pipeline.run(text) is None
    assert pipeline.rows("rows", "id", "share") == [(1, 10)]
    assert pipeline.rows("seen", "id") == [(1,), (2,)]
    assert pipeline.failed == [{"seen": 1, "shares": 1}]
    assert [letter[:2] for letter in pipeline.letters(text)] == [("seen", 3), ("shares", 2)]


def test_a_lookup_and_a_union_of_the_rows_of_one_node(pipeline: Shares) -> None:
    (pipeline.folder / "rates.csv").write_text("parts,rate\n0,0\n1,1\n2,4\n")
    body = """
transforms:
  rates: {{type: lookup, backend: file, path: "{folder}/rates.csv", schema: {{parts: int64, rate: int64}}}}
  shares:
    type: sql
    sql: SELECT id, amount div rate AS share FROM rates JOIN orders USING (parts) UNION ALL SELECT id, CAST(word AS BIGINT) FROM orders
    on_error: drop
sinks:
  rows: {{type: file, from: shares, path: "{folder}/rows", format: json}}
"""
    text = pipeline.text(body)
    pipeline.feed((1, 8, 2, "7"), (2, 8, 0, "7"), (3, 8, 1, "x"), (4, 9, 9, "9"))
    assert pipeline.run(text) is None
    # A row fails as a whole: what another part of the union makes of it is gone, too.
    assert pipeline.rows("rows", "id", "share") == [(1, 2), (1, 7), (4, 9)]
    assert pipeline.failed == [{"shares": 2}]


def test_an_error_of_another_node_is_not_swallowed(pipeline: Shares) -> None:
    body = """
transforms:
  shares: {{type: sql, sql: "SELECT id, parts, word FROM orders WHERE CAST(word AS INT) > 0", on_error: drop}}
  strict: {{type: sql, sql: "SELECT id, 1 div parts AS share FROM shares"}}
sinks:
  rows: {{type: file, from: strict, path: "{folder}/rows", format: json}}
"""
    pipeline.feed((1, 1, 1, "1"), (2, 1, 0, "1"), (3, 1, 1, "x"))
    error = pipeline.run(pipeline.text(body))
    assert error is not None
    assert error.code == "DATA_DIVIDE_BY_ZERO"
    assert pipeline.rows("rows", "id") == []


def test_tests_of_a_pipeline_leave_failing_rows_out(pipeline: Shares) -> None:
    text = (
        pipeline.text()
        + """
tests:
  - name: zero
    given: {orders: [{id: 1, amount: 6, parts: 2}, {id: 2, amount: 6, parts: 0}]}
    expect: {shares: [{id: 1, share: 3}], large_rows: []}
"""
    )
    [outcome] = run_tests(pipeline.session, check_text(text, "p.yaml").spec)
    assert outcome.error is None
    assert outcome.differences == ()


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT id, rand() AS share FROM orders", "it has random values"),
        ("SELECT /*+ REPARTITION(3) */ id, 1 AS share FROM orders", "exchange of rows"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(pipeline: Shares, sql: str, said: str) -> None:
    with pytest.raises(PenstockError, match=said) as raised:
        pipeline.planned(pipeline.text(sql=sql))
    assert raised.value.code == "PIPELINE_ON_ERROR"
    assert str(raised.value.where).startswith("p.yaml:")
