"""Flows on shared storage: opened by owners that come and go, with real backends."""

from __future__ import annotations

from pathlib import Path

import penstock as ps
from penstock.backend import open_backend
from penstock.engine.directory import shared_directory
from penstock.engine.shared import SharedOwner
from penstock.state.files import Files, LocalFiles

NAME = "shared"
TTL_MS = 60_000


def owned(
    path: Path, state: str, *, files: Files | None = None, checkpoint_every: int = 1, **options: float
) -> tuple[ps.IncrementalFlow, SharedOwner]:
    """A flow in a shared directory, and its owner."""
    owner = SharedOwner(open_backend(state), NAME, str(path), **{"ttl_ms": TTL_MS, **options})  # type: ignore[arg-type]
    flow = ps.IncrementalFlow(clock=lambda: 0)
    flow._open(
        shared_directory(path, files=files or LocalFiles(), owner=owner, checkpoint_every=checkpoint_every)
    )
    flow.durability = "shared"
    return flow, owner


def lapse(owner: SharedOwner) -> None:
    """Let the lease of an owner run out, as if its process had been paused: it does not know of that."""
    owner._heartbeat.stop()
    assert owner._backend.leases.release(owner._lease)
