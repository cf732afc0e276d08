"""`penstock replay`: let dead letters of a pipeline go through it again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.main import DONE
from penstock.cli.options import Conf, Connectors, Master, as_conf
from penstock.cli.output import Format, Output, write_rows
from penstock.cli.pipeline import File, Yes, confirm_losses, load_spec, pipeline_session
from penstock.cli.stop import wait_until
from penstock.errors import StateError
from penstock.pipeline.secret import hide

if TYPE_CHECKING:
    from penstock.backend import Backend, Job
    from penstock.pipeline.replay import Request

LIST = ["node", "reason", "row", "at"]


def replay(
    file: File,
    node: Annotated[
        str | None,
        typer.Option(
            "--node", "-n", metavar="NODE", help="Only the letters of this node.", show_default="all nodes"
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-l",
            metavar="LETTERS",
            min=1,
            help="At most so many, the oldest first.",
            show_default="all",
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Only show the letters that wait.")] = False,
    output: Output = Format.TABLE,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", min=1, help="Wait at most so long for a pipeline that runs."
        ),
    ] = 300,
    yes: Yes = False,
    master: Master = None,
    conf: Conf = None,
    connector: Connectors = None,
) -> int:
    """Let dead letters of a pipeline go through it again.

    That is for when what made them fail was repaired. The rows come into the node in which they failed, and go on
    from there to the sinks, as one epoch and once. A pipeline that runs takes them between two batches; for one that
    does not run, this command does that epoch and reads nothing from the sources. Rows that fail again are dead
    letters again.

    \b
    Examples:
      penstock replay pipeline.yaml --list
      penstock replay pipeline.yaml
      penstock replay pipeline.yaml --node parse --limit 10
    """
    spec = load_spec(file)
    with pipeline_session(
        spec, conf=as_conf(conf), master=master, connectors=tuple(connector or ())
    ) as session:
        from penstock.pipeline.changes import is_changed
        from penstock.pipeline.pending import PendingLetters
        from penstock.pipeline.run import PipelineRun, plan_pipeline

        letters = PendingLetters(session, spec, node)
        if list_:
            rows = [row.asDict() for row in letters.frame(limit).select(*LIST).collect()]
            for row in rows:
                row["reason"] = None if row["reason"] is None else hide(row["reason"], spec.secrets)
            write_rows(rows, LIST, output=output)
            print(f"{_count(len(rows))} of '{spec.name}'", file=sys.stderr)
            return DONE
        plan = plan_pipeline(session, spec, runs=True)
        backend = session.queries.backend()
        for job in filter(None, (backend.jobs.find(plan.job_name(group)) for group in plan.groups)):
            if job.state.ended:
                # Its epoch runs here, and takes over what has changed in the file.
                confirm_losses(session, plan, yes=yes)
                break
        asked = letters.ask(plan, limit)
        if not asked:
            print(f"no dead letters of '{spec.name}' wait", file=sys.stderr)
            return DONE
        for group in plan.groups:
            if group.name not in asked:
                continue
            job = backend.jobs.get(plan.job_name(group))
            if job.state.ended:
                PipelineRun(session, plan).replay(group.name)
            else:
                if is_changed(spec, job):
                    print(
                        f"warning: '{job.name}' runs the file as it was before the change; penstock jobs stop "
                        f"{job.name}, then run it again, when letters fail again",
                        file=sys.stderr,
                    )
                _let_take(backend, job, asked[group.name], timeout)
        count = sum(len(request.ids) for requests in asked.values() for request in requests)
        left = letters.frame().count()
    print(
        f"replayed {_count(count)}; {left or 'none'} {'waits' if left == 1 else 'wait'} now", file=sys.stderr
    )
    return DONE


def _let_take(backend: Backend, job: Job, asked: list[Request], timeout: float) -> None:
    """Let the process that runs a job take letters, and wait until an epoch with them is committed."""
    from penstock.pipeline.replay import are_done

    backend.jobs.request(job.name, "restart")
    now = wait_until(
        backend,
        job,
        lambda now: now.state.ended or are_done(backend, now, asked),
        timeout,
        "taken its dead letters",
    )
    if not are_done(backend, now, asked):
        raise StateError(
            f"'{job.name}' is {now.state}: {now.message}" if now.message else f"'{job.name}' is {now.state}",
            code="PIPELINE_REPLAY",
            where=backend.location,
            hint="its next run takes the letters that were asked for",
        )


def _count(letters: Any) -> str:
    return f"{letters} dead letter{'' if letters == 1 else 's'}"
