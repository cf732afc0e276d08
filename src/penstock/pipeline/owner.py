"""Whose state a pipeline goes on with: the state is kept by the pipeline's name, and another file may have the same one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import config
from penstock.backend import this_process
from penstock.errors import ConfigError
from penstock.pipeline.group_folder import FOLDER, GroupFolder
from penstock.pipeline.node_type import SECTIONS
from penstock.pipeline.spec import STDIN
from penstock.pipeline.variables import Filling
from penstock.pipeline.yaml_tree import LARGEST_FILE, MappingTree, YamlScalar, decode, parse

if TYPE_CHECKING:
    from penstock.backend import Job
    from penstock.pipeline.spec import PipelineSpec


def refuse_other_file(spec: PipelineSpec, jobs: Iterable[Job]) -> None:
    """ConfigError when the state that a pipeline would go on with is that of another file that is there; `jobs` are
    those that have run.

    A file that was moved or renamed goes on, because the old one is gone; so does one whose predecessor has another name by now.
    """
    other = other_file(spec, jobs)
    if other is None:
        return
    raise ConfigError(
        f"'{spec.name}' is the name of the pipeline in {other}, whose state this one would go on with",
        code="PIPELINE_OTHER_FILE",
        where=spec.path,
        hint="give one of the two another `name:`; if this file has taken the place of the other, "
        f"penstock run {spec.path} --moved",
    )


def other_file(spec: PipelineSpec, jobs: Iterable[Job]) -> Path | None:
    """The file that has run last under the name of a pipeline, when it is another one that could run again."""
    ran = [job for job in jobs if job.start is not None and job.start.place is not None and _has_state(job)]
    if spec.path == STDIN or not ran:
        return None
    last = max(ran, key=lambda job: (job.started_at is not None, job.started_at))
    if last.lease is not None and last.lease.owner.host != this_process("").host:
        return None  # nobody sees from here whether it is there
    assert last.start is not None
    assert last.start.place is not None
    own, other = Path(spec.path).absolute(), Path(last.start.place)
    if other == own or not other.is_file() or (own.exists() and own.samefile(other)):
        return None
    return other if _name_in(other) == spec.name else None


def _has_state(job: Job) -> bool:
    """Whether there is something to go on with: nothing of what has been reset."""
    folder = job.definition.get(FOLDER)
    return folder is None or GroupFolder(Path(folder)).has_begun


def _name_in(path: Path) -> str | None:
    """The name of the pipeline in a file; None when it has none."""
    try:
        with path.open("rb") as file:
            text = decode(file.read(LARGEST_FILE + 1), str(path))
    except OSError:
        return None
    tree = parse(text, str(path))[0] if isinstance(text, str) else None
    if not isinstance(tree, MappingTree) or not any(tree.get(section) for section in SECTIONS):
        return None
    name = tree.get("name")
    if isinstance(name, YamlScalar) and name.value is not None:
        return Filling(config.variables()).scalar(name).text
    return path.stem
