"""What ClickHouse's errors mean for a sink; the client is the one of the source."""

from __future__ import annotations

import http.client

from penstock.errors import PenstockError
from penstock.sinks.errors import refused, row_refused
from penstock.sources.clickhouse.client import ClickHouseAddress as ClickHouseAddress
from penstock.sources.clickhouse.client import ClickHouseClient as ClickHouseClient
from penstock.sources.clickhouse.client import ClickHouseError as ClickHouseError
from penstock.sources.clickhouse.client import Refusal as Refusal
from penstock.sources.clickhouse.client import Url as Url
from penstock.sources.clickhouse.client import passing


def transient(error: Exception) -> str | None:
    """Say what an error means that goes away by itself; None when it does not, or is not ClickHouse's."""
    return passing(error)


def translate(error: Exception, *, where: str) -> PenstockError | None:
    """Return the error for the user, for one of ClickHouse's that does not go away."""
    if not isinstance(error, ClickHouseError | OSError | http.client.HTTPException):
        return None
    text = str(error).strip()
    if isinstance(error, ClickHouseError) and error.of_rows:
        return row_refused(
            "ClickHouse",
            text,
            where=where,
            hint="correct the query or the table, and start the query again: it goes on with the batch that was refused",
        )
    return refused("ClickHouse", text, where=where)
