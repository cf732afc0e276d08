"""A streaming DataFrame read to what is there now, epoch by epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame


def drained(frame: DataFrame, checkpoint: Path) -> list[list[dict[str, Any]]]:
    """Run a query over all that is there, and return the rows of each epoch that has some."""
    epochs: list[list[dict[str, Any]]] = []

    def keep(rows: DataFrame, epoch: int) -> None:
        found = [row.asDict(recursive=True) for row in rows.collect()]
        if found:
            epochs.append(found)

    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return epochs


def drained_rows(frame: DataFrame, checkpoint: Path) -> list[dict[str, Any]]:
    """Return the rows of all epochs."""
    return [row for epoch in drained(frame, checkpoint) for row in epoch]
