"""What Py4J writes to the root logger: traces of calls that were interrupted, or cut off by the end of the JVM."""

from __future__ import annotations

import logging

_FILES = ("/py4j/java_gateway.py", "/py4j/clientserver.py")


def silence() -> None:
    """Drop these records: whoever waits for such a call gets its error, and nobody waits for the others."""
    root = logging.getLogger()
    root.removeFilter(_not_from_py4j)
    root.addFilter(_not_from_py4j)


def _not_from_py4j(record: logging.LogRecord) -> bool:
    return not record.pathname.replace("\\", "/").endswith(_FILES)
