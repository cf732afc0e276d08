"""`penstock dry-run`: everything short of running a pipeline."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.cli.main import DONE
from penstock.cli.options import Conf, Connectors, Master, as_conf
from penstock.cli.output import Format, Output, write_rows
from penstock.cli.pipeline import File, load_spec, pipeline_session

if TYPE_CHECKING:
    from penstock.pipeline.group import GroupPlan

COLUMNS = ["node", "kind", "type", "key", "columns", "guarantee"]


def dry_run(
    file: File,
    output: Output = Format.TABLE,
    master: Master = None,
    conf: Conf = None,
    connector: Connectors = None,
) -> int:
    """Resolve the types of a pipeline and try its connections.

    Nothing runs, nothing is written, no lease is taken.

    \b
    Examples:
      penstock dry-run pipeline.yaml
      penstock dry-run pipeline.yaml --output json | jq 'select(.kind == "sink")'
    """
    spec = load_spec(file)
    with pipeline_session(
        spec, conf=as_conf(conf), master=master, connectors=tuple(connector or ())
    ) as session:
        from penstock.pipeline.run import PipelineRun, plan_pipeline

        plan = plan_pipeline(session, spec)
        PipelineRun(session, plan).check()
        records = [record for group in plan.groups for record in _records(group)]
        order = list(spec.nodes)
        write_rows(sorted(records, key=lambda record: order.index(record["node"])), COLUMNS, output=output)
        ends = "ends when its sources do" if plan.is_bounded else "runs until it is stopped"
        print(f"'{spec.name}' can run, and {ends}", file=sys.stderr)
    return DONE


def _records(group: GroupPlan) -> Iterator[dict[str, Any]]:
    for name, output in group.outputs.items():
        node = group.nodes[name]
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in output.schema.fields)
        key = ", ".join(output.keys) or None
        yield {"node": name, "kind": node.kind, "type": node.type, "key": key, "columns": columns}
    for sink in group.sinks:
        key, guarantee = ", ".join(sink.keys) or None, str(sink.sink.guarantee)
        yield {
            "node": sink.node.name,
            "kind": "sink",
            "type": sink.node.type,
            "key": key,
            "guarantee": guarantee,
        }
