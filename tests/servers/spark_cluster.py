"""A standalone Spark cluster, of a master and some workers from the pip package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from waiting import wait_for

_CORES = 1


@contextmanager
def spark_cluster(folder: Path, *, workers: int = 2) -> Iterator[str]:
    """Start a cluster and give the address of its master; each worker has one core."""
    with ExitStack() as stack:
        log = folder / "master.log"
        stack.enter_context(
            _running(log, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0")
        )
        wait_for(lambda: _address(log), "master")
        address = _address(log)
        assert address is not None
        for number in range(workers):
            work = folder / f"worker-{number}"
            stack.enter_context(
                _running(
                    folder / f"worker-{number}.log",
                    "org.apache.spark.deploy.worker.Worker",
                    "--host",
                    "127.0.0.1",
                    "--cores",
                    str(_CORES),
                    "--memory",
                    "1g",
                    "--work-dir",
                    str(work),
                    address,
                )
            )
        wait_for(lambda: log.read_text().count("Registering worker") >= workers, "workers")
        yield address


@contextmanager
def _running(log: Path, *command: str) -> Iterator[None]:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "true",
        "SPARK_MASTER_WEBUI_PORT": "0",
        "SPARK_WORKER_WEBUI_PORT": "0",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def _address(log: Path) -> str | None:
    found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
    return None if found is None else found[1]
