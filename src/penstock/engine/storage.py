"""The folders and prefixes to which users save a flow: checkpoints that build on each other, or one full checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from penstock.circuit.local import LocalKernel
from penstock.config import Settings
from penstock.engine import full_checkpoint, registration, replay
from penstock.engine.checkpoint import FlowCheckpoints
from penstock.engine.followers import refuse_followed
from penstock.engine.graph import Graph
from penstock.engine.runner import Runner
from penstock.errors import StateError
from penstock.state.full_folder import FullFolder
from penstock.state.location import open_location

Location = str | os.PathLike[str]


class FlowStorage:
    """What one flow has saved and restored; a checkpoint builds on the last one of the same location."""

    def __init__(
        self,
        runner: Runner,
        registering: RLock,
        *,
        session: replay.OpenSession,
        settings: Settings,
    ) -> None:
        self._runner = runner
        self._registering = registering
        self._session = session
        self._settings = settings
        self._checkpointing = RLock()  # taken before those of registrations and of ticks
        self._checkpoints: dict[str, FlowCheckpoints] = {}

    def checkpoint(self, location: Location, *, keep: int) -> int:
        """Add a checkpoint to those at a location, and return its number; only staging it keeps ticks waiting."""
        with self._checkpointing:
            checkpoints = self.checkpoints(location)
            with self._runner.lock:
                staged = checkpoints.stage(self._runner.graph, self._runner.name)
            with _translated(checkpoints.location):
                return checkpoints.write(staged, keep=keep)

    def checkpoints(self, location: Location) -> FlowCheckpoints:
        """The checkpoints at a location, to which one is to be added."""
        checkpoints, full = self._opened(location)
        if not checkpoints.exist() and full.exists():
            raise _other_kind(full.location, "a full checkpoint", "flow.checkpoint_full(path)")
        return checkpoints

    def checkpoint_full(self, location: Location) -> None:
        """Write a full checkpoint instead of the one at a location; only staging it keeps ticks waiting."""
        with self._checkpointing:
            with self._runner.lock:
                staged = full_checkpoint.stage(self._runner.graph, self._runner.name)
            checkpoints, full = self._opened(location)
            if checkpoints.exist():
                what = "checkpoints that build on each other"
                raise _other_kind(full.location, what, "flow.checkpoint(path)")
            with _translated(full.location):
                full.write(staged.flow, staged.tables)

    def restore(self, location: Location, make_kernel: replay.MakeKernel | None) -> None:
        """Be the flow that was saved at a location, of either kind; on an error nothing has changed."""
        with self._checkpointing, self._registering, self._runner.lock:
            self._runner.refuse_ended()
            refuse_followed(self._runner.graph)
            for entry in self._runner.graph.sources.values():
                registration.refuse_fed(entry)
            graph, name = self._restored(location, make_kernel)
            changelogs = self._runner.replace(graph, name)
        for changelog in changelogs:
            changelog.close()

    def _restored(
        self, location: Location, make_kernel: replay.MakeKernel | None
    ) -> tuple[Graph, str | None]:
        checkpoints, full = self._opened(location)
        budget = self._runner.graph.budget
        if not checkpoints.exist() and full.exists():
            saved = full_checkpoint.read(full)
            return replay.rebuilt_full(saved, self._session, budget, make_kernel or LocalKernel)
        return replay.restored(checkpoints, self._session, budget, make_kernel)

    def _opened(self, location: Location) -> tuple[FlowCheckpoints, FullFolder]:
        files, path = open_location(location, self._settings)
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
