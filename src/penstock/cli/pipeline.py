"""What commands about pipelines share: reading the file, saying its warnings, and a session with the connectors that it needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.engine.session import Session
    from penstock.pipeline.spec import PipelineSpec

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline, a YAML file.", show_default=False)]

CONNECTORS: Mapping[str, str] = {"iceberg": "iceberg"}
"""The connectors that Spark must be started with, by the types of nodes; others are added when a node needs them."""


def load_spec(file: Path) -> PipelineSpec:
    """Read a pipeline; warnings go to stderr, and all that is wrong with it is one error."""
    from penstock.pipeline.load import check

    checked = check(file)
    for warning in checked.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return checked.spec


@contextmanager
def pipeline_session(
    spec: PipelineSpec, *, conf: Mapping[str, str], master: str | None, connectors: tuple[str, ...]
) -> Iterator[Session]:
    """A session for a pipeline, with the connectors that its nodes need."""
    from penstock.cli.process import embedded

    needed = {CONNECTORS[node.type] for node in spec.nodes.values() if node.type in CONNECTORS}
    names = tuple(dict.fromkeys((*connectors, *sorted(needed))))
    with embedded(conf=conf, master=master, connectors=names) as session:
        yield session
