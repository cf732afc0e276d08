"""Throwing away what a group of a pipeline keeps outside of its folder: dead letters, and what its sources have made
in other systems."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, StateError
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.secret import hide

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.pipeline.outside import Note
    from penstock.pipeline.spec import PipelineSpec


def remove_tree(folder: Path) -> bool:
    """Delete a folder; False when there is none."""
    if not folder.is_dir():
        return False
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise StateError(
            f"the folder cannot be deleted: {error.strerror}", code="STATE_CHECKPOINT", where=str(folder)
        ) from error
    return True


def remove_outside(file: Path, notes: Sequence[Note], settings: Settings) -> Iterator[tuple[Note, str]]:
    """Remove what sources of a pipeline have made in other systems; yields each, and why it stays or an empty text.

    The address is that of a node of the file in the same place, or that of the settings: passwords are recorded nowhere.
    """
    from penstock.pipeline.load import check
    from penstock.sources import source_of

    if not notes:
        return
    spec, reason = None, ""
    try:
        spec = check(file, settings=settings).spec
    except (PenstockError, OSError) as error:
        reason = error.message if isinstance(error, PenstockError) else str(error)
        if isinstance(error, PipelineError):
            # An address without its variables is a mistake too, and not the one that counts.
            unset = (problem for problem in error.problems if problem.code == "PIPELINE_VARIABLE")
            reason = next(unset, error.problems[0]).text
    secrets = frozenset[str]() if spec is None else spec.secrets
    addresses = _addresses(spec, settings)
    for note in notes:
        url = next((url for url, place in addresses if hide(place, secrets) == note.resource.where), None)
        kind = source_of(note.resource.kind)
        if url is None or kind is None:
            unknown = reason or f"no node of {file} has an address of {note.resource.where}"
            yield note, f"{unknown}; PENSTOCK_POSTGRES_URL, set to its address, is the way in"
            continue
        try:
            kind.remove(note.resource, url)
        except PenstockError as error:
            yield note, hide(error.message, secrets)
        else:
            yield note, ""


def _addresses(spec: PipelineSpec | None, settings: Settings) -> list[tuple[str, str]]:
    """The databases that are known here: their addresses, and where that is without secrets."""
    from penstock.sources.postgres import client
    from penstock.sources.postgres.address import is_address
    from penstock.sources.require import require_package

    require_package("psycopg", extra="postgres")
    urls = (
        []
        if spec is None
        else [url for node in spec.nodes.values() for url in _urls(node.model.model_dump())]
    )
    urls += [settings.postgres_url] if settings.postgres_url else []
    # Other addresses than those of databases are fields with this name, too.
    return [(url, client.location(url)) for url in dict.fromkeys(urls) if is_address(url)]


def _urls(value: object) -> Iterator[str]:
    """What may be addresses of databases in the fields of a node, and of nodes within it."""
    for name, item in value.items() if isinstance(value, Mapping) else ():
        if name == "url" and isinstance(item, str):
            yield item
        else:
            yield from _urls(item)
