"""The task of a change: it holds shards in memory from one task to the next, and does what the hub asks for.

A shard that is at the version before the change makes the change in memory. One that is older makes the changes first
that it lacks. Any other begins with the states that were saved last.
"""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.circuit.message import dumps, loads, piece
from penstock.circuit.operation import Change, Changed, Images, Question, StageCheckpoint
from penstock.circuit.shard import Inbox, Outbox, Phases, Shard
from penstock.circuit.shard_images import read_images
from penstock.errors import InternalError
from penstock.spark.shards import part, wire
from penstock.spark.shards.history import Entry


@dataclass(frozen=True, slots=True)
class ShardGroup:
    """The shards that one task has."""

    kernel: str
    address: tuple[str, int]
    secret: bytes
    numbers: tuple[int, ...]
    shards: int
    memory: int | None = None  # bytes of state of one shard that may lie in memory

    def shard(self, number: int) -> Shard:
        """A shard without anything."""
        return Shard(number, self.shards, memory=self.memory)


@dataclass(slots=True)
class _LiveShard:
    version: int
    shard: Shard


# Of each kernel the shards that this process has.
_LIVE: dict[tuple[str, int], _LiveShard] = {}


def run_group(group: ShardGroup, rows: Iterable[Any]) -> Iterator[Any]:
    """Do the work of all shards of a group; nothing is returned to Spark."""
    for _ in rows:
        # A worker that has not read everything is not used again.
        pass
    # Another task of this process may come and go meanwhile.
    for key in list(_LIVE):
        if key[0] != group.kernel:
            _LIVE.pop(key, None)
    connections = _Connections()
    if len(group.numbers) == 1:
        _run(group, group.numbers[0], connections)
        return iter(())
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            _run(group, number, connections)
        except BaseException as error:
            errors.append(error)
            connections.shut()

    threads = [threading.Thread(target=run, args=(number,)) for number in group.numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return iter(())


class _Connections:
    """The connections of one task: when one of its shards fails, the others would wait for it for ever, and fail, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._is_shut = False

    def add(self, connection: socket.socket) -> None:
        with self._lock:
            if self._is_shut:
                raise ConnectionError("another shard of the task has failed")
            self._open.append(connection)

    def shut(self) -> None:
        with self._lock:
            self._is_shut = True
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def _run(group: ShardGroup, number: int, connections: _Connections) -> None:
    key = (group.kernel, number)
    # What fails half-way is made again.
    live = _LIVE.pop(key, None) or _LiveShard(-1, group.shard(number))
    with wire.connect(group.address, group.secret) as connection:
        connections.add(connection)
        stays = True
        while stays:
            wire.send(connection, (number, live.version))
            begun = wire.receive(connection)
            if begun is None:
                break
            stays, anew, folder, changes, entries, version, change, rows, question = begun
            if anew:
                live = _LiveShard(version, _from_base(group.shard(number), folder, loads(changes)))
            for entry in entries:
                _replay(live.shard, entry)
            live.version = version
            if question is not None:
                _answer(connection, group, live.shard, loads(question))
            elif _make(connection, live.shard, loads(change), loads(rows)):
                live.version += 1
    if live.version >= 0:
        _LIVE[key] = live


def _answer(connection: Any, group: ShardGroup, shard: Shard, question: Question) -> None:
    try:
        if isinstance(question, StageCheckpoint):
            staged = shard.stage_part(question.order)
            answer: tuple[str, Any] = ("answer", part.begin(staged, group.address, group.secret))
        else:
            answer = ("answer", shard.answer(question))
    except Exception as error:
        answer = ("failed", portable(error))
    wire.send(connection, answer)
    wire.receive(connection)


def _from_base(shard: Shard, saved: str | Images | None, changes: Sequence[Change]) -> Shard:
    """A shard with the states that were saved last: in a folder of this machine, or as they were sent."""
    if saved is not None:
        shard.load(read_images(Path(saved)) if isinstance(saved, str) else saved)
    for change in changes:
        _finish(shard.change(change, {}))
    return shard


def _finish(phases: Phases) -> None:
    """A change without phases."""
    next(phases)
    _end(phases)


def _end(phases: Phases) -> None:
    try:
        phases.send(True)
    except StopIteration:
        return
    raise AssertionError("a change goes on behind its end")


def _replay(shard: Shard, entry: Entry) -> None:
    """Make a change as it was made."""
    phases = shard.change(loads(entry.change), loads(entry.rows))
    yielded = phases.send(None)
    for inbox in entry.inboxes:
        assert not isinstance(yielded, Changed), "a change had more phases than it has now"
        yielded = phases.send(merged(shard.number, yielded, inbox))
    assert isinstance(yielded, Changed), "a change had less phases than it has now"
    _end(phases)


def _make(connection: Any, shard: Shard, change: Change, rows: Any) -> bool:
    """Make a change together with the others; whether it is final."""
    phases = shard.change(change, rows)
    try:
        yielded = phases.send(None)
        while not isinstance(yielded, Changed):
            outbox = {
                receiver: piece(dumps(by_name))
                for receiver, by_name in yielded.items()
                if receiver != shard.number
            }
            wire.send(connection, ("sent", outbox))
            inbox = wire.receive(connection)
            if inbox is None:
                phases.close()
                return False
            yielded = phases.send(merged(shard.number, yielded, inbox))
    except OSError:
        # The hub is gone, or the disk of this machine is full: the task fails.
        phases.close()
        raise
    except Exception as error:
        wire.send(connection, ("failed", portable(error)))
        wire.receive(connection)
        return False
    wire.send(connection, ("changed", yielded))
    try:
        final = wire.receive(connection)
    except BaseException:
        phases.close()
        raise
    if final:
        _end(phases)
    else:
        phases.close()
    return bool(final)


def merged(number: int, outbox: Outbox, inbox: Sequence[tuple[int, Any]]) -> Inbox:
    """What all shards have sent to one, in their order, its own rows among them."""
    parts = {sender: loads(content) for sender, content in inbox}
    if number in outbox:
        parts[number] = outbox[number]
    result: dict[str, list[Any]] = {}
    for sender in sorted(parts):
        for name, delta in parts[sender].items():
            result.setdefault(name, []).append(delta)
    return result


def portable(error: Exception) -> Exception:
    """An error that survives the way to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return InternalError(
            f"a shard has failed: {type(error).__name__}: {error}",
            code="INTERNAL_SHARD",
            hint="this is a fault of penstock; please report it with the view's SQL and the delta",
        )
    return error
