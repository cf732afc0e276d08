"""What commands about pipelines share: reading the file, saying its warnings, and a session with the connectors that it needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.main import hide_from_traces
from penstock.errors import InternalError, PenstockError, StateError
from penstock.pipeline.secret import forms_of, hide

if TYPE_CHECKING:
    from penstock.engine.session import Session
    from penstock.pipeline.changes import NodeChange
    from penstock.pipeline.run import PipelinePlan
    from penstock.pipeline.spec import PipelineSpec

File = Annotated[
    str, typer.Argument(metavar="FILE", help="The pipeline, or - for stdin.", show_default=False)
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", help="Go on when the pipeline has changed and rows of its state would be lost."
    ),
]
Moved = Annotated[
    bool,
    typer.Option(
        "--moved", help="Go on with the state of another file of this name, whose place this one has taken."
    ),
]

CONNECTORS: Mapping[str, str] = {"iceberg": "iceberg"}
"""The connectors that Spark must be started with, by the types of nodes; others are added when a node needs them."""


def load_spec(file: str) -> PipelineSpec:
    """Read a pipeline; warnings go to stderr, and all that is wrong with it is one error."""
    from penstock.cli.pipeline_file import read_right_pipeline

    spec = read_right_pipeline(file).spec
    hide_from_traces(partial(hide, secrets=spec.secrets))
    return spec


@contextmanager
def pipeline_session(
    spec: PipelineSpec, *, conf: Mapping[str, str], master: str | None, connectors: tuple[str, ...]
) -> Iterator[Session]:
    """A session for a pipeline, with the connectors that its nodes need."""
    import penstock.pipeline.run
    import penstock.streaming.queries
    import penstock.streaming.reader  # noqa: F401  # all of them while the JVM boots
    from penstock.cli.process import embedded
    from penstock.spark.redaction import redact

    needed = {CONNECTORS[node.type] for node in spec.nodes.values() if node.type in CONNECTORS}
    names = tuple(dict.fromkeys((*connectors, *sorted(needed))))
    try:
        with embedded(conf=conf, master=master, connectors=names) as session:
            if spec.state is not None:
                session.settings = replace(session.settings, state=spec.state)
            if spec.secrets:
                redact(session.spark, {form for secret in spec.secrets for form in forms_of(secret)})
            yield session
    except PenstockError as error:
        error.hide(partial(hide, secrets=spec.secrets))
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        safe = hide(message, spec.secrets)
        if safe == message:
            raise
        raise InternalError(safe) from None


def losses(changes: Sequence[NodeChange]) -> str:
    """Which rows a changed pipeline would lose, in words; empty when none."""
    return "; ".join(
        f"{change.node}{f' ({change.reason})' if change.reason else ''}"
        for change in changes
        if change.loses_rows
    )


def confirm_losses(session: Session, plan: PipelinePlan, *, yes: bool) -> None:
    """Ask whether rows may go that a changed pipeline can no longer use; StateError where nobody can be asked, or the
    answer is no."""
    from penstock.pipeline.changes import changes

    if yes or not plan.is_lasting:
        return
    lost = losses(changes(plan.spec, plan.groups, session.queries.existing_backend()) or ())
    if not lost:
        return
    if sys.stdin.isatty() and typer.confirm(
        f"'{plan.spec.name}' has changed, and rows would be lost: {lost}. Go on?", err=True
    ):
        return
    raise StateError(
        f"'{plan.spec.name}' has changed, and rows would be lost: {lost}",
        code="PIPELINE_STATE_LOSS",
        where=plan.spec.path,
        hint="look at it with `penstock plan`, and add --yes if that is right",
    )
