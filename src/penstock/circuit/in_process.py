"""Shards in this process, one after the other: what they send to each other goes through bytes, as it does between processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.circuit.compile import Fragment
from penstock.circuit.executor import ChangeFailed, Executor, Parts
from penstock.circuit.message import dumps, loads
from penstock.circuit.operation import Change, Changed, Images, Question
from penstock.circuit.shard import Outbox, Phases, Shard
from penstock.data.delta import Delta
from penstock.state.part import CheckpointOrder, CheckpointPart, RestoredPart


class InProcess(Executor):
    """Runs all shards in turn."""

    def __init__(self, shards: int, *, memory: int | None = None) -> None:
        """`memory` bytes of state may lie in memory, in equal parts."""
        self.shards = shards
        share = None if memory is None else memory // shards
        self.all = [Shard(number, shards, memory=share) for number in range(shards + 1)]
        self._pending: list[Phases] = []

    def note(self, change: Change) -> None:
        assert not self._pending, "the last change is not settled"
        for shard in self.all:
            list(shard.change(loads(dumps(change)), {}))

    def change(self, change: Change, parts: Parts, fragment: Fragment | None = None) -> Sequence[Changed]:
        assert not self._pending, "the last change is not settled"
        content = dumps(change)
        rows: list[Mapping[str, Delta]] = [*(loads(dumps(part)) for part in parts), {}]
        running = [
            shard.change(loads(content), own, fragment if shard.number == self.shards else None)
            for shard, own in zip(self.all, rows, strict=True)
        ]
        try:
            results = run(running)
        except BaseException:
            for phases in running:
                phases.close()
            raise
        self._pending = running
        return [loads(dumps(result)) for result in results[: self.shards]]

    def settle(self, *, final: bool) -> None:
        pending, self._pending = self._pending, []
        for phases in pending:
            finish(phases) if final else phases.close()

    def ask(self, question: Question) -> Sequence[Any]:
        return [loads(dumps(shard.answer(loads(dumps(question))))) for shard in self.all[: self.shards]]

    def save(self) -> Sequence[Images]:
        return [shard.save() for shard in self.all]

    def stage(self, order: CheckpointOrder) -> Sequence[CheckpointPart]:
        return [shard.stage_part(order) for shard in self.all]

    def continue_from(self, parts: Sequence[RestoredPart]) -> None:
        for shard, own in zip(self.all, parts, strict=True):
            shard.continue_part(own)

    def load(self, images: Sequence[Images]) -> None:
        for shard, own in zip(self.all, images, strict=True):
            shard.load(own)

    def close(self) -> None:
        self.settle(final=False)


def run(running: Sequence[Phases]) -> list[Changed]:
    """Run a change on all shards up to its end, which is not final yet; ChangeFailed when some fail."""
    yielded = _advanced([(phases, None) for phases in running])
    while not all(isinstance(answer, Changed) for answer in yielded):
        inboxes = _delivered([{} if isinstance(answer, Changed) else answer for answer in yielded])
        assert not any(isinstance(answer, Changed) for answer in yielded), "shards have not the same phases"
        yielded = _advanced(list(zip(running, inboxes, strict=True)))
    return [answer for answer in yielded if isinstance(answer, Changed)]


def finish(phases: Phases) -> None:
    """Make a change final."""
    try:
        phases.send(True)
    except StopIteration:
        return
    raise AssertionError("a change goes on behind its end")


def _advanced(running: Sequence[tuple[Phases, Any]]) -> list[Outbox | Changed]:
    yielded: list[Outbox | Changed] = []
    errors: dict[int, Exception] = {}
    for number, (phases, inbox) in enumerate(running):
        try:
            yielded.append(phases.send(inbox))
        except Exception as error:
            errors[number] = error
    if errors:
        raise ChangeFailed(errors)
    return yielded


def _delivered(outboxes: Sequence[Outbox]) -> list[dict[str, list[Delta]]]:
    inboxes: list[dict[str, list[Delta]]] = [{} for _ in outboxes]
    for outbox in outboxes:
        for receiver, by_name in loads(dumps(outbox)).items():
            for name, delta in by_name.items():
                inboxes[receiver].setdefault(name, []).append(delta)
    return inboxes
