"""Ctrl-C in the shell ends the whole statement, whatever Spark is doing for it in that moment."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future

import pytest

import penstock as ps
from penstock.cli.commands import shell
from penstock.cli.output import Format
from penstock.cli.script import Printing


def test_a_statement_that_is_between_two_jobs_starts_no_other_one(
    session: ps.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning, may_go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def statement(running: ps.Session, text: str, printing: Printing) -> bool:
        planning.set()
        may_go_on.wait()
        try:
            running.sql(text).collect()
        finally:
            ended.set()
        return True

    def interrupt() -> None:
        planning.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    monkeypatch.setattr(shell, "run_statement", statement)
    monkeypatch.setattr(shell, "CANCEL_SECONDS", 0)
    started: Future[ps.Session] = Future()
    started.set_result(session)
    prompt = shell.Shell(started, Printing(Format.TABLE))
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        prompt.run("SELECT count(*) FROM range(1000000000000) CROSS JOIN range(1000000);")
    may_go_on.set()
    assert ended.wait(60)
