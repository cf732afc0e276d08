"""The options that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.errors import ConfigError

Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[*], spark://host:port, ...",
        show_default="local[*]",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", "-c", metavar="KEY=VALUE", help="A Spark setting; may be repeated."),
]
Connectors = Annotated[
    list[str] | None,
    typer.Option(
        "--connector", metavar="NAME", help="A connector to load, such as iceberg; may be repeated."
    ),
]
Flow = Annotated[
    str | None,
    typer.Option(
        "--flow",
        metavar="DIR",
        help="The flow directory: sources and incremental views are there in the next run.",
        show_default="PENSTOCK_FLOW, or none",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="The state of the flow beyond this size, as 2GB, lies in scratch files.",
        show_default="PENSTOCK_FLOW_MEMORY, or no bound",
    ),
]
State = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="URL",
        help="The state database: sqlite:///state.db, postgresql://...",
        show_default="PENSTOCK_STATE, or state.db in PENSTOCK_HOME",
    ),
]


def as_conf(words: list[str] | None) -> dict[str, str]:
    """Read `--conf key=value` words."""
    result = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(
                f"'{word}' is not KEY=VALUE",
                code="USAGE",
                where="--conf",
                hint="for example --conf spark.sql.shuffle.partitions=4",
            )
        result[key.strip()] = value
    return result
