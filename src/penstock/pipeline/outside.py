"""What the sources of a pipeline have made in other systems, as the state database knows it, also when such a source
is gone from the file.

A replication slot makes its server keep the log until somebody drops it. So it is noted before the source makes it,
with all that is needed to drop it but the way in: passwords are stored nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.sources.base import ExternalResource

if TYPE_CHECKING:
    from penstock.backend import Backend
    from penstock.backend.job_values import JobValues
    from penstock.pipeline.group import GroupPlan

OUTSIDE = "outside"
"""The namespace of the notes of a job."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a source has made, as a job has noted it."""

    node: str
    resource: ExternalResource
    is_left: bool = False
    """Whether no source makes it any more, at the last start."""

    def __str__(self) -> str:
        return f"{self.resource} of '{self.node}'"


def note_resources(values: JobValues, source_notes: Iterable[Note], *, everywhere: Iterable[Note]) -> None:
    """Note what a job is about to make, and which notes are left of sources that it had; `everywhere` is what all
    jobs of its pipeline make.

    What another job makes now is noted there.
    """
    own, now = (
        {note.resource.what: note for note in source_notes},
        {note.resource.what for note in everywhere},
    )
    for note in notes(values.backend, values.job):
        if note.resource.what in own:
            continue
        if note.resource.what in now:
            values.remove(note.resource.what)
        elif not note.is_left:
            values.put(note.resource.what, _stored(replace(note, is_left=True)))
    for what, note in own.items():
        values.put(what, _stored(note))


def notes(backend: Backend, job: str) -> list[Note]:
    """What is noted of a job."""
    stored: Mapping[tuple[str, str], Any] = backend.state.items(job, namespace=OUTSIDE)
    return [
        Note(value["node"], ExternalResource(**value["resource"]), value["is_left"])
        for value in stored.values()
    ]


def resources_of(groups: Iterable[GroupPlan], hide: Callable[[str], str]) -> list[Note]:
    """What the sources of groups make; `hide` takes secrets out."""
    return [
        Note(source.node.name, replace(resource, where=hide(resource.where)))
        for group in groups
        for source in group.sources
        if (resource := source.source.external_resource) is not None
    ]


def left_behind(
    pipeline: str, jobs: Mapping[str, str], groups: Iterable[GroupPlan], backend: Backend
) -> list[tuple[Note, str]]:
    """What no source of a pipeline makes any more, each with the command that removes it; `jobs` are those that have
    run, by their groups."""
    planned = list(groups)
    now = {note.resource.what for note in resources_of(planned, str)}
    names = {group.name for group in planned}
    return [
        (replace(note, is_left=True), removal(pipeline, note) if group in names else removal(job))
        for group, job in jobs.items()
        for note in notes(backend, job)
        if note.resource.what not in now
    ]


def removal(name: str, note: Note | None = None) -> str:
    """The command that removes what is left of one source, or all that a job keeps."""
    source = "" if note is None else f" --source {note.node}"
    return f"penstock state reset {name}{source}"


def _stored(note: Note) -> dict[str, Any]:
    return asdict(note)
