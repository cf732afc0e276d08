"""`penstock shell`: type SQL, see rows.

The prompt is there at once and Spark starts behind it. Statements run in a thread of their own, so that Ctrl-C always
reaches the prompt's thread, which then cancels what runs and asks for the next statement.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import TYPE_CHECKING, TypeVar

from penstock import __version__, config
from penstock.cli.backslash import interpret
from penstock.cli.complete import NameReader
from penstock.cli.main import DONE, FAILED, show
from penstock.cli.options import Conf, Connectors, Flow, Master, Memory, as_conf
from penstock.cli.output import Format, Output
from penstock.cli.process import leave
from penstock.cli.script import Printing, placed_in, run_statement
from penstock.sql.lexer import is_complete, split

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from penstock.engine.session import Session

T = TypeVar("T")

CANCEL_SECONDS = 5.0
"""How long a cancelled statement may take to end before the prompt returns without it."""
WAIT_SECONDS = 0.1


def shell(
    output: Output = Format.TABLE,
    master: Master = None,
    conf: Conf = None,
    connector: Connectors = None,
    flow: Flow = None,
    memory: Memory = None,
) -> int:
    """Type SQL interactively.

    A statement ends with ';' and may take several lines. Tab completes, Ctrl-C cancels, \\? lists the commands.
    Without a terminal the statements are read from stdin and the first error ends the run.

    \b
    Examples:
      penstock shell
      penstock shell --connector iceberg --conf spark.sql.shuffle.partitions=4
      penstock shell --flow flows/orders
      penstock shell < report.sql
    """
    settings, names = as_conf(conf), tuple(connector or ())

    def start() -> Session:
        from penstock.engine.session import Session

        return Session.embedded(conf=settings, master=master, connectors=names, flow=flow, flow_memory=memory)

    shell = Shell(in_background(start), Printing(output, summary=True if sys.stdin.isatty() else None))
    try:
        return _interactive(shell) if sys.stdin.isatty() else _piped(shell)
    finally:
        shell.close()


def in_background(work: Callable[[], T]) -> Future[T]:
    """Run something in a daemon thread, which unlike a pool's does not hold up the end of the process."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="penstock-shell", daemon=True).start()
    return result


class Shell:
    """What is typed and what comes of it, apart from how it is typed."""

    def __init__(self, starting: Future[Session], printing: Printing) -> None:
        self.starting = starting
        self.printing = printing
        self.catalog = NameReader()
        self.busy = False
        self.numbers = itertools.count()
        starting.add_done_callback(self._started)

    def run(self, text: str) -> bool:
        """Run a backslash command or statements; False means that the user wants to leave."""
        if text.strip().rstrip(";").lower() in ("quit", "exit"):
            return False
        if not text.lstrip().startswith("\\"):
            for statement in split(text):
                with placed_in(text, statement):
                    self._statement(statement.text)
            return True
        meaning = interpret(text, self.printing)
        self.printing = meaning.printing
        if meaning.say:
            print(meaning.say, file=sys.stderr)
        if meaning.statement:
            self._statement(meaning.statement)
        return not meaning.leave

    def session(self) -> Session:
        """The session, once it has started."""
        if not self.starting.done() and sys.stderr.isatty():
            print("starting Spark ...", end="", flush=True, file=sys.stderr)
            try:
                _wait(self.starting)
            finally:
                print("\r\033[K", end="", flush=True, file=sys.stderr)
        return _wait(self.starting)

    def close(self) -> None:
        """Stop Spark, also when it is still on its way up."""
        try:
            session = self.starting.result()
        except Exception:
            # What kept it from starting was shown when a statement needed it.
            return
        leave(session)

    def _statement(self, statement: str) -> None:
        from penstock.spark.tagged_call import TaggedCall

        self.busy = True
        session = self.session()
        tag = f"penstock-shell-{next(self.numbers)}"
        running = TaggedCall(session.spark, lambda: run_statement(session, statement, self.printing), tag=tag)
        running.start()
        try:
            # A wait without an end would keep Ctrl-C from this thread until it is over.
            while not running.wait(WAIT_SECONDS):
                pass
            running.value()
        except KeyboardInterrupt:
            running.cancel()
            rest = "" if running.wait(CANCEL_SECONDS) else "; what is left of it ends in the background"
            print(f"cancelled{rest}", file=sys.stderr)
            raise
        finally:
            self.busy = False
            self.catalog.refresh(session.spark)

    def _started(self, starting: Future[Session]) -> None:
        # A statement that waits for Spark comes first; the names are read behind it.
        if not self.busy and not starting.exception():
            self.catalog.refresh(starting.result().spark)


def _wait(future: Future[T]) -> T:
    while True:
        try:
            return future.result(timeout=WAIT_SECONDS)
        except NotYet:
            if future.done():
                raise


def _interactive(shell: Shell) -> int:
    from penstock.cli.prompt import make_prompt

    print(f"penstock {__version__} · \\? for help, Ctrl-D to leave", file=sys.stderr)
    prompt: PromptSession[str] = make_prompt(config.load().home / "shell_history", shell.catalog.names)
    while True:
        try:
            if not shell.run(prompt.prompt()):
                return DONE
        except KeyboardInterrupt:
            continue
        except EOFError:
            return DONE
        except Exception as error:
            show(error)
            if shell.starting.done() and shell.starting.exception():
                return FAILED


def _piped(shell: Shell) -> int:
    typed = ""
    for line in sys.stdin:
        if not typed.strip() and line.lstrip().startswith("\\"):
            typed = line
        else:
            typed += line
            if not is_complete(typed):
                continue
        if not shell.run(typed):
            return DONE
        typed = ""
    shell.run(typed)
    return DONE
