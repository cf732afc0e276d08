"""Pipelines of penstock, as files in YAML; the other side of `stock_pipelines.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import penstock as ps
from measured import FILTER, measured
from penstock.pipeline.load import load
from penstock.pipeline.run import PipelineRun, plan_pipeline

SCHEMA = {
    "id": "int64",
    "account": "string",
    "kind": "string",
    "amount": "float64",
    "at": "int64",
    "note": "string",
}


def pipeline(options: dict[str, Any], which: str) -> dict[str, Any]:
    """The file of a case, as YAML reads it."""
    source, sink = options["case"].split("-")
    events = (
        {
            "type": "kafka",
            "bootstrap_servers": options["servers"],
            "topic": options[which],
            "data_format": "json",
            "schema": SCHEMA,
            "starting_offsets": "earliest",
        }
        if source == "kafka"
        else {"type": "clickhouse", "url": options["clickhouse"], "table": options[which]}
    )
    out = {
        "blackhole": {"type": "blackhole"},
        "clickhouse": {
            "type": "clickhouse",
            "url": options["clickhouse"],
            "table": f"penstock_{which}",
            "output_mode": "append",
        },
        "postgres": {
            "type": "postgres",
            "url": options["postgres"],
            "table": f"penstock_{which}",
            "output_mode": "append",
        },
    }[sink]
    return {
        "name": f"bench-{options['case']}-{which}",
        "trigger": "available_now",
        "checkpoint": f"{options['folder']}/{which}",
        "sources": {"events": events},
        "transforms": {"wanted": {"type": "sql", "sql": FILTER}} if source == "kafka" else {},
        "sinks": {"out": {**out, "from": "wanted" if source == "kafka" else "events"}},
    }


def main() -> None:
    options = json.loads(sys.argv[1])
    with ps.Session.embedded(connectors=("kafka",)) as session:

        def run(which: str) -> None:
            file = Path(options["folder"]) / f"{which}.yaml"
            file.write_text(json.dumps(pipeline(options, which)))
            running = PipelineRun(
                session, plan_pipeline(session, load(file, settings=session.settings), runs=True)
            )
            running.start()
            error = running.wait()
            if error is not None:
                raise error

        print(json.dumps(measured(run)))


if __name__ == "__main__":
    main()
