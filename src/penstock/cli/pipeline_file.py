"""The file of a pipeline as commands take it, and how its mistakes and warnings are shown."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from penstock import config
from penstock.pipeline.load import Checked, check, check_text
from penstock.pipeline.problem import Problem
from penstock.pipeline.spec import STDIN as STDIN_NAME
from penstock.pipeline.yaml_tree import decode

STDIN = "-"

PipelineFile = Annotated[
    str, typer.Argument(metavar="FILE", help="The pipeline, or - for stdin.", show_default=False)
]


def read_pipeline(path: str) -> Checked:
    """Return the pipeline of a file, or of stdin, with what is wrong with it."""
    settings = config.load()
    if path != STDIN:
        return check(path, settings=settings)
    text = decode(sys.stdin.buffer.read(), STDIN_NAME)
    return Checked((text,)) if isinstance(text, Problem) else check_text(text, STDIN_NAME, settings=settings)


def read_right_pipeline(path: str) -> Checked:
    """Return the pipeline of a file that has no mistakes; its warnings go to stderr."""
    checked = read_pipeline(path)
    _ = checked.spec
    show_warnings(checked.warnings)
    return checked


def show_warnings(warnings: Iterable[Problem]) -> None:
    """Print warnings to stderr."""
    for warning in warnings:
        print(f"warning: {warning.text}\n  at: {warning.place}\n  hint: {warning.hint}", file=sys.stderr)
