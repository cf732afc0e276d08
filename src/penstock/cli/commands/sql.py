"""`penstock sql`: run statements and print their rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Conf, Connectors, Flow, Master, Memory, as_conf
from penstock.cli.output import Format, Output
from penstock.cli.script import Printing, placed_in, run_statement
from penstock.engine.files import resolve_files
from penstock.errors import ConfigError
from penstock.sql.lexer import split
from penstock.sql.parse import parse


def sql(
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="The statements, or - for stdin.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read the statements from a file.")
    ] = None,
    output: Output = Format.TABLE,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            metavar="ROWS",
            min=0,
            help="Print at most so many rows; 0 is all.",
            show_default="100 on a terminal",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0, help="Give up on a statement after that long."),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    connector: Connectors = None,
    flow: Flow = None,
    memory: Memory = None,
) -> None:
    """Run SQL statements and print their rows.

    Several statements are separated by ';'. A file can stand in the place of a table. Rows go to stdout,
    everything else to stderr; --output json is one object per line.

    \b
    Examples:
      penstock sql "SELECT count(*) FROM 'data/orders.parquet'"
      penstock sql "SELECT * FROM 'a.csv' a JOIN 'b.json' b USING (id)" --output csv > joined.csv
      penstock sql -f report.sql --conf spark.sql.shuffle.partitions=4
      echo "SELECT 1 AS one" | penstock sql - --output json
      penstock sql --flow flows/orders "INSERT INTO orders VALUES (1, 9.50); SELECT * FROM totals"
    """
    script = _script(query, file)
    statements = split(script)
    if not statements:
        raise ConfigError("there is no statement to run", code="USAGE", hint='try penstock sql "SELECT 1"')
    for statement in statements:
        # A missing file or a mistyped keyword is found here, before Spark starts, in a tenth of a second.
        with placed_in(script, statement):
            parse(statement.text)
            resolve_files(statement.text)

    from penstock.cli.process import embedded

    printing = Printing(output, limit, timeout)
    names = tuple(connector or ())
    with embedded(
        conf=as_conf(conf), master=master, connectors=names, flow=flow, flow_memory=memory
    ) as session:
        printed = False
        for statement in statements:
            if printed and output is Format.ARROW:
                raise ConfigError(
                    "an Arrow stream holds one result, and there is a statement after the one that gave it",
                    code="USAGE",
                    hint="let only the last statement return rows, or choose --output json",
                )
            with placed_in(script, statement):
                printed = run_statement(session, statement.text, printing)
        session.wait_for_jobs()


def _script(query: str | None, file: Path | None) -> str:
    if query is not None and file is not None:
        raise ConfigError("both a query and --file were given", code="USAGE", hint="leave one of them out")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"cannot read '{file.absolute()}': {reason}", code="SQL_SCRIPT") from error
    if query == "-" or (query is None and not sys.stdin.isatty()):
        return sys.stdin.read()
    if query is None:
        raise ConfigError("there is no statement to run", code="USAGE", hint='try penstock sql "SELECT 1"')
    return query
