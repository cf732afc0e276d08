"""`penstock preview`: live rows of one node of a pipeline."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.main import DONE
from penstock.cli.options import Conf, Connectors, Master, as_conf
from penstock.cli.output import Format, Output, write_batches
from penstock.cli.pipeline import File, load_spec, pipeline_session


def preview(
    file: File,
    node: Annotated[
        str | None,
        typer.Option(
            "--node", "-n", metavar="NAME", help="The node whose rows are shown.", show_default="the last one"
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-l", metavar="ROWS", min=1, help="Show at most so many rows.")
    ] = 20,
    output: Output = Format.TABLE,
    master: Master = None,
    conf: Conf = None,
    connector: Connectors = None,
) -> int:
    """Show live rows of a node of a pipeline.

    Its sources are read as a first run would read them; nothing is written, and nothing is kept.

    \b
    Examples:
      penstock preview pipeline.yaml --node large_orders
      penstock preview pipeline.yaml --node by_customer --limit 5 --output json
    """
    spec = load_spec(file)
    with pipeline_session(
        spec, conf=as_conf(conf), master=master, connectors=tuple(connector or ())
    ) as session:
        from penstock.pipeline.preview import Preview, last_node, shown_node

        name = shown_node(spec, node or last_node(spec))
        with Preview(session, spec, name, limit=limit).opened() as (schema, batches):
            written = write_batches(schema, batches, output=output)
        print(f"{written.rows} rows of '{name}'", file=sys.stderr)
    return DONE
