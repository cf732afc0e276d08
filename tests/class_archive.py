"""Whether the processes that tests start have the class archive: they use one that is there, and make none."""

from __future__ import annotations

from functools import cache

from penstock import config
from penstock.spark.boot import startup


@cache
def archive_conf() -> str:
    """The setting for `PENSTOCK_CONF`: a build in the background would be a JVM, and a temporary folder, that no test expects."""
    there = startup.decide(config.load()).quick is not None
    return f"{startup.ARCHIVE_KEY}={str(there).lower()}"
