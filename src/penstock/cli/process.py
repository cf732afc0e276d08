"""The session of a command, and how it ends: quickly, and with no JVM left behind, whatever ended it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from penstock.cli.progress import CLEAR
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.engine.session import Session

STOP_SECONDS = 1.5
"""How long a signal waits for the session's end; what is left of its JVM then ends with this process."""


@contextmanager
def embedded(
    *,
    conf: Mapping[str, str],
    master: str | None,
    connectors: tuple[str, ...],
    flow: str | None = None,
    flow_memory: str | None = None,
) -> Iterator[Session]:
    """A session for the body; Ctrl-C and SIGTERM end the process at once, whatever Spark is doing."""
    from penstock.engine.session import Session

    session = Session.embedded(
        conf=conf, master=master, connectors=connectors, flow=flow, flow_memory=flow_memory
    )
    end_on_signals(session)
    try:
        yield session
    except BaseException:
        # What the end of the session says, as that a sink is behind, would hide the error that the user must act on.
        with suppress(PenstockError):
            leave(session)
        raise
    leave(session)


def leave(session: Session) -> None:
    """Stop a session as the last thing that a process does."""
    # A second Ctrl-C must not stop the stopping.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Threads that still talk to the JVM when it goes log that it went.
    logging.disable(logging.CRITICAL)
    session.stop()


def end_on_signals(session: Session) -> None:
    """Let SIGINT and SIGTERM end this process and its JVM.

    An exception would not do: PySpark, interrupted while it waits for rows, waits again for the end of the job and
    raises the job's error instead.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        logging.disable(logging.CRITICAL)
        # In a thread, since this one may be in the middle of a conversation with the JVM.
        stopping = threading.Thread(target=session.stop, daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), CLEAR.encode())
        os._exit(128 + number)

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
