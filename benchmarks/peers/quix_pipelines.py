"""The same in Quix Streams: a filter and a projection in Python for each record, its own sink for PostgreSQL."""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any
from urllib.parse import urlsplit

from quixstreams import Application
from quixstreams.sinks.community.postgresql import PostgreSQLSink

from measured import measured


def wanted(row: dict[str, Any]) -> bool:
    """The filter."""
    return bool(row["kind"] != "other")


def columns(row: dict[str, Any]) -> dict[str, Any]:
    """The projection."""
    return {"id": row["id"], "account": row["account"], "amount": row["amount"], "at": row["at"]}


def main() -> None:
    options = json.loads(sys.argv[1])
    if "clickhouse" in options["case"]:
        import quixstreams.sinks.community.clickhouse  # noqa: F401  # what it says of itself

    def run(which: str) -> None:
        application = Application(
            broker_address=options["servers"],
            consumer_group=uuid.uuid4().hex,
            auto_offset_reset="earliest",
            loglevel="ERROR",
        )
        rows = application.dataframe(application.topic(options[which], value_deserializer="json"))
        rows = rows.filter(wanted).apply(columns)
        if options["case"] == "kafka-postgres":
            address = urlsplit(options["postgres"])
            rows.sink(
                PostgreSQLSink(
                    host=address.hostname or "",
                    port=address.port or 5432,
                    dbname=address.path.strip("/"),
                    user=address.username or "",
                    password=address.password or "",
                    table_name=f"quix_{which}",
                )
            )
        application.run(count=options["kept"][which], collect=False)  # it counts what comes out

    print(json.dumps(measured(run)))


if __name__ == "__main__":
    main()
