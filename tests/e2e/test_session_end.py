"""What ends with a session: needs a process of its own, because the tests of tests/spark share one Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os
import threading
import time
import psutil
import pytest
import penstock as ps

first = ps.Session.embedded(master="local[1]")
first.register_table("orders", [{"id": 1}])
op = first.submit("SELECT count(*) FROM range(0, 10000000000000L, 1, 4) WHERE id % 7 = 3")
while op.state != "RUNNING":
    time.sleep(0.01)
began = time.monotonic()
first.stop()
first.stop()
assert time.monotonic() - began < 60
assert op.state == "CANCELLED", op.state
with pytest.raises(ps.StateError, match="was cancelled"):
    op.result(timeout=1)
for use in (
    lambda: first.sql("SELECT 1"),
    lambda: first.spark,
    lambda: first.sql_with_timeout("SELECT 1", 1000),
    lambda: first.submit("SELECT 1"),
    lambda: first.read_csv("x.csv"),
    lambda: first.register_table("t", [{"id": 1}]),
    lambda: first.explain_stages("SELECT 1"),
):
    with pytest.raises(ps.StateError, match="this session is stopped") as caught:
        use()
    assert caught.value.code == "SESSION_STOPPED"

with ps.Session.embedded(master="local[1]") as second:
    assert second.submit("SELECT 2 AS two").result(timeout=120).to_pylist() == [{"two": 2}]
    with pytest.raises(ps.SqlError, match="no table or view 'orders'"):
        second.sql("SELECT * FROM orders")
    processes = psutil.process_iter(["ppid", "name"])
    [jvm] = [child for child in processes if child.info["ppid"] == os.getpid() and child.info["name"] == "java"]

    def kill():
        while not second.spark.sparkContext.statusTracker().getActiveJobsIds():
            time.sleep(0.01)
        jvm.kill()

    threading.Thread(target=kill).start()
    with pytest.raises(ps.StateError, match="Spark has ended") as caught:
        second.sql_with_timeout("SELECT count(*) FROM range(0, 10000000000000L, 1, 4) WHERE id % 7 = 3", 120_000)
    assert caught.value.code == "SPARK_ENDED"

with ps.Session.embedded(master="local[1]") as third:
    assert third.sql("SELECT 3 AS three").toArrow().to_pylist() == [{"three": 3}]
print("all well")
"""


def test_a_stopped_session_is_over_and_the_next_one_is_new(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=280, cwd=tmp_path, check=False
    )
    assert done.stdout == "all well\n", done.stderr[-3000:]
    assert "Traceback" not in done.stderr
