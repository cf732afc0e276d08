"""The names of groups: a group that has run keeps its name, and so its place in its sources, whatever else changes in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.backend import Backend, Job

GROUP, NODES = "group", "nodes"
"""What is recorded of the job that runs a group: its name, and the nodes that it was started with."""
OUTSIDE = "outside"
"""What sources have made in other systems, by their nodes, in words."""


def job_name(pipeline: str, group: str) -> str:
    """The name of the job that runs a group; the only one has no name of its own."""
    return "/".join(filter(None, (pipeline, group)))


def earlier_groups(pipeline: str, backend: Backend) -> dict[str, Job]:
    """The groups of a pipeline that have run, by their names."""
    return {
        job.definition[GROUP]: job
        for job in backend.jobs.list()
        if job.kind == "pipeline"
        and GROUP in job.definition
        and job.name == job_name(pipeline, job.definition[GROUP])
    }


def kinds_of(job: Job) -> dict[str, str]:
    """The nodes that a group had, by their names, and whether each was a source, a transform or a sink."""
    return {name: node["kind"] for name, node in job.definition.get(NODES, {}).items()}


def group_names(groups: Sequence[Mapping[str, str]], before: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a name for each group; groups, and those `before` that have run, are the kinds of their nodes by name.

    A group that has a source of an earlier one has its name, or else one that has another node of it. Of the others an only group has none, and each
    of several has that of its first source.

    >>> group_names([{"orders": "source"}], {})
    ['']
    >>> group_names([{"clicks": "source"}, {"orders": "source"}], {"": {"orders": "source"}})
    ['clicks', '']
    """
    names: dict[int, str] = {}
    for kinds in (("source",), ("source", "transform", "sink")):
        for at, nodes in enumerate(groups):
            own = {name for name, kind in nodes.items() if kind in kinds}
            free = (name for name in before if name not in names.values() and own & set(before[name]))
            if at not in names and (name := next(free, None)) is not None:
                names[at] = name
    for at, nodes in enumerate(groups):
        if at not in names:
            firsts = (name for name, kind in nodes.items() if kind == "source" and name not in names.values())
            names[at] = "" if len(groups) == 1 else next(firsts, "")
    return [names[at] for at in range(len(groups))]
