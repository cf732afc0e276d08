"""The folders and prefixes to which users save a flow: checkpoints that build on each other, or one full checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.circuit.budget import MemoryBudget
from penstock.circuit.local import LocalKernel
from penstock.config import Settings
from penstock.engine import full_checkpoint, replay
from penstock.engine.checkpoint import FlowCheckpoints
from penstock.engine.full_checkpoint import StagedFull
from penstock.engine.graph import Graph
from penstock.errors import StateError
from penstock.state.checkpoint import Staged
from penstock.state.full_folder import FullFolder
from penstock.state.location import open_location

Location = str | os.PathLike[str]


class FlowStorage:
    """What one flow has saved and restored; a checkpoint builds on the last one of the same location."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._checkpoints: dict[str, FlowCheckpoints] = {}

    def checkpoints(self, location: Location) -> FlowCheckpoints:
        """The checkpoints at a location, to which one is to be added."""
        checkpoints, full = self._opened(location)
        if not checkpoints.exist() and full.exists():
            raise _other_kind(full.location, "a full checkpoint", "flow.checkpoint_full(path)")
        return checkpoints

    def write(self, checkpoints: FlowCheckpoints, staged: Staged, *, keep: int) -> int:
        """Write a checkpoint, and return its number."""
        with _translated(checkpoints.location):
            return checkpoints.write(staged, keep=keep)

    def write_full(self, location: Location, staged: StagedFull) -> None:
        """Write a full checkpoint instead of the one that is there."""
        checkpoints, full = self._opened(location)
        if checkpoints.exist():
            raise _other_kind(full.location, "checkpoints that build on each other", "flow.checkpoint(path)")
        with _translated(full.location):
            full.write(staged.flow, staged.tables)

    def restored(
        self,
        location: Location,
        session: replay.OpenSession,
        budget: MemoryBudget | None = None,
        make_kernel: replay.MakeKernel | None = None,
    ) -> tuple[Graph, str | None]:
        """The flow that was saved at a location, of either kind, and its name."""
        checkpoints, full = self._opened(location)
        if not checkpoints.exist() and full.exists():
            saved = full_checkpoint.read(full)
            return replay.rebuilt_full(saved, session, budget, make_kernel or LocalKernel)
        return replay.restored(checkpoints, session, budget, make_kernel)

    def _opened(self, location: Location) -> tuple[FlowCheckpoints, FullFolder]:
        files, path = open_location(location, self._settings())
        shown = files.location(path)
        checkpoints = self._checkpoints.setdefault(shown, FlowCheckpoints(path, files))
        return checkpoints, FullFolder(path, files)


@contextmanager
def _translated(location: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(
            f"the checkpoint could not be written: {error}",
            code="STATE_CHECKPOINT_UNWRITTEN",
            hint="the one before it is still there; free space or repair the disk, then take it again",
            where=location,
        ) from error


def _other_kind(location: str, what: str, how: str) -> StateError:
    return StateError(
        f"there is {what} here" if what.startswith("a ") else f"there are {what} here",
        code="STATE_CHECKPOINT_KIND",
        hint=f"take another folder; {how} writes to this one",
        where=location,
    )
