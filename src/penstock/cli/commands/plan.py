"""`penstock plan`: what a changed file means for a pipeline that ran before."""

from __future__ import annotations

import sys
from dataclasses import asdict

from penstock.cli.main import DONE
from penstock.cli.options import Conf, Connectors, Master, as_conf
from penstock.cli.output import Format, Output, write_rows
from penstock.cli.pipeline import File, Moved, load_spec, losses, pipeline_session

COLUMNS = ["node", "kind", "change", "state", "reason", "loses_rows"]


def plan(
    file: File,
    output: Output = Format.TABLE,
    moved: Moved = False,
    master: Master = None,
    conf: Conf = None,
    connector: Connectors = None,
) -> int:
    """Say what a changed file means for a pipeline that ran before.

    Nodes are new, changed or dropped, and the state of views stays, is made again, or goes. Nothing is changed.
    `penstock run` asks before it loses rows that cannot be had again.

    \b
    Examples:
      penstock plan pipeline.yaml
      penstock plan pipeline.yaml --output json | jq 'select(.loses_rows)'
    """
    spec = load_spec(file)
    with pipeline_session(
        spec, conf=as_conf(conf), master=master, connectors=tuple(connector or ())
    ) as session:
        from penstock.pipeline.changes import changes
        from penstock.pipeline.group_name import earlier_groups
        from penstock.pipeline.owner import refuse_other_file
        from penstock.pipeline.run import plan_pipeline

        backend = session.queries.existing_backend()
        if backend is not None and not moved:
            refuse_other_file(spec, earlier_groups(spec.name, backend).values())
        planned = plan_pipeline(session, spec)
        node_changes = changes(spec, planned.groups, backend)
        if node_changes is None:
            print(f"'{spec.name}' has not run yet: everything is new", file=sys.stderr)
            return DONE
        write_rows([asdict(change) for change in node_changes], COLUMNS, output=output)
        for obstacle in filter(None, (group.source_changes.obstacle for group in planned.groups)):
            print(
                f"it cannot go on: {obstacle}; penstock state reset {spec.name} begins anew", file=sys.stderr
            )
        lost = losses(node_changes)
        if lost:
            print(f"rows would be lost: {lost}", file=sys.stderr)
    return DONE
