"""Runs the shards of a kernel inside Spark tasks, with one job for each change.

The job is built once: a task per group of shards, each in Python workers of its own, because Spark keeps workers
apart by their environment. The tasks get their work from the hub in the driver, exchange rows through it, and end
when they have heard that the change is final. All tasks of a change run at once, so there are at most as many as
Spark has cores.
"""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from penstock.circuit.compile import Fragment
from penstock.circuit.executor import ChangeFailed, Executor, Parts
from penstock.circuit.message import dumps
from penstock.circuit.operation import (
    Change,
    Changed,
    Continue,
    EndLoad,
    Images,
    Ping,
    Question,
    Save,
    StageCheckpoint,
)
from penstock.circuit.shard import Phases, Shard
from penstock.circuit.shard_images import read_images, write_images
from penstock.errors import StateError
from penstock.spark.boot import scratch
from penstock.spark.boot.scratch import ScratchFolder
from penstock.spark.daemon import VARIABLE
from penstock.spark.shards.history import ShardHistory
from penstock.spark.shards.hub import Hub, Over, Work
from penstock.spark.shards.part import ReceivedPart
from penstock.spark.shards.worker import ShardGroup, merged, run_group
from penstock.state.part import CheckpointOrder, CheckpointPart, RestoredPart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger("penstock.flow")
_IDLE_SECONDS = 20.0  # Spark ends workers that have had no task for a minute
_STALLED_SECONDS = 120.0  # without a task of each group, there are fewer cores than there were
_ATTEMPTS = 3  # for a job, beside those that Spark has for its tasks
_PREFIX = "penstock-shards-"  # of the folder with saved states
_HISTORY = 2**30  # bytes of changes, behind which the states are saved anew


class SparkShards(Executor):
    """The shards of one kernel in one Spark application."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        shards: int,
        *,
        remote: bool = False,
        memory: int | None = None,
    ) -> None:
        """`remote` says that tasks run on other machines, too, which do not reach the files of this one. Spark is
        asked for before the first job.

        `memory` bytes of state may lie in the memory of all shards, in equal parts.
        """
        self.shards = shards
        self._spark = spark
        self._remote = remote
        self._kernel = uuid.uuid4().hex
        self._scratch: ScratchFolder | None = None
        self._closing = threading.Event()
        self._history = ShardHistory(shards)
        self._memory = None if memory is None else memory // shards
        self._driver = Shard(shards, shards, memory=self._memory)
        self._tasks = shards
        self._context: Any = None
        self._hub: Hub | None = None
        self._job: Any = None
        self._is_named = False
        self._stays = False  # whether tasks wait for the next change
        self._is_served = False  # whether a job does what is begun
        self._handing_over = threading.Lock()
        self._running: Future[None] | None = None
        self._jobs = ThreadPoolExecutor(1, thread_name_prefix="penstock-shards")
        self._appending: Future[None] | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="penstock-shards-history")
        self._alone = threading.Lock()  # from a change until it is settled
        self._pending: tuple[Change, Work, Phases] | None = None
        self._used = monotonic()
        self._saved_bytes = 0
        self._work: Work | None = None
        self._started = 0.0

    def _begin(self) -> Hub:
        """Know the Spark of the session; the hub listens where executors reach the driver."""
        if self._hub is None:
            self._context = self._spark().sparkContext
            self._host = str(self._context.getConf().get("spark.driver.host") or "127.0.0.1")
            bound = str(self._context.getConf().get("spark.driver.bindAddress") or self._host)
            self._hub = Hub(bound, self._history, self._closing, remote=self._remote)
            self._tasks = max(1, min(self.shards, self._context.defaultParallelism))
            threading.Thread(target=self._keep_alive, name="penstock-shards-idle", daemon=True).start()
        return self._hub

    # Changes

    def note(self, change: Change) -> None:
        with self._alone:
            self._await_job()
            phases = self._driver.change(change, {})
            next(phases)
            with suppress(StopIteration):
                phases.send(True)
            work = Work(self._history.version, dumps(change), [dumps({})] * self.shards)
            self._history.append(change, [work.entry(shard) for shard in range(self.shards)])

    def change(self, change: Change, parts: Parts, fragment: Fragment | None = None) -> Sequence[Changed]:
        self._alone.acquire()
        try:
            self._await_job()
            self._shorten_history()
            work = Work(
                self._history.version,
                dumps(change),
                [dumps(part) for part in parts],
                participants=self.shards + 1,
            )
            running = self._start(work)
            phases = self._driver.change(change, {}, fragment)
            try:
                self._drive(phases, work)
                self._await_answers(work, running)
            except BaseException:
                work.settle(False)
                phases.close()
                raise
            self._pending = (change, work, phases)
        except BaseException:
            self._alone.release()
            raise
        return [work.answers[shard] for shard in range(self.shards)]

    def settle(self, *, final: bool) -> None:
        """Called again after an interrupt, it does the rest."""
        if self._pending is None:
            return
        change, work, phases = self._pending
        if final:
            with suppress(StopIteration):
                phases.send(True)
            # Shards go on while this is written; one that is lost meanwhile gets the work itself again.
            work.settle(True)
            self._appending = self._writer.submit(self._append, change, work)
        else:
            work.settle(False)
            phases.close()
        self._used = monotonic()
        try:
            self._pending = None
        finally:
            self._alone.release()

    @contextmanager
    def together(self) -> Iterator[None]:
        """The tasks stay from one change to the next: a change in between costs no job."""
        with self._alone:
            self._await_job()
            self._stays = True
        try:
            yield
        finally:
            if self._pending is not None:
                self.settle(final=False)
            with self._alone:
                self._let_go()

    def _let_go(self) -> None:
        """Let tasks that stay end."""
        self._stays = False
        if self._hub is not None:
            self._hub.let_go()
        self._await_job()

    def _append(self, change: Change, work: Work) -> None:
        if self._history.version == work.version:
            self._history.append(change, [work.entry(shard) for shard in range(self.shards)])

    def _drive(self, phases: Phases, work: Work) -> None:
        """What the driver computes itself, between the phases of the shards."""
        try:
            yielded, phase = phases.send(None), 0
            while not isinstance(yielded, Changed):
                outbox = {to: dumps(rows) for to, rows in yielded.items() if to != self.shards}
                work.send(phase, self.shards, outbox)
                yielded = phases.send(merged(self.shards, yielded, work.inbox(phase, self.shards)))
                phase += 1
        except Over:
            pass
        except Exception as error:
            work.fail(self.shards, error)

    def _await_answers(self, work: Work, running: Future[None]) -> None:
        def is_done() -> bool:
            return bool(work.errors) or len(work.answers) == self.shards or work.ended

        with work.changed:
            work.changed.wait_for(is_done)
        if work.errors:
            raise ChangeFailed(dict(work.errors))
        if len(work.answers) < self.shards:
            raise _lost(running.exception() if running.done() and not running.cancelled() else None)

    def _abandon_stalled(self) -> None:
        """Give a change up for which Spark does not run all tasks, since those that run wait for the others; the next
        one has fewer."""
        work, hub = self._work, self._hub
        if work is None or hub is None or work.is_settled or self._tasks == 1:
            return
        if monotonic() - self._started < _STALLED_SECONDS or len(hub.connected) == self.shards:
            return
        LOG.warning("Spark has not run all tasks of a tick for %d s", _STALLED_SECONDS)
        self._tasks -= 1
        self._job = None
        work.abandon()
        self._context.cancelJobGroup(self._kernel)

    # Questions

    def ask(self, question: Question) -> Sequence[Any]:
        with self._alone:
            return self._ask(question)

    def _ask(self, question: Question) -> Sequence[Any]:
        self._await_job()
        work = Work(self._history.version, None, (), question=dumps(question))
        running = self._start(work)
        self._await_answers(work, running)
        self._await_job()
        self._used = monotonic()
        return [work.answers[shard] for shard in range(self.shards)]

    # Saving

    def save(self) -> Sequence[Images]:
        with self._alone:
            folders = self._save()
            return [*(read_images(folder) for folder in folders), self._driver.save()]

    def stage(self, order: CheckpointOrder) -> Sequence[CheckpointPart]:
        """The workers give the bytes of their shards while changes go on."""
        with self._alone:
            answers = self._ask(StageCheckpoint(order))
            assert self._hub is not None
            connections = self._hub.take_parts([token for token, _ in answers])
            received = [
                ReceivedPart(file, connection)
                for (_, file), connection in zip(answers, connections, strict=True)
            ]
            return [*received, self._driver.stage_part(order)]

    def continue_from(self, parts: Sequence[RestoredPart]) -> None:
        self.ask(Continue(tuple(parts[: self.shards])))
        self._driver.continue_part(parts[-1])

    def _save(self) -> list[Path]:
        """Let every shard write its states; the changes before are needed no more."""
        parent = self._new_folder()
        folders = [parent / f"shard-{number}" for number in range(self.shards)]
        answers = self._ask(Save(None if self._remote else str(parent)))
        if self._remote:
            for folder, images in zip(folders, answers, strict=True):
                write_images(images, folder)
        before = self._history.base.folders
        self._history.begin_from([str(folder) for folder in folders])
        self._saved_bytes = sum(file.stat().st_size for folder in folders for file in folder.iterdir())
        for old in before[:1]:
            # Files that are mapped stay until nobody reads them.
            shutil.rmtree(Path(old).parent, ignore_errors=True)
        return folders

    def _shorten_history(self) -> None:
        """Save the states when a lost shard would have to make more changes than it has states."""
        if self._history.size <= max(_HISTORY, self._saved_bytes):
            return
        try:
            self._save()
        except (StateError, ChangeFailed, OSError):
            LOG.warning("the states of shards could not be saved; their changes are kept", exc_info=True)

    def load(self, images: Sequence[Images]) -> None:
        self._driver.load(images[-1])
        if not any(images):
            if self._history.base.folders:
                self.note(EndLoad())
            return
        parent = self._new_folder()
        folders = []
        for number, own in enumerate(images[:-1]):
            folders.append(parent / f"shard-{number}")
            write_images(own, folders[-1])
        with self._alone:
            self._await_job()
            self._history.begin_from([str(folder) for folder in folders], declared=False)

    def _new_folder(self) -> Path:
        if self._scratch is None:
            self._scratch = scratch.make(prefix=_PREFIX)
        return self._scratch.path / uuid.uuid4().hex

    # Jobs

    def _start(self, work: Work) -> Future[None]:
        hub = self._begin()
        if self._job is None:
            self._job = self._built(hub)
        with self._handing_over:
            self._work, self._started = work, monotonic()
            is_served, self._is_served = self._is_served, True
        hub.begin(work, stays=self._stays)
        if not is_served or self._running is None:
            self._running = self._jobs.submit(self._serve)
        return self._running

    def _serve(self) -> None:
        """Run a job; when it ends, nobody does the work of then."""
        try:
            self._run_job()
        finally:
            with self._handing_over:
                self._is_served, work = False, self._work
            if work is not None:
                work.end()

    def _run_job(self) -> None:
        if not self._is_named:
            # The properties of a job belong to its thread.
            self._context.setJobGroup(self._kernel, "a tick of a flow in shards", interruptOnCancel=True)
            self._is_named = True
        failed: Work | None = None
        attempts = 0
        while True:
            try:
                # Counting brings nothing back: results come through the hub.
                self._job.count()
                return
            except Exception as error:
                work = self._work
                attempts = attempts + 1 if work is failed else 1
                failed = work
                if self._closing.is_set() or attempts == _ATTEMPTS or self._is_needless(work):
                    raise
                # Without attempts for tasks, as with `local[2]`, the job fails with its first task.
                LOG.info("the job of a change is run again: %s", error)

    def _is_needless(self, work: Work | None) -> bool:
        """Whether nobody waits for a job that has failed: its work is settled, and no other one comes for it."""
        return work is None or work.abandoned or (work.is_settled and not self._stays)

    def _built(self, hub: Hub) -> Any:
        """A task per group of shards, each with Python workers of its own."""
        context = self._context
        numbers = [tuple(range(task, self.shards, self._tasks)) for task in range(self._tasks)]
        address = (self._host, hub.port)
        tasks = []
        for at, own in enumerate(numbers):
            group = ShardGroup(self._kernel, address, hub.secret, own, self.shards, self._memory)
            before = context.environment.get(VARIABLE)
            context.environment[VARIABLE] = f"{self._kernel} {at}"
            try:
                tasks.append(context.parallelize([at], 1).mapPartitions(partial(run_group, group))._jrdd)
            finally:
                if before is None:
                    del context.environment[VARIABLE]
                else:
                    context.environment[VARIABLE] = before
        first = tasks[0]
        for other in tasks[1:]:
            first = first.union(other)
        return first

    def _await_job(self) -> None:
        """Wait until the tasks of the last change have ended: the workers hold its version then."""
        if self._appending is not None:
            appending, self._appending = self._appending, None
            appending.result()
        if self._running is None:
            return
        if self._stays and not self._running.done() and not (self._work and self._work.abandoned):
            return
        running, self._running = self._running, None
        error = running.exception()
        assert self._hub is not None
        self._hub.end()
        if error is not None:
            # What its shards lack is made again.
            LOG.info("the job of the last change has failed: %s", error)

    def _keep_alive(self) -> None:
        while not self._closing.wait(_IDLE_SECONDS / 2):
            self._abandon_stalled()
            if monotonic() - self._used < _IDLE_SECONDS or not self._alone.acquire(blocking=False):
                continue
            try:
                if self._history.version and not self._closing.is_set():
                    self._ask(Ping())
            except Exception:
                LOG.info("shards that have nothing to do could not be asked", exc_info=True)
            finally:
                self._alone.release()

    def close(self) -> None:
        if self._closing.is_set():
            return
        if self._pending is not None:
            self.settle(final=False)
        self._closing.set()
        with self._alone:
            with suppress(Exception):
                self._let_go()
            if self._hub is not None:
                self._hub.close()
            self._jobs.shutdown()
            self._writer.shutdown()
            self._history.close()
            if self._scratch is not None:
                self._scratch.remove()


def _lost(error: BaseException | None) -> StateError:
    return StateError(
        "a shard was lost, and Spark could not run it again" + ("" if error is None else f": {error}"),
        code="FLOW_SHARD_LOST",
        hint="nothing has changed; feed it again when the cluster has executors",
    )
