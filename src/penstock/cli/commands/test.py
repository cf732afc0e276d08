"""`penstock test`: run the tests that stand in a pipeline's file."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.main import DONE, FAILED
from penstock.cli.options import Conf, Master, as_conf
from penstock.cli.pipeline import File, load_spec, pipeline_session
from penstock.errors import ConfigError, suggest

if TYPE_CHECKING:
    from penstock.pipeline.case import Outcome


class ReportFormat(StrEnum):
    """How outcomes of tests are printed."""

    TEXT = "text"
    JSON = "json"


def run_tests(
    file: File,
    only: Annotated[
        str | None, typer.Option("--only", metavar="TEXT", help="Run only tests whose name has this in it.")
    ] = None,
    output: Annotated[
        ReportFormat,
        typer.Option(
            "--output", "-o", metavar="FORMAT", help="How it is reported: text or json.", case_sensitive=False
        ),
    ] = ReportFormat.TEXT,
    master: Master = None,
    conf: Conf = None,
) -> int:
    """Run the tests in a pipeline's file.

    They give rows to its sources, and say which rows its nodes have then. Sources are not read and sinks are not
    written; columns that the file does not say are looked up, and handlers and look-ups are asked for rows that
    `given` does not have. A row that is expected and not there has a -, one that is there and not expected a +, and ~
    says how a row of the same key differs.

    \b
    Examples:
      penstock test pipeline.yaml
      penstock test pipeline.yaml --only "large ones" --output json
    """
    spec = load_spec(file)
    if not spec.tests:
        print(f"{spec.path} has no tests", file=sys.stderr)
        return DONE
    tests = tuple(test for test in spec.tests if only is None or only in test.name)
    if not tests:
        raise ConfigError(
            f"no test of {file} has '{only}' in its name",
            code="PIPELINE_TEST",
            hint=suggest(only or "", [test.name for test in spec.tests], what="test"),
        )
    spec = replace(spec, tests=tests)
    began = time.monotonic()
    with pipeline_session(spec, conf=as_conf(conf), master=master, connectors=()) as session:
        from penstock.pipeline import case

        outcomes = case.run_tests(session, spec)
        for outcome in outcomes:
            print(_as_json(outcome) if output is ReportFormat.JSON else _as_text(outcome))
        failed = sum(not outcome.passed for outcome in outcomes)
        seconds = time.monotonic() - began
        print(f"{len(outcomes) - failed} passed, {failed} failed, {seconds:.1f} s", file=sys.stderr)
        return FAILED if failed else DONE


def _as_text(outcome: Outcome) -> str:
    if outcome.passed:
        return f"ok    {outcome.test.name}"
    lines = [f"FAIL  {outcome.test.name}  ({outcome.test.place})"]
    if outcome.error is not None:
        lines += [f"      {line}" for line in str(outcome.error).splitlines()]
    for difference in outcome.differences:
        lines += [f"      {difference.node}:", *(f"        {line}" for line in difference.lines())]
    return "\n".join(lines)


def _as_json(outcome: Outcome) -> str:
    return json.dumps(
        {
            "name": outcome.test.name,
            "passed": outcome.passed,
            "error": None if outcome.error is None else str(outcome.error),
            "differences": [
                {
                    "node": difference.node,
                    "missing": list(difference.missing),
                    "surplus": list(difference.surplus),
                }
                for difference in outcome.differences
            ],
        }
    )
