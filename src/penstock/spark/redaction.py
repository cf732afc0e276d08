"""Texts that Spark must not write: into its event log, the log of its JVM and the plans of its pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.spark.boot import janino

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORTEST = 4
"""Shorter texts stand in everything that Spark writes."""
_STRINGS = "spark.sql.redaction.string.regex"
_OPTIONS = "spark.sql.redaction.options.regex"


def redact(spark: SparkSession, texts: Iterable[str]) -> None:
    """Have `***` in the place of texts in what Spark writes from now on; those of an earlier call are written again."""
    ordered = sorted({text for text in texts if len(text) >= SHORTEST}, key=len, reverse=True)
    if not ordered:
        return
    regex = f"(?i){'|'.join(map(_quoted, ordered))}"
    context: Any = spark.sparkContext._jsc
    janino.instance(spark, __package__, "Redaction").install(context.sc(), regex)
    if spark.sparkContext.uiWebUrl is not None:
        hidden = str(spark.conf.get(_OPTIONS))
        if "redaction" not in hidden:
            # The pages show settings too, and this one has the secrets in it.
            spark.conf.set(_OPTIONS, f"{hidden}|redaction")
        spark.conf.set(_STRINGS, regex)


def _quoted(text: str) -> str:
    """A text as a regular expression of Java."""
    quoted = text.replace("\\E", "\\E\\\\E\\Q")
    return f"\\Q{quoted}\\E"
