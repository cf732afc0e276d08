"""What of a flow survives: a process, a disk, a machine."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Literal

from penstock.data.duration import milliseconds
from penstock.engine.names import one_of
from penstock.errors import ConfigError

Durability = Literal["memory", "local"]
DURABILITIES: tuple[Durability, ...] = ("memory", "local")
Sync = Literal["tick"] | int | str | timedelta


def check_durability(durability: Durability | None, path: str | os.PathLike[str] | None) -> Durability:
    """The durability of a flow; ConfigError when its path cannot keep it."""
    if durability is None:
        return "memory" if path is None else "local"
    one_of("durability", durability, DURABILITIES)
    if durability == "memory" and path is not None:
        raise ConfigError(
            "a flow with durability 'memory' has no path",
            code="FLOW_DURABILITY",
            hint="leave path out, or take durability='local'",
        )
    if durability == "local" and path is None:
        raise ConfigError(
            "a flow with durability 'local' needs a path",
            code="FLOW_DURABILITY",
            hint='give it a folder of this machine: IncrementalFlow(path="flows/orders")',
        )
    return durability


def sync_ms(sync: Sync) -> int | None:
    """How long a tick may be unsynced, None for not at all."""
    return None if sync == "tick" else milliseconds(sync, what="sync")
