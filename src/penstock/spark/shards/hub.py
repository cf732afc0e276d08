"""The hub: where the tasks of a change get their work, exchange rows, and hear whether the change is final.

It is a socket in the driver. What a task has sent stays until the job has ended, so that a task that Spark runs
again, on whatever machine, gets the same work and the same rows, and gives the same answer: whatever comes twice is
the same.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from pickle import PickleBuffer
from typing import Any

from penstock.circuit.message import dumps, piece
from penstock.circuit.shard_images import portable, read_images
from penstock.spark.shards import wire
from penstock.spark.shards.history import Entry, ShardHistory

LOG = logging.getLogger("penstock.flow")


class Over(Exception):
    """The change that somebody waits for is not made."""


@dataclass(slots=True)
class Work:
    """One change, or one question, that all shards get; `participants` send rows in every phase."""

    version: int
    change: bytes | None
    rows: Sequence[bytes]
    question: bytes | None = None
    participants: int = 0
    # By phase and sender: what goes to each receiver.
    sent: dict[tuple[int, int], Mapping[int, bytes]] = field(default_factory=dict)
    answers: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, Exception] = field(default_factory=dict)
    final: bool | None = None
    ended: bool = False  # whether the job has
    abandoned: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def send(self, phase: int, sender: int, outbox: Mapping[int, bytes]) -> None:
        """What a shard sends behind a phase."""
        with self.changed:
            self.sent.setdefault((phase, sender), outbox)
            self.changed.notify_all()

    def inbox(self, phase: int, receiver: int) -> list[tuple[int, PickleBuffer]]:
        """What others have sent to a shard behind a phase, when all have; Over when the change is not made."""
        with self.changed:
            self.changed.wait_for(
                lambda: (
                    self.is_over or all((phase, sender) in self.sent for sender in range(self.participants))
                )
            )
            if self.is_over:
                raise Over
            return self.inbox_of(phase, receiver)

    def inbox_of(self, phase: int, receiver: int) -> list[tuple[int, PickleBuffer]]:
        """The same, without waiting."""
        return [
            (sender, piece(self.sent[phase, sender][receiver]))
            for sender in range(self.participants)
            if sender != receiver and receiver in self.sent[phase, sender]
        ]

    @property
    def is_over(self) -> bool:
        return bool(self.errors) or self.final is False or self.ended

    @property
    def is_settled(self) -> bool:
        """Whether tasks that have not heard what became of the change are not needed for it."""
        return bool(self.errors) or self.final is not None or self.abandoned

    def abandon(self) -> None:
        """Nobody waits for the tasks any more."""
        with self.changed:
            self.abandoned = self.ended = True
            self.changed.notify_all()

    def end(self) -> None:
        """No task is left."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def answer(self, shard: int, answer: Any) -> None:
        with self.changed:
            self.answers.setdefault(shard, answer)
            self.changed.notify_all()

    def fail(self, shard: int, error: Exception) -> None:
        with self.changed:
            self.errors.setdefault(shard, error)
            self.changed.notify_all()

    def settle(self, final: bool) -> None:
        with self.changed:
            self.final = final
            self.changed.notify_all()

    def verdict(self) -> bool:
        """Wait until the change is final, or is not made."""
        with self.changed:
            self.changed.wait_for(lambda: self.final is not None or self.errors or self.ended)
            return bool(self.final)

    def phases(self) -> int:
        return 1 + max((phase for phase, _ in self.sent), default=-1)

    def entry(self, shard: int) -> Entry:
        """The change as a shard has made it."""
        assert self.change is not None
        inboxes = [self.inbox_of(phase, shard) for phase in range(self.phases())]
        return Entry(self.change, piece(self.rows[shard]), inboxes)


class Hub:
    """Serves the shards of one kernel, one connection for each."""

    def __init__(
        self, host: str, history: ShardHistory, closing: threading.Event, *, remote: bool = False
    ) -> None:
        """`remote` tasks do not reach the folders of saved states, and get the states themselves."""
        self._remote = remote
        self._history = history
        self._closing = closing
        self.secret = secrets.token_bytes(32)
        self._socket = socket.create_server((host, 0), backlog=128)
        self.port: int = self._socket.getsockname()[1]
        self._work: Work | None = None
        self._stays = False
        self._has_work = threading.Condition()
        self.connected: set[int] = set()
        self._parts: dict[str, socket.socket] = {}  # connections over which parts of checkpoints come
        self._thread = threading.Thread(target=self._accept, name="penstock-shards", daemon=True)
        self._thread.start()

    def begin(self, work: Work, *, stays: bool = False) -> None:
        """Give this work to all that connect from now on, and to those that wait; tasks stay behind it, or end."""
        with self._has_work:
            self._work, self._stays = work, stays
            self.connected = set()
            self._has_work.notify_all()

    def let_go(self) -> None:
        """No work comes any more for tasks that stay."""
        with self._has_work:
            self._stays = False
            self._has_work.notify_all()

    def end(self) -> None:
        """The job has ended."""
        with self._has_work:
            self._work = None

    def close(self) -> None:
        # A server that is closed while it accepts may accept one more.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.take_parts(())

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve, args=(connection,), name="penstock-shard", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                if wire.accepted(connection, self.secret):
                    self._talk(connection)
            except (ConnectionError, OSError):
                # Spark runs the task again.
                LOG.info("the task of a shard is gone", exc_info=True)

    def _talk(self, connection: socket.socket) -> None:
        """Give a task its work, or one after the other while tasks stay."""
        work: Work | None = None
        stays = True
        while stays:
            shard, version = wire.receive(connection)
            if isinstance(shard, str):
                self._keep_part(connection, shard)
                return
            work, stays = self._next(work)
            if work is None:
                wire.send(connection, None)
                return
            self.connected.add(shard)
            wire.send(connection, (stays, *self._begun(shard, version, work)))
            self._serve_work(connection, shard, work)

    def _keep_part(self, connection: socket.socket, token: str) -> None:
        """Whoever takes the checkpoint reads from a connection when it comes to it."""
        with self._has_work:
            self._parts[token] = connection.dup()
        wire.send(connection, None)

    def take_parts(self, tokens: Sequence[str]) -> list[socket.socket]:
        """The connections of the parts that a question has begun; others are of tasks that were run again."""
        with self._has_work:
            taken = [self._parts.pop(token) for token in tokens]
            left, self._parts = list(self._parts.values()), {}
        for connection in left:
            connection.close()
        return taken

    def _next(self, last: Work | None) -> tuple[Work | None, bool]:
        """The work of now, or behind the `last` one the next, when one comes; and whether there may be others behind it."""
        with self._has_work:
            if last is None:
                return self._work, self._stays
            # A task of a job that was given up ends.
            self._has_work.wait_for(lambda: last.ended or not self._stays or self._work is not last)
            is_over = last.ended or self._work is last
            return None if is_over else self._work, self._stays

    def _serve_work(self, connection: socket.socket, shard: int, work: Work) -> None:
        if work.question is not None:
            kind, answer = wire.receive(connection)
            work.answer(shard, answer) if kind == "answer" else work.fail(shard, answer)
            # The task must not end before its answer is here.
            wire.send(connection, False)
            return
        phase = 0
        while True:
            kind, content = wire.receive(connection)
            if kind == "sent":
                work.send(phase, shard, content)
                try:
                    wire.send(connection, work.inbox(phase, shard))
                except Over:
                    wire.send(connection, None)
                    return
                phase += 1
            elif kind == "failed":
                work.fail(shard, content)
                wire.send(connection, False)
                return
            else:
                work.answer(shard, content)
                wire.send(connection, work.verdict())
                return

    def _begun(self, shard: int, version: int, work: Work) -> tuple[Any, ...]:
        """What a shard of some version must do first, and the work."""
        history = self._history
        base = None
        if not history.base.version <= version <= work.version:
            base, version = history.base, history.base.version
        entries = history.since(shard, version)[: work.version - version]
        folder: Any = None if base is None or not base.folders else base.folders[shard]
        if folder is not None and self._remote:
            folder = {key: portable(image) for key, image in read_images(Path(folder)).items()}
        changes = dumps(tuple(base.changes)) if base is not None else None
        rows = None if work.change is None else piece(work.rows[shard])
        return base is not None, folder, changes, entries, work.version, work.change, rows, work.question
