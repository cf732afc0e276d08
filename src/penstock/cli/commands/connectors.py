"""`penstock connectors`: which connectors there are, and installing their jars."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock import config
from penstock.cli.main import DONE
from penstock.cli.output import Format, Output, write_rows
from penstock.errors import ConfigError
from penstock.spark.boot import jars

app = typer.Typer(help="List and install connector jars.", no_args_is_help=True)


@app.command("list")
def list_(output: Output = Format.TABLE) -> int:
    """List the connectors: what each is for, its version, its size, and whether its jars are here.

    \b
    Examples:
      penstock connectors list
      penstock connectors list --output json
    """
    rows = [
        {
            "name": row.name,
            "installed": row.installed,
            "version": row.version,
            "size": f"{row.size / 1e6:.1f} MB" if output is Format.TABLE else row.size,
            "about": row.about,
        }
        for row in jars.status(config.load())
    ]
    write_rows(rows, ["name", "installed", "version", "size", "about"], output=output)
    return DONE


@app.command("install")
def install(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of connectors.", show_default=False)
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Install every connector.")] = False,
) -> int:
    """Download the jars of connectors into PENSTOCK_HOME/jars, so that later starts need no network.

    \b
    Examples:
      penstock connectors install kafka iceberg
      penstock connectors install --all
    """
    wanted = tuple(jars.CONNECTORS) if all_ else tuple(dict.fromkeys(names or ()))
    if not wanted:
        raise ConfigError(
            "no connector named",
            code="CLI_CONNECTORS",
            hint=f"for example: penstock connectors install kafka; known: {', '.join(jars.CONNECTORS)}",
        )
    settings = config.load()
    paths = jars.ensure(wanted, settings)
    count = f"{len(paths)} jar{'s' if len(paths) != 1 else ''}"
    print(f"{', '.join(wanted)}: {count} in {jars.folder(settings)}")
    return DONE
