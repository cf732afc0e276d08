"""`penstock echo`: show a pipeline as it is understood."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.pipeline_file import PipelineFile, read_right_pipeline
from penstock.pipeline import echo as echoed


class EchoFormat(StrEnum):
    """How a pipeline is printed."""

    YAML = "yaml"
    JSON = "json"


def echo(
    file: PipelineFile,
    output: Annotated[
        EchoFormat,
        typer.Option(
            "--output", "-o", metavar="FORMAT", help="How it is printed: yaml or json.", case_sensitive=False
        ),
    ] = EchoFormat.YAML,
) -> None:
    """Show a pipeline as it is understood, without secrets.

    Fields are in one order and defaults are filled in; variables stay ${VAR}.

    \b
    Examples:
      penstock echo pipeline.yaml
      penstock echo pipeline.yaml --output json | jq .sources
    """
    checked = read_right_pipeline(file)
    if output is EchoFormat.JSON:
        print(echoed.as_json(checked))
    else:
        print(echoed.echo(checked), end="")
