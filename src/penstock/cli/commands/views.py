"""`penstock views`: look into a flow directory, also while another process has it open, and feed it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.main import DONE
from penstock.cli.output import Format, Output, write_batches, write_rows
from penstock.errors import ConfigError, suggest

if TYPE_CHECKING:
    from penstock.engine.flow import IncrementalFlow
    from penstock.engine.summary import StepSummary

app = typer.Typer(help="Look into a flow directory, and feed it.", no_args_is_help=True)

COMMANDS = ("list", "explain", "snapshot", "tick")
LIST = ["name", "kind", "rows", "tier", "primary_key", "reads", "suspended"]

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The flow directory.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The view.", show_default=False)]


def arrange(words: list[str]) -> list[str]:
    """Words in the order that Typer takes: `DIR explain NAME` is `explain DIR NAME`, and `DIR` alone is `list DIR`.

    >>> arrange(["flows/orders", "snapshot", "totals"]), arrange(["flows/orders", "-o", "json"])
    (['snapshot', 'flows/orders', 'totals'], ['list', 'flows/orders', '-o', 'json'])
    """
    if not words or words[0] in COMMANDS or words[0].startswith("-"):
        return words
    directory, *rest = words
    if not rest or rest[0].startswith("-"):
        return ["list", directory, *rest]
    command, *rest = rest
    if command not in COMMANDS:
        raise ConfigError(
            f"unknown command '{command}'",
            code="UNKNOWN_COMMAND",
            hint=suggest(command, COMMANDS, what="command"),
        )
    return [command, directory, *rest]


@app.command("list")
def list_(directory: Directory, output: Output = Format.TABLE) -> int:
    """List the sources and views of a flow directory.

    The directory may be open in another process: what its last tick has left is shown.

    \b
    Examples:
      penstock views flows/orders
      penstock views flows/orders --output json
    """
    with _reading(directory) as flow:
        rows: list[dict[str, Any]] = [
            {
                "name": source.name,
                "kind": "source",
                "rows": source.rows,
                "primary_key": ", ".join(source.primary_key) or None,
            }
            for source in flow.sources()
        ]
        rows += [
            {
                "name": view.name,
                "kind": "view",
                "rows": view.rows,
                "tier": view.tier,
                "reads": ", ".join((*view.reads, *view.statics)),
                "suspended": None if view.suspended is None else str(view.suspended),
            }
            for view in flow.views()
        ]
    columns = [name for name in LIST if output is not Format.TABLE or any(row.get(name) for row in rows)]
    if rows:
        write_rows(rows, columns, output=output)
    else:
        print(f"no sources and no views yet in {directory}", file=sys.stderr)
    return DONE


@app.command("explain")
def explain(directory: Directory, name: Name) -> int:
    """Show the operators of a view: who computes them, what a tick costs, and why.

    \b
    Examples:
      penstock views flows/orders explain totals
    """
    with _reading(directory) as flow:
        print(flow.explain(name))
    return DONE


@app.command("snapshot")
def snapshot(
    directory: Directory,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The view or source.", show_default=False)],
    output: Output = Format.TABLE,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", metavar="ROWS", min=0, help="Print at most so many rows.", show_default="all"
        ),
    ] = None,
) -> int:
    """Print the rows of a view, in its order when it has one, or of a source.

    The directory may be open in another process: what its last tick has left is shown.

    \b
    Examples:
      penstock views flows/orders snapshot totals
      penstock views flows/orders snapshot totals --output arrow > totals.arrow
    """
    with _reading(directory) as flow:
        table = flow.snapshot(name)
    write_batches(table.schema, table.to_batches(), output=output, limit=limit)
    return DONE


@app.command("tick")
def tick(
    directory: Directory,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The source.", show_default=False)],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Rows as Parquet, CSV, JSON or Arrow.", show_default=False)
    ],
    delete: Annotated[
        bool, typer.Option("--delete", help="Retract the rows instead of inserting them.")
    ] = False,
    ordinal: Annotated[
        int | None,
        typer.Option(
            "--ordinal", metavar="N", help="Feed nothing when this ordinal, or a later one, is in already."
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Feed the rows of a file to a source as one tick, and say what the tick did.

    A column _weight says for each row whether it is inserted (1) or retracted (-1). The directory must not be open elsewhere.

    \b
    Examples:
      penstock views flows/orders tick orders new-orders.csv
      penstock views flows/orders tick orders cancelled.json --delete
      penstock views flows/orders tick orders day-17.parquet --ordinal 17
    """
    from penstock.cli.rows_file import read_rows
    from penstock.data.batch import DeltaBatch
    from penstock.data.operation import WEIGHT
    from penstock.engine.directory import contents
    from penstock.engine.flow import IncrementalFlow

    contents(directory)  # a mistyped directory must not become a new flow
    with IncrementalFlow(path=directory) as flow:
        name = flow.source_info(source).name
        fields = next(entry.fields for entry in flow.sources() if entry.name == name)
        rows = read_rows(file, fields)
        if WEIGHT in rows.column_names and delete:
            raise ConfigError(
                f"the rows have a column {WEIGHT}, which says what is retracted",
                code="USAGE",
                hint="leave --delete out",
            )
        if WEIGHT in rows.column_names:
            delta = DeltaBatch.weighted(rows)
        else:
            delta = DeltaBatch.deletes(rows) if delete else DeltaBatch.inserts(rows)
        _say(flow.tick(name, delta, ordinal=ordinal), output)
    return DONE


def _reading(directory: Path) -> IncrementalFlow:
    from penstock.engine.flow import IncrementalFlow

    return IncrementalFlow.read(directory)


def _say(summary: StepSummary, output: Format) -> None:
    if output is Format.TABLE:
        print(summary)
        return
    from penstock.engine.summary import ViewStep

    rows = [
        {
            "tick": summary.tick,
            "rows_in": summary.rows_in,
            "rows_out": summary.rows_out,
            "late": summary.late,
            "duration_ms": round(summary.duration_ms, 3),
            "view": name or None,
            "inserted": step.inserted,
            "retracted": step.retracted,
        }
        for name, step in (summary.views or {"": ViewStep()}).items()
    ]
    columns = ["tick", "rows_in", "rows_out", "late", "duration_ms", "view", "inserted", "retracted"]
    write_rows(rows, columns, output=output)
