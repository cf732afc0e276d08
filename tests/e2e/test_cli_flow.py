"""Sources and incremental views on the command line: a script, the next run, and a look from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """\
-- what customers have ordered
CREATE SOURCE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, customer STRING, amount DECIMAL(10,2));
CREATE INCREMENTAL VIEW IF NOT EXISTS totals AS
  SELECT customer, SUM(amount) AS total /* ; */ FROM orders GROUP BY customer;
INSERT INTO orders VALUES (1, 'ann', 2), (2, 'b;b', 3.5);
UPDATE orders SET amount = amount + 1 WHERE customer = 'ann';
SELECT * FROM totals ORDER BY customer;
"""


def penstock(folder: Path, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        cwd=folder,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        env={**os.environ, "PENSTOCK_FLOW": "flows/orders"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_flow_directory_lives_on_between_commands(tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_text(SCRIPT)
    first = penstock(tmp_path, "sql", "-f", "script.sql", "-o", "csv", "--memory", "1MB")
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == "customer,total\nann,3.00\nb;b,3.50\n"

    (tmp_path / "new.json").write_text('{"id": 3, "customer": "ann", "amount": 10}\n')
    ticked = penstock(tmp_path, "views", "flows/orders", "tick", "orders", "new.json")
    assert (ticked.returncode, ticked.stderr) == (0, "")
    assert ticked.stdout.startswith("tick 3: 1 rows in, 2 out")

    typed = "SELECT total FROM totals\nWHERE customer = 'ann';\n\nDELETE FROM orders\nWHERE idd = 1;\n"
    second = penstock(tmp_path, "shell", "-o", "json", stdin=typed)
    assert second.stdout == '{"total": 13.00}\n'
    assert second.returncode == 2
    assert "line 2, column 7\n" in second.stderr
    assert "did you mean 'id'?" in second.stderr

    snapshot = penstock(tmp_path, "views", "flows/orders", "snapshot", "totals", "-o", "json")
    assert [json.loads(line)["customer"] for line in snapshot.stdout.splitlines()] == ["ann", "b;b"]


def test_a_mistake_is_told_whatever_the_sinks_of_the_flow_do(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[catalogs.lake]\ntype = "hadoop"\nwarehouse = "lake"\n')
    script = """
        CREATE TABLE lake.db.orders (id BIGINT, amount BIGINT) USING iceberg;
        CREATE INCREMENTAL VIEW lake.db.total AS SELECT SUM(amount) AS total FROM lake.db.orders;
        INSERT INTO lake.db.orders VALUES (1, 20);
        REFRESH INCREMENTAL VIEW lake.db.total;
        SELECT * FROM lake.db.total
    """
    made = penstock(tmp_path, "sql", script, "-o", "csv")
    assert (made.returncode, made.stderr, made.stdout) == (0, "", "total\n20\n")
    # The table of the view is still being opened when the mistake is found.
    wrong = penstock(tmp_path, "sql", "REFRESH INCREMENTAL VIEW lake.db.totals")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "view 'lake.db.totals' is not known" in wrong.stderr
    assert "did you mean 'lake.db.total'?" in wrong.stderr


def test_a_memory_that_is_no_size_is_found_before_spark_starts(tmp_path: Path) -> None:
    for words in (["sql", "SELECT 1", "--memory", "lots"], ["shell", "--memory", "2 XB"]):
        wrong = penstock(tmp_path, *words, stdin="SELECT 1;")
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert "flow_memory" in wrong.stderr
    assert not (tmp_path / "flows").exists()


def test_a_mistyped_keyword_is_found_before_spark_starts(tmp_path: Path) -> None:
    wrong = penstock(tmp_path, "sql", "SELECT 1;\nCREATE INCREMENTL VIEW v AS SELECT 1")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "line 2, column 8\n" in wrong.stderr
    assert "did you mean INCREMENTAL?" in wrong.stderr
    assert not (tmp_path / "flows").exists()
