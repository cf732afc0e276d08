"""`penstock run`: run a pipeline until it ends, or until it is stopped."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.main import DONE, TERMINATED
from penstock.cli.main import INTERRUPTED as INTERRUPTED_CODE
from penstock.cli.options import Conf, Connectors, Master, as_conf
from penstock.cli.pipeline import File, Moved, Yes, confirm_losses, load_spec, pipeline_session
from penstock.cli.run_summary import RunSummary

if TYPE_CHECKING:
    from penstock.cli.live import LiveTable
    from penstock.pipeline.group import NodeEpoch
    from penstock.pipeline.run import PipelineRun


def run(
    file: File,
    live: Annotated[
        bool, typer.Option("--live", help="Show a table of rows, lag, epoch and errors per node.")
    ] = False,
    yes: Yes = False,
    moved: Moved = False,
    master: Master = None,
    conf: Conf = None,
    connector: Connectors = None,
) -> int:
    """Run a pipeline.

    It runs until its sources end, or until Ctrl-C; the batch that runs then is finished first. A pipeline that ran
    before goes on where it ended, also when its file was moved; another file of the same name is refused. Rows that
    sinks print go to stdout, everything else to stderr.

    \b
    Examples:
      penstock run pipeline.yaml
      penstock run pipeline.yaml --live
      PENSTOCK_KAFKA_BOOTSTRAP_SERVERS=broker:9092 penstock run clicks.yaml
    """
    spec = load_spec(file)
    with pipeline_session(
        spec, conf=as_conf(conf), master=master, connectors=tuple(connector or ())
    ) as session:
        from penstock.pipeline.run import PipelineRun, plan_pipeline

        table: LiveTable | None = None
        summary = RunSummary(spec)
        if live:
            from penstock.cli.live import LiveTable

            table = LiveTable(spec)
            session.queries.dispatcher.add(table)
        plan = plan_pipeline(session, spec, runs=True, moved=moved)
        confirm_losses(session, plan, yes=yes)

        def report(group: str, epoch: NodeEpoch) -> None:
            summary.report(group, epoch)
            if table is not None:
                table.report(group, epoch)

        def say(text: str) -> None:
            if table is None:
                print(text, file=sys.stderr)
            else:
                table.say(text)

        run = PipelineRun(
            session, plan, report=report, say=say, counts=None if table is None else table.counts
        )
        stopped = _StopOnSignals(run, say)
        run.start()
        if not plan.is_bounded:
            say(f"'{spec.name}' runs; Ctrl-C stops it")
        with stopped, nullcontext() if table is None else table.shown(run):
            error = run.wait()
        if error is not None:
            raise error
        if plan.is_bounded and stopped.code == DONE:
            print(summary.text(run, session.queries.backend()), file=sys.stderr)
        return stopped.code


class _StopOnSignals:
    """Lets Ctrl-C and SIGTERM end a pipeline after its batch; a second one ends the process at once."""

    def __init__(self, run: PipelineRun, say: Callable[[str], None]) -> None:
        self._run = run
        self._say = say
        self.code = DONE

    def __enter__(self) -> None:
        self._before = {
            number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)
        }

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        for other, handler in self._before.items():
            signal.signal(other, handler)
        self.code = INTERRUPTED_CODE if number == signal.SIGINT else TERMINATED
        self._say("stopping after the batch that runs; once more ends at once")
        threading.Thread(target=self._run.stop, daemon=True).start()
