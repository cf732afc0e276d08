"""Delta tables as sources, in a process of its own: Delta takes the place of Spark's own catalog in a session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import penstock as ps
from lake_history import bag

session = ps.Session.embedded(
    master="local[2]", connectors=("delta",), flow="flow", conf={"spark.sql.warehouse.dir": "warehouse"}
)
spark, sql = session.spark, session.sql
query = "SELECT g, count(*) AS n, sum(v) AS total FROM {} GROUP BY g"


def compare(rows_in):
    sql("REFRESH INCREMENTAL VIEW totals")
    assert session.last_step is None or session.last_step.rows_in == rows_in, session.last_step
    expected = bag(spark.sql(query.format("t")).collect())
    assert bag(sql("SELECT * FROM totals").collect()) == expected, expected


spark.sql("CREATE TABLE t (k BIGINT, g INT, v BIGINT) USING delta")
spark.sql("INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30), (3, 2, 30)")
try:
    sql("CREATE SOURCE s FROM TABLE t")
    raise AssertionError("a table without a change data feed was taken")
except ps.ConfigError as error:
    assert error.code == "FLOW_TABLE_FEED", error
    assert "delta.enableChangeDataFeed" in error.hint
spark.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
sql("CREATE SOURCE s FROM TABLE t")
sql(f"CREATE INCREMENTAL VIEW totals AS {query.format('s')}")
compare(0)
spark.sql("DELETE FROM t WHERE k = 1")
spark.sql("UPDATE t SET v = v + 1, g = 9 WHERE k = 3")
spark.sql("INSERT INTO t VALUES (4, NULL, 4)")
compare(6)
spark.sql("OPTIMIZE t")
compare(0)
spark.sql("MERGE INTO t USING (SELECT 2 AS k UNION ALL SELECT 7) s ON t.k = s.k "
          "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k, g, v) VALUES (s.k, 1, 1)")
compare(2)
spark.sql("INSERT OVERWRITE t VALUES (5, 5, 5)")
compare(5)
print("done")
session.stop()
"""


def test_a_view_follows_a_delta_table_through_its_change_feed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["done"], done.stderr[-4000:]
