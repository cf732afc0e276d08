"""A flow directory: the log of what happens to a flow, and checkpoints that bound how much of it is replayed.

    lock             locked by the process that has the flow open; a shared directory has a lease in the state backend instead
    log/             every event, synced before the call that caused it returns
    checkpoints/     the state of the flow at some events; the log behind the newest one is dropped
    scratch/         files without names, for state that has no room in memory; what is left here is taken away

A flow is its newest whole checkpoint and the events behind it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.engine.budget import FOLDER
from penstock.engine.checkpoint import FlowCheckpoints
from penstock.engine.event import Event, Header, TickEvent, ViewEvent, decode, encode
from penstock.engine.graph import Graph
from penstock.engine.pin import Pins
from penstock.engine.seal import Seal
from penstock.engine.shared import SharedOwner
from penstock.errors import StateError
from penstock.state.checkpoint import StagedCheckpoint
from penstock.state.files import AppendFiles, Files, LocalFiles, ReadOnlyFiles
from penstock.state.log import Log, RecordLog, RecordReader
from penstock.state.object_log import ObjectLog
from penstock.state.scratch import remove_leftovers

LOG = logging.getLogger("penstock.flow")
CHECKPOINT_EVERY = 64 * 2**20  # bytes of log
KEEP = 2


class FlowDirectory:
    """One flow on storage, opened by one process."""

    def __init__(
        self,
        location: str,
        *,
        log: Log,
        checkpoints: FlowCheckpoints,
        release: Callable[[], None],
        sync_ms: int | None = None,
        checkpoint_every: int = CHECKPOINT_EVERY,
        read_only: bool = False,
        seal: Seal | None = None,
    ) -> None:
        """Without `sync_ms` every event is synced at once. `release` lets others open the directory; `read_only`
        takes no events, and `seal` has values that plans must not show in storage.
        """
        self.location = location
        self.checkpoints = checkpoints
        self._log = log
        self._seal = seal or Seal()
        self._release = release
        self._read_only = read_only
        self._checkpoint_every = checkpoint_every
        self._writing: threading.Thread | None = None
        self._closed = False
        self._pins = Pins()
        self._sync = None if sync_ms is None else _PeriodicSync(self._log, sync_ms)
        self.error: BaseException | None = None
        """Why the last checkpoint could not be written."""

    # Opening

    def events(self, first: int) -> Iterator[Event]:
        """The events from a number of the log on; then the directory takes others."""
        for record in self._log.records(first):
            event = decode(self._opened(record.header), record.batches)
            if isinstance(event, TickEvent):
                self._seal.require_all()
            yield event

    # Reading what was before

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Let no checkpoint and no event be dropped while the body reads them; StateError when the flow is closed."""
        with self._pins.pin():
            self._refuse_closed()
            yield

    def reader(self, first: int) -> RecordReader:
        """Read the records of events again, from a number on, while others are appended."""
        return self._log.reader(first)

    # Writing

    @property
    def position(self) -> int:
        """The number of the next event."""
        return self._log.next

    def append(self, event: Event) -> None:
        """Write an event; it lasts when this returns, or `sync_ms` later. When it raises, the event has not happened."""
        self._refuse_closed()
        if self._read_only:
            raise StateError(
                "the flow is open for reading only",
                code="FLOW_READ_ONLY",
                hint="open it with IncrementalFlow(path=...) to change it",
                where=self.location,
            )
        header, batches = encode(event)
        if isinstance(event, ViewEvent):
            header = {**header, "view": self._seal.sealed(header["view"])}
        self._log.append(header, batches, sync=self._sync is None)

    def _opened(self, header: Header) -> Header:
        return {**header, "view": self._seal.opened(header["view"])} if header["event"] == "view" else header

    def sync(self) -> None:
        """Return when every event that was appended is on the disk; called from any thread."""
        self._log.sync()

    def is_due(self) -> bool:
        """Whether the log has grown so much that a checkpoint should be taken."""
        is_writing = self._writing is not None and self._writing.is_alive()
        return self._log.size() >= self._checkpoint_every and not is_writing

    def checkpoint(self, graph: Graph, name: str | None) -> None:
        """Take a checkpoint of the flow as it is now; called between ticks, and written while ticks go on.

        A checkpoint that fails is tried again when the log has grown as much once more: the log has everything.
        """
        try:
            staged = self.checkpoints.stage(graph, name, log=self._log.rotate())
        except Exception as error:
            self._failed(error)
            return
        self._writing = threading.Thread(target=self._write, args=(staged,), name="penstock-checkpoint")
        self._writing.start()

    def _write(self, staged: StagedCheckpoint) -> None:
        self.error = None
        try:
            self.checkpoints.write(staged)
            # What somebody reads is dropped behind a later checkpoint.
            with self._pins.unpinned(wait=False) as droppable:
                if droppable:
                    self.checkpoints.prune(KEEP)
                    self._log.drop_before(self.checkpoints.oldest()["log"])
        except BaseException as error:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self.error = error
        LOG.warning("the checkpoint of the flow in %s could not be written", self.location, exc_info=True)

    def replace(self, graph: Graph, name: str | None) -> None:
        """Let the directory hold another flow; on an error it holds the one of before."""
        self.wait()
        with self._pins.unpinned():
            first = self._log.rotate()
            self.checkpoints.write(self.checkpoints.stage(graph, name, log=first, begins=True), keep=1)
            self._log.drop_before(first)

    def metrics(self) -> dict[str, float]:
        """The growth of the log, and whether the last checkpoint could not be written, by their Prometheus names."""
        return {
            "penstock_flow_log_bytes": self._log.size(),
            "penstock_flow_events_total": self.position - 1,
            "penstock_flow_checkpoint_failed": int(self.error is not None),
        }

    def wait(self) -> None:
        """Return when the checkpoint that is being written is there, or has failed."""
        if self._writing is not None:
            self._writing.join()
            self._writing = None

    def close(self) -> None:
        """Finish what is being written, and let others open the directory."""
        if self._closed:
            return
        self.wait()
        with self._pins.unpinned():
            self._closed = True
        if self._sync is not None:
            self._sync.close()
        try:
            self._log.close()
        finally:
            self._release()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StateError(
                "the flow is closed",
                code="FLOW_CLOSED",
                hint="open its directory again",
                where=self.location,
            )


def local_directory(
    path: Path,
    *,
    sync_ms: int | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
    files: AppendFiles | None = None,
    seal: Seal | None = None,
) -> FlowDirectory:
    """Open a directory of this machine, which is made when it is not there; FLOW_OPEN when another process has it."""
    disk = files or LocalFiles()
    disk.make_folder(path)
    lock = _lock(path)
    try:
        remove_leftovers(path / FOLDER)
        return FlowDirectory(
            str(path),
            log=RecordLog(path / "log", files=disk),
            checkpoints=FlowCheckpoints(path / "checkpoints", disk, seal=seal),
            release=lambda: os.close(lock),
            sync_ms=sync_ms,
            checkpoint_every=checkpoint_every,
            seal=seal,
        )
    except BaseException:
        os.close(lock)
        raise


def shared_directory(
    path: Path,
    *,
    files: Files,
    owner: SharedOwner,
    sync_ms: int | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
    seal: Seal | None = None,
) -> FlowDirectory:
    """Open a directory on storage that several machines reach; `owner` says what of it counts, and is released with it."""
    directory = FlowDirectory(
        files.location(path),
        log=ObjectLog(path / "log", files=files, index=owner),
        checkpoints=FlowCheckpoints(
            path / "checkpoints", files, catalog=owner, writer=owner.writer, seal=seal
        ),
        release=owner.release,
        sync_ms=sync_ms,
        checkpoint_every=checkpoint_every,
        seal=seal,
    )
    owner.on_stop = directory.close
    return directory


def read_only_directory(path: Path) -> FlowDirectory:
    """Open a directory of this machine to look at it; another process may have it open."""
    disk = ReadOnlyFiles()
    return FlowDirectory(
        str(path),
        log=RecordLog(path / "log", files=disk),
        checkpoints=FlowCheckpoints(path / "checkpoints", disk),
        release=lambda: None,
        read_only=True,
    )


def contents(path: Path) -> list[str]:
    """The files of a directory that tell which checkpoints and which parts of the log it has; StateError when it is none."""
    names = [f"{part}/{name}" for part in ("log", "checkpoints") for name in LocalFiles().names(path / part)]
    if not names:
        raise StateError(
            "there is no flow here",
            code="STATE_NO_FLOW",
            hint='a flow directory is made by IncrementalFlow(path="..."), or by penstock sql --flow DIR',
            where=str(path),
        )
    return names


class _PeriodicSync:
    """Syncs a log every so many milliseconds."""

    def __init__(self, log: Log, milliseconds: int) -> None:
        self._log = log
        self._seconds = milliseconds / 1000
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-log-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            try:
                self._log.sync()
            except Exception:
                # The log takes no more records, so the next tick raises.
                LOG.warning("the log of a flow could not be synced", exc_info=True)
                return

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


def _lock(path: Path) -> int:
    """Lock a directory for this process; StateError when another one has it."""
    handle = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.read(handle, 100).decode(errors="replace").strip()
        os.close(handle)
        raise StateError(
            f"the flow is open in {owner or 'another process'}",
            code="FLOW_OPEN",
            hint="close it there first: flow.close(), or the end of the process",
            where=str(path),
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"process {os.getpid()}\n".encode(), 0)
    return handle
