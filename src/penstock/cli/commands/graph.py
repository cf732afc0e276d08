"""`penstock graph`: draw the nodes of a pipeline."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.pipeline_file import PipelineFile, read_right_pipeline
from penstock.pipeline.graph import graph as graph_of
from penstock.pipeline.graph import mermaid, text
from penstock.pipeline.spec import PipelineSpec


class GraphFormat(StrEnum):
    """How a graph is drawn."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"


def graph(
    file: PipelineFile,
    output: Annotated[
        GraphFormat,
        typer.Option(
            "--output",
            "-o",
            metavar="FORMAT",
            help="How it is drawn: text, mermaid or json.",
            case_sensitive=False,
        ),
    ] = GraphFormat.TEXT,
) -> None:
    """Draw the nodes of a pipeline.

    Each is shown with what it reads. Nodes that hang together run as one query.

    \b
    Examples:
      penstock graph pipeline.yaml
      penstock graph pipeline.yaml --output mermaid > pipeline.mmd
    """
    spec = read_right_pipeline(file).spec
    match output:
        case GraphFormat.MERMAID:
            print(mermaid(spec))
        case GraphFormat.JSON:
            for line in _as_json(spec):
                print(line)
        case GraphFormat.TEXT:
            print(text(spec))


def _as_json(spec: PipelineSpec) -> list[str]:
    """One object per node, as the other commands print rows."""
    drawn = graph_of(spec)
    return [
        json.dumps(
            {
                "name": node.name,
                "kind": node.kind,
                "type": node.type,
                "reads": drawn.inputs[node.name],
                "group": number,
            },
            ensure_ascii=False,
        )
        for number, group in enumerate(drawn.groups, 1)
        for node in group.nodes
    ]
