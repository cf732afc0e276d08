"""The same in Flink SQL, from the package `apache-flink`: a cluster in one process, as many slots as cores, checkpoints every ten seconds."""

from __future__ import annotations

import json
import os
import sys
from typing import Any
from urllib.parse import urlsplit

from pyflink.table import EnvironmentSettings, TableEnvironment

from measured import FILTER, measured

SOURCE = """
CREATE TABLE events (id BIGINT, account STRING, kind STRING, amount DOUBLE, `at` BIGINT, note STRING) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')
"""
SINK = "CREATE TABLE wanted (id BIGINT, account STRING, amount DOUBLE, `at` BIGINT) WITH ({options})"


def sink_options(options: dict[str, Any], table: str) -> str:
    """What Flink's connector is told."""
    if "clickhouse" in options["case"]:
        return f"'connector' = 'clickhouse', 'url' = '{options['clickhouse']}'"
    if options["case"] == "kafka-blackhole":
        return "'connector' = 'blackhole'"
    address = urlsplit(options["postgres"])
    return (
        f"'connector' = 'jdbc', 'table-name' = '{table}', 'username' = '{address.username}', 'password' = '{address.password}',"
        f" 'url' = 'jdbc:postgresql://{address.hostname}:{address.port}{address.path}?reWriteBatchedInserts=true',"
        " 'sink.buffer-flush.max-rows' = '10000'"
    )


def main() -> None:
    options = json.loads(sys.argv[1])
    settings = EnvironmentSettings.in_streaming_mode()
    environment = TableEnvironment.create(settings)
    configuration = environment.get_config()
    configuration.set("pipeline.jars", ";".join(f"file://{jar}" for jar in options["jars"]))
    configuration.set("execution.checkpointing.interval", "10s")
    configuration.set("parallelism.default", str(os.cpu_count()))

    def run(which: str) -> None:
        table = f"flink_{which}"
        for name in ("events", "wanted"):
            environment.execute_sql(f"DROP TABLE IF EXISTS {name}")
        environment.execute_sql(SOURCE.format(topic=options[which], servers=options["servers"]))
        environment.execute_sql(SINK.format(options=sink_options(options, table)))
        environment.execute_sql("INSERT INTO wanted " + FILTER.replace(" at ", " `at` ")).wait()

    print(json.dumps(measured(run)))


if __name__ == "__main__":
    main()
