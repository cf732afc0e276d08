"""A flow in shards on a standalone cluster: a master, two workers, and executors that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from servers.postgres import Postgres
from servers.spark_cluster import spark_cluster


@pytest.mark.timeout(600)  # three JVMs start, and executors again
def test_a_flow_in_shards_on_a_cluster_that_loses_executors(tmp_path: Path, postgres: Postgres) -> None:
    program = Path(__file__).parent / "sharded_flow.py"
    folder = tmp_path / "cluster"
    folder.mkdir()
    with spark_cluster(folder) as master:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        ran = subprocess.run(
            [sys.executable, str(program), master, str(tmp_path / "flow"), postgres.new_database()],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=550,
        )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stdout.strip().endswith("the same answers")
