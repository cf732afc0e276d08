"""What a changed file means for a pipeline that ran before: which nodes are the same, whose state stays, and which is
made again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.pipeline.group_name import NODES, earlier_groups, kinds_of
from penstock.pipeline.outside import left_behind
from penstock.pipeline.secret import hide, model_secrets, slow_hash
from penstock.pipeline.stage_plan import StagePlan, compare
from penstock.pipeline.stage_store import StageStore
from penstock.state.files import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.backend import Backend, Job
    from penstock.pipeline.group import GroupPlan
    from penstock.pipeline.spec import NodeSpec, PipelineSpec


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What is different about one node since the last run, and what that does to its state."""

    node: str
    kind: str
    change: str
    """`unchanged`, `changed`, `new` or `dropped`."""
    state: str | None = None
    """Of views and what they read: `unchanged`, `kept`, `rebuilt`, `new`, `emptied` or `dropped`; of sources: `read
    again`, `new`, `dropped` or `left`."""
    reason: str = ""
    loses_rows: bool = False
    """Whether rows are lost that the state cannot give again, or the offset up to which a source was read."""


def fingerprints(spec: PipelineSpec) -> dict[str, dict[str, str]]:
    """What is recorded of the nodes of a pipeline: enough to tell whether one has changed, and nothing secret."""
    return {
        node.name: {
            "kind": node.kind,
            "type": node.type,
            "hash": _hash(node),
        }
        for node in spec.nodes.values()
    }


def _hash(node: NodeSpec) -> str:
    """The hash of a node's fields, from which its secrets cannot be found by trying."""
    secrets = node.secrets | model_secrets(node.model)
    key = slow_hash("\0".join(sorted(secrets)).encode(errors="surrogatepass")) if secrets else b""
    return hashlib.sha256(key + node.model.model_dump_json().encode()).hexdigest()[:16]


def changes(
    spec: PipelineSpec, groups: Sequence[GroupPlan], backend: Backend | None
) -> list[NodeChange] | None:
    """Return what has changed, in the order of the file, dropped nodes last; None when the pipeline has not run yet."""
    jobs = {} if backend is None else earlier_groups(spec.name, backend)
    if not jobs:
        return None
    before: dict[str, Any] = {}
    for job in jobs.values():
        before |= job.definition.get(NODES, {})
    states: dict[str, NodeChange] = {}
    left = _left_behind(spec, jobs, groups, backend)
    of_views = (change for group in groups for change in _states(group))
    for state_change in (*of_views, *_sources(jobs, groups, left)):
        # The rows of one node may be in the state of several flows: what is lost of any is what counts.
        if state_change.node not in states or state_change.loses_rows:
            states[state_change.node] = state_change
    result = []
    now = fingerprints(spec)
    for name, node in now.items():
        state = states.pop(name, None)
        change = _change(before.get(name), node)
        kind = f"{node['kind']} {node['type']}"
        result.append(
            NodeChange(name, kind, change)
            if state is None
            else NodeChange(name, kind, change, state.state, state.reason, state.loses_rows)
        )
    result += [
        NodeChange(name, f"{node['kind']} {node['type']}", "dropped", *_of(states.pop(name, None)))
        for name, node in before.items()
        if name not in now
    ]
    return [*result, *states.values()]


def is_changed(spec: PipelineSpec, job: Job) -> bool:
    """Whether some node of the group that a job runs is another one in the file than it was at its start."""
    now = fingerprints(spec)
    return any(now.get(name) != node for name, node in job.definition.get(NODES, {}).items())


def _change(before: Mapping[str, str] | None, now: Mapping[str, str]) -> str:
    if before is None:
        return "new"
    return "unchanged" if before == now else "changed"


def _of(state: NodeChange | None) -> tuple[Any, ...]:
    return () if state is None else (state.state, state.reason, state.loses_rows)


def _sources(
    jobs: Mapping[str, Job], groups: Sequence[GroupPlan], left: Mapping[str, str]
) -> Iterator[NodeChange]:
    """What happens to the offsets up to which sources were read; `left` says by nodes what stays in other systems."""
    shown = set()
    for group in groups:
        for source in group.source_changes.changes:
            shown.add(source.node)
            if source.change == "dropped":
                reason = "how far it was read is forgotten"
            else:
                reason = ": ".join(filter(None, (source.reason, "it is read from its beginning")))
            reason = "; ".join(filter(None, (reason, left.get(source.node))))
            state = "read again" if source.change == "changed" else source.change
            yield NodeChange(source.node, "rows", source.change, state, reason, source.loses_offset)
    names = {group.name for group in groups}
    nodes = {name for group in groups for name in group.nodes}
    for job in (job for name, job in jobs.items() if name not in names):
        for name in (name for name, kind in kinds_of(job).items() if kind == "source" and name not in nodes):
            shown.add(name)
            stays = f"its state stays until penstock state reset {job.name}"
            yield NodeChange(
                name, "source", "dropped", "left", "; ".join(filter(None, (stays, left.get(name))))
            )
    for name in left.keys() - shown:
        yield NodeChange(name, "source", "unchanged" if name in nodes else "dropped", "left", left[name])


def _left_behind(
    spec: PipelineSpec, jobs: Mapping[str, Job], groups: Sequence[GroupPlan], backend: Backend | None
) -> dict[str, str]:
    """By nodes: what sources that are gone have left in other systems, and what removes it."""
    if backend is None:
        return {}
    texts: dict[str, list[str]] = {}
    names = {group: job.name for group, job in jobs.items()}
    for note, command in left_behind(spec.name, names, groups, backend):
        text = f"the {note.resource} stays until {command}"
        texts.setdefault(note.node, []).append(hide(text, spec.secrets))
    return {node: "; ".join(lines) for node, lines in texts.items()}


def _states(group: GroupPlan) -> Iterator[NodeChange]:
    """What happens to the state of the views of a group, and to the rows that they keep of other nodes."""
    for stage in (*(step.plan() for step in group.views), *map(_left, group.left_views)):
        for rows in stage.inputs:
            yield NodeChange(rows.name, "rows", rows.change, rows.change, rows.reason, rows.loses_rows)
        for view in stage.views:
            yield NodeChange(view.name, "view", view.change, view.change, view.reason, view.loses_rows)


def _left(folder: Path) -> StagePlan:
    """What goes with the state of views that are not declared any more."""
    return compare(StageStore(LocalFiles(), folder).read(), [], [])
