"""What of a flow survives: a process, a disk, a machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from penstock.backend import open_backend, state_url
from penstock.config import Settings
from penstock.data.duration import milliseconds
from penstock.engine.directory import CHECKPOINT_EVERY, FlowDirectory, local_directory, shared_directory
from penstock.engine.names import one_of
from penstock.engine.seal import Seal
from penstock.engine.shared import SharedOwner
from penstock.errors import ConfigError
from penstock.state.location import is_remote, local_folder, open_location

Durability = Literal["memory", "local", "shared"]
DURABILITIES: tuple[Durability, ...] = ("memory", "local", "shared")
Sync = Literal["tick"] | int | str | timedelta
_LOCAL_MASTER = ("local", "local[")


@dataclass(frozen=True, slots=True)
class Profile:
    """How a flow lasts, as its user has asked for it."""

    durability: Durability
    path: str | os.PathLike[str] | None = None
    sync: Sync = "tick"
    checkpoint_every: int = CHECKPOINT_EVERY
    shared_disk: bool = False  # whether a path of this machine is one of all nodes


def check_durability(durability: Durability | None, path: str | os.PathLike[str] | None) -> Durability:
    """The durability of a flow; ConfigError when its path cannot keep it."""
    if durability is None:
        return "memory" if path is None else "shared" if is_remote(path) else "local"
    one_of("durability", durability, DURABILITIES)
    if durability == "memory" and path is not None:
        raise _refused(
            "a flow with durability 'memory' has no path", "leave path out, or take durability='local'"
        )
    if durability == "memory":
        return durability
    if path is None:
        raise _refused(
            f"a flow with durability '{durability}' needs a path",
            'give it a folder of this machine: IncrementalFlow(path="flows/orders")'
            if durability == "local"
            else 'give it a place that all nodes reach: IncrementalFlow(path="s3://bucket/flows/orders")',
        )
    if durability == "local" and is_remote(path):
        raise _refused(
            f"'{path}' is an object store, and a flow with durability 'local' is on the disk of this machine",
            "leave durability out, or take durability='shared'",
        )
    return durability


def own_folder(profile: Profile) -> Path | None:
    """The folder of this machine that a flow has alone; None for one in memory, or on storage that others reach."""
    if profile.path is None or profile.durability != "local":
        return None
    return local_folder(profile.path)


def open_directory(
    profile: Profile, name: str | None, settings: Settings, *, seal: Seal | None = None
) -> FlowDirectory:
    """Open the flow directory of a profile; ConfigError when its path or the state backend cannot keep it."""
    assert profile.path is not None
    every, interval = profile.checkpoint_every, sync_ms(profile.sync)
    if profile.durability == "local":
        _, folder = open_location(profile.path, settings)
        return local_directory(folder, sync_ms=interval, checkpoint_every=every, seal=seal)
    _require_reachable(profile, settings)
    files, path = open_location(profile.path, settings)
    is_new = not files.names(path / "log") and not files.names(path / "checkpoints")
    backend = open_backend(settings)
    try:
        owner = SharedOwner(backend, name or path.name, files.location(path), is_new=is_new)
    except BaseException:
        backend.close()
        raise
    try:
        return shared_directory(
            path, files=files, owner=owner, sync_ms=interval, checkpoint_every=every, seal=seal
        )
    except BaseException:
        owner.release()
        raise


def _require_reachable(profile: Profile, settings: Settings) -> None:
    """ConfigError when Spark runs on other machines that do not reach the path, or the state backend."""
    master = settings.master or settings.conf.get("spark.master") or "local[*]"
    if master.startswith(_LOCAL_MASTER) or profile.path is None:
        return
    if not is_remote(profile.path) and not profile.shared_disk:
        raise _refused(
            f"Spark runs on {master}, and '{profile.path}' is a path of this machine",
            "take an object store, or say shared_disk=True when all nodes have this disk",
        )
    if state_url(settings).startswith("sqlite"):
        raise _refused(
            f"Spark runs on {master}, and the state backend is a file of this machine",
            "take Postgres: PENSTOCK_STATE=postgresql://user:password@host/database",
        )


def _refused(message: str, hint: str) -> ConfigError:
    return ConfigError(message, code="FLOW_DURABILITY", hint=hint)


def sync_ms(sync: Sync) -> int | None:
    """How long a tick may be unsynced, None for not at all."""
    return None if sync == "tick" else milliseconds(sync, what="sync")
