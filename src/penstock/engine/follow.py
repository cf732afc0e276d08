"""A sink that follows a view: a thread hands over the changes of ticks that are final, in their order, while ticks go on.

1. Open the sink and read its mark.
2. Where the flow still has what the sink lacks, go on behind the mark; otherwise bring the sink in line with all rows
  of the view.
3. Hand over what waits, as soon as the log of the flow has it on the disk, in one transaction with the mark.

An error that goes away by itself starts again at 1: only the mark says what was stored. Any other error ends the
sink; ticks go on, and `flow.sink(...)` starts it again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from penstock.data.delta import Delta, concat
from penstock.engine.backlog import Waiting
from penstock.engine.result import to_batch
from penstock.engine.sink_spec import SinkState
from penstock.errors import ConnectorError, PenstockError, StateError
from penstock.sinks.base import QueryStatus
from penstock.sinks.key_change import require_unique
from penstock.sinks.retry import RetryPolicy, retry
from penstock.sinks.view_sink import Change, ViewSink, ViewTarget
from penstock.spark.micro_batch.query_run import Drained

LOG = logging.getLogger("penstock.flow")
STOP_SECONDS = 30.0
"""How long a call that is under way in a client may take when it is not worth waiting for any more."""

TakeSnapshot = Callable[[bool], tuple[int, Callable[[], pa.Table]]]
"""Gives the tick of now, and what reads all rows of the view at it; with True it restarts the backlog there."""


class Follower:
    """A running sink of a view."""

    def __init__(
        self,
        state: SinkState,
        sink: ViewSink,
        target: ViewTarget,
        *,
        snapshot: TakeSnapshot,
        sync: Callable[[], None],
        rows_of_keys: Callable[[Delta], pa.Table],
    ) -> None:
        """`sync` returns when the log has all ticks; `rows_of_keys` gives the rows that the view has now with the
        keys of others."""
        self.spec = state.spec
        self.sink = sink
        self.status = QueryStatus()
        self.error: BaseException | None = None
        """What ended the sink."""
        self._backlog = state.backlog
        self._target = target
        self._snapshot = snapshot
        self._sync = sync
        self._rows_of_keys = rows_of_keys
        self._is_open = False
        self._thread = threading.Thread(target=self._run, name=f"penstock-sink-{self.spec.name}", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def describe(self) -> str:
        """Return where the rows go, and how far they are, in one line for people."""
        backlog = self._backlog
        place = f"sink {self.spec.name}: {self.sink.describe()}, {self.sink.guarantee}"
        mark = "nothing yet" if backlog.mark is None else f"tick {backlog.mark}"
        line = f"{place}, has {mark}, {backlog.lag} behind"
        if self.error is not None:
            return f"{line}, ended: {self.error}"
        return line if self.status.message is None else f"{line}, {self.status.message}"

    def flush(self, timeout: float | None) -> bool:
        """Wait until the sink has all ticks of now; raises what has ended it."""
        stored = self._backlog.wait_until_stored(timeout, lambda: self.error is not None)
        if self.error is not None:
            raise self.error
        return stored

    def close(self) -> None:
        """Wait until the sink has everything, for as long as its `retry_for` says; raises when it has not."""
        self._backlog.stop()
        self._thread.join(self.sink.options.retry_for / 1000)
        self.cancel()
        if self.error is not None:
            raise self.error
        if self._backlog.lag:
            raise ConnectorError(
                f"sink '{self.spec.name}' lacks the last {self._backlog.lag} ticks of view "
                f"'{self.spec.view}': {self.status.message}",
                code="FLOW_SINK_BEHIND",
                where=self.sink.describe(),
                hint='a flow with a path hands them over when it is opened again; wait longer with retry_for="1 hour"',
                retryable=True,
            )

    def cancel(self) -> None:
        """End the thread, whatever waits."""
        self.status.stopping.set()
        self._backlog.stop()
        self._thread.join(STOP_SECONDS)

    def forget(self) -> None:
        """Take the mark out of the sink, after `cancel`."""
        try:
            self.sink.forget(self._target)
        except Exception as error:
            LOG.warning("the mark of sink '%s' could not be taken out: %s", self.spec.name, error)
        finally:
            self.sink.close()

    # In the thread

    def _run(self) -> None:
        try:
            while self._backlog.wait_for_work():
                retry(
                    self._hand_over,
                    status=self.status,
                    description=self.sink.describe(),
                    policy=RetryPolicy(seconds=math.inf),
                    transient=self._transient,
                )
        except Drained:
            pass
        except Exception as error:
            self._end(error)
        finally:
            self.sink.close()

    def _end(self, error: Exception) -> None:
        translated = None if isinstance(error, PenstockError) else self.sink.translate(error)
        if translated is not None:
            translated.__cause__ = error
        self.error = translated or error
        LOG.error("sink '%s' of view '%s' has ended: %s", self.spec.name, self.spec.view, self.error)
        self._backlog.wake()

    def _transient(self, error: Exception) -> str | None:
        self.sink.close()
        self._is_open = False
        self._backlog.give_back()
        if isinstance(error, PenstockError):
            return None
        reason = self.sink.transient(error)
        if reason is not None and self.status.message is None:
            LOG.warning("sink '%s' waits for %s: %s", self.spec.name, self.sink.describe(), reason)
        return reason

    def _hand_over(self) -> None:
        if not self._is_open:
            self._open()
        if not self._backlog.in_line:
            self._replace()
            return
        batch = self._backlog.take()
        if batch:
            self._check_keys(batch)
            fields = self._target.fields
            changes = [Change(waiting.last, to_batch(waiting.change, fields)) for waiting in batch]
            if self.sink.replaces and self.sink.rewrites(changes):
                self._rewrite()
                return
            self._sync()
            self.sink.apply(changes)
            self._backlog.acknowledge(batch[-1].last)

    def _rewrite(self) -> None:
        """Store all rows of now; what waits stays until they are stored."""
        tick, rows = self._snapshot(False)
        self._backlog.take()
        self._sync()
        self.sink.replace(rows(), tick)
        self._backlog.acknowledge(tick)

    def _check_keys(self, batch: Sequence[Waiting]) -> None:
        """DataError when the view has several rows of a key that comes."""
        if self._target.keys and not self.sink.checks_keys:
            changes = [waiting.change for waiting in batch]
            coming = concat([change.take(np.flatnonzero(change.weights > 0)) for change in changes])
            if len(coming):
                require_unique(self._rows_of_keys(coming), self._target.keys, where=self._target.name)

    def _open(self) -> None:
        backlog, before = self._backlog, self._backlog.mark
        mark = self.sink.open(self._target)
        self._is_open = True
        if mark is None:
            if before is not None:
                self._require_replace(f"its mark is gone, which was tick {before}")
        elif not backlog.align(mark):
            self._require_replace(
                f"it has tick {mark}, and the flow has the changes of ticks {backlog.base + 1} to {backlog.seen}"
            )

    def _require_replace(self, why: str) -> None:
        """Log that the sink gets all rows again; StateError when it cannot take them."""
        name, view = self.spec.name, self.spec.view
        if not self.sink.replaces:
            raise StateError(
                f"sink '{name}' cannot go on: {why}",
                code="FLOW_SINK_LOST",
                where=self.sink.describe(),
                hint=f"flow.drop_sink({name!r}), then register it with another place, which begins with all rows of '{view}'",
            )
        LOG.warning("sink '%s' is brought in line with all rows of view '%s': %s", name, view, why)

    def _replace(self) -> None:
        if not self.sink.replaces and self._backlog.mark is not None:
            self._require_replace("a change was not handed over, because the tick was interrupted")
        tick, rows = self._snapshot(True)
        self._sync()
        self.sink.replace(rows(), tick)
        self._backlog.acknowledge(tick)
