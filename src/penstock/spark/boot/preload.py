"""What the first query needs, brought up on a second core while Spark's context is made."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

CLASSES = (
    "org.apache.spark.sql.internal.SQLConf$",
    "org.apache.spark.sql.catalyst.analysis.FunctionRegistry$",
    "org.apache.spark.sql.catalyst.parser.SqlBaseLexer",
    "org.apache.spark.sql.catalyst.parser.SqlBaseParser",
    "org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator$",
)
QUERY = "SELECT *, now() AS a FROM b WHERE c > 1.5 AND d = 'e'"
COLUMNS = "a BIGINT, b DOUBLE, c STRING, d TIMESTAMP"
"""Texts like most first ones: the parser learns from them what it would learn from the first."""


def begin(java: JavaGateway) -> None:
    """Initialise the classes, and let the parser read a text, in a thread of its own; nobody waits for it."""
    threading.Thread(target=_load, args=(java,), name="penstock-preload", daemon=True).start()


def _load(java: JavaGateway) -> None:
    from py4j.protocol import Py4JError

    try:
        for name in CLASSES:
            java.jvm.java.lang.Class.forName(name)
        parser = java.jvm.org.apache.spark.sql.execution.SparkSqlParser()
        parser.parseTableSchema(COLUMNS)
        parser.parsePlan(QUERY)
    except (Py4JError, OSError):
        return  # whoever needs the class next gets the error
