"""`penstock validate`: find every mistake in the files of pipelines, without running anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from penstock.cli.main import DONE, WRONG_INPUT, show
from penstock.cli.output import Format, Output, write_rows
from penstock.cli.pipeline_file import read_pipeline, show_warnings
from penstock.errors import ConfigError
from penstock.pipeline.load import Checked
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.spec import PipelineSpec

COLUMNS = ["file", "line", "column", "severity", "code", "text", "hint"]


def validate(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE...", help="The pipelines, or - for stdin.", show_default=False),
    ] = None,
    output: Output = Format.TABLE,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are mistakes too.")] = False,
) -> int:
    """Find every mistake in a pipeline.

    Nothing runs. Each mistake has its file, line and column, and a hint; the exit code is 2 when there is one. With
    --output json, csv or arrow the mistakes are rows on stdout. Types of columns and connections are for penstock
    dry-run.

    \b
    Examples:
      penstock validate pipeline.yaml
      penstock validate pipelines/*.yaml --output json
    """
    if not files:
        raise ConfigError(
            "there is no file to validate", code="USAGE", hint="try penstock validate pipeline.yaml"
        )
    results = [_checked(file) for file in files]
    if output is Format.TABLE:
        for file, result in zip(files, results, strict=True):
            _print(file, result)
    else:
        write_rows(
            [row for file, result in zip(files, results, strict=True) for row in _rows(file, result)],
            COLUMNS,
            output=output,
        )
    is_wrong = any(isinstance(result, ConfigError) or result.mistakes for result in results)
    has_warnings = any(isinstance(result, Checked) and result.warnings for result in results)
    return WRONG_INPUT if is_wrong or (strict and has_warnings) else DONE


def _checked(file: str) -> Checked | ConfigError:
    try:
        return read_pipeline(file)
    except ConfigError as error:
        return error


def _print(file: str, result: Checked | ConfigError) -> None:
    if isinstance(result, ConfigError):
        show(result)
        return
    show_warnings(result.warnings)
    if result.mistakes:
        show(PipelineError.of(result.mistakes))
    else:
        print(f"{file}: valid, {_counts(result.spec)}")


def _counts(spec: PipelineSpec) -> str:
    counts = {kind: sum(1 for _ in spec.of_kind(kind)) for kind in ("source", "transform", "sink")}
    words = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count]
    return ", ".join(words)


def _rows(file: str, result: Checked | ConfigError) -> Iterator[dict[str, Any]]:
    if isinstance(result, ConfigError):
        yield {
            "file": file,
            "severity": "error",
            "code": result.code,
            "text": result.message,
            "hint": result.hint,
        }
        return
    for problem in result.problems:
        yield {
            "file": problem.place.path,
            "line": problem.place.line,
            "column": problem.place.column,
            "severity": "warning" if problem.is_warning else "error",
            "code": problem.code,
            "text": problem.text,
            "hint": problem.hint,
        }
