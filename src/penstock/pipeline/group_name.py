"""The names of groups: a group that has run keeps its name, and so its offsets, whatever else changes in the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.backend.job_name import unknown_job

if TYPE_CHECKING:
    from penstock.backend import Backend, Job

GROUP, NODES = "group", "nodes"
"""What is recorded of the job that runs a group: its name, and the nodes that it was started with."""


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


def jobs_of(name: str, backend: Backend, *, also: Iterable[str] = ()) -> list[Job]:
    """The jobs that a name selects: those of all groups of a pipeline, or else the one job of that name or id;
    ConfigError when there is none.

    A group is selected alone by the name of its job, unless that is also the pipeline's, and by its id. `also` are
    more names that may have been meant.
    """
    job = backend.jobs.find(name)
    if job is not None and (job.kind != "pipeline" or job.name != name or job.definition.get(GROUP)):
        return [job]
    if groups := list(earlier_groups(name, backend).values()):
        return groups
    if job is not None:
        return [job]
    jobs = backend.jobs.list()
    names = {*also, *(other.name for other in jobs), *filter(None, map(_pipeline_of, jobs))}
    raise unknown_job(name, sorted(names), location=backend.location)


def _pipeline_of(job: Job) -> str | None:
    """The name of the pipeline of which a job runs a group."""
    if job.kind != "pipeline" or GROUP not in job.definition:
        return None
    return job.name.removesuffix(f"/{job.definition[GROUP]}")


def kinds_of(job: Job) -> dict[str, str]:
    """The nodes that a group had, by their names, and whether each was a source, a transform or a sink."""
    return {name: node["kind"] for name, node in job.definition.get(NODES, {}).items()}


def group_names(groups: Sequence[Mapping[str, str]], before: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a name for each group; groups, and those `before` that have run, are the kinds of their nodes by name.

    A group that has a source of an earlier one has its name, or else one that has another node of it. Of the others
    an only group has none, and each of several has that of its first source.

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
