"""The process that forks Spark's Python workers (`spark.python.daemon.module`), with what tasks need imported once.

Before every task a worker reads the directories of all archives on its path again. Those of PySpark and of Spark are
on it, although PySpark is installed beside Python: without them a task begins 50 to 100 ms earlier. Archives that
users add (`addPyFile`) stay.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys

VARIABLE = "PENSTOCK_SHARDS"
"""What tells the Python workers of one group of shards from others."""
_ARCHIVES = ("pyspark.zip", "py4j-", "spark-core_")


def main() -> None:
    """Be the daemon."""
    if _is_installed():
        _forget_archives()
    from pyspark import daemon

    if VARIABLE in os.environ:
        importlib.import_module("penstock.spark.shards.worker")  # for all workers at once
    # What is there now lives as long as the worker, so that no collection needs to look at it.
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]


def _is_installed() -> bool:
    """Whether PySpark is there without Spark's archives."""
    path = sys.path[:]
    try:
        sys.path[:] = [entry for entry in path if not _is_archive(entry)]
        return importlib.util.find_spec("pyspark") is not None
    finally:
        sys.path[:] = path


def _forget_archives() -> None:
    sys.path[:] = [entry for entry in sys.path if not _is_archive(entry)]
    for entry in [entry for entry in sys.path_importer_cache if _is_archive(entry)]:
        del sys.path_importer_cache[entry]


def _is_archive(entry: str) -> bool:
    return os.path.basename(entry).startswith(_ARCHIVES)


if __name__ == "__main__":
    main()
