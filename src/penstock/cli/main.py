"""The entry point of the `penstock` command: its table of commands, its exit codes and how errors look.

The commands are Typer's. The top level is not: looking a name up in a table needs no framework, so that
`penstock --help` and `--version` answer in the time Python takes to start, and a command imports only its own file.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from penstock import __version__, config
from penstock.errors import ConfigError, PenstockError, SqlError, suggest

if TYPE_CHECKING:
    import typer

DONE, FAILED, WRONG_INPUT, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command lives (`module:function`, or a Typer app when it has commands of its own) and what it does."""

    target: str
    help: str


COMMANDS = {
    "sql": Command("penstock.cli.commands.sql:sql", "Run SQL statements and print their rows."),
    "shell": Command("penstock.cli.commands.shell:shell", "Type SQL interactively."),
    "init": Command("penstock.cli.commands.init:init", "Write a pipeline to begin with."),
    "validate": Command("penstock.cli.commands.validate:validate", "Find every mistake in a pipeline."),
    "dry-run": Command(
        "penstock.cli.commands.dry_run:dry_run", "Resolve the types of a pipeline and try its connections."
    ),
    "test": Command("penstock.cli.commands.test:run_tests", "Run the tests in a pipeline's file."),
    "preview": Command("penstock.cli.commands.preview:preview", "Show live rows of a node of a pipeline."),
    "run": Command("penstock.cli.commands.run:run", "Run a pipeline."),
    "replay": Command(
        "penstock.cli.commands.replay:replay", "Let dead letters of a pipeline go through it again."
    ),
    "plan": Command(
        "penstock.cli.commands.plan:plan", "Say what a changed file means for a pipeline that ran before."
    ),
    "echo": Command(
        "penstock.cli.commands.echo:echo", "Show a pipeline as it is understood, without secrets."
    ),
    "graph": Command("penstock.cli.commands.graph:graph", "Draw the nodes of a pipeline."),
    "schema": Command(
        "penstock.cli.commands.schema:schema", "Print the JSON schema of pipelines, for editors."
    ),
    "views": Command("penstock.cli.commands.views:app", "Look into a flow directory, and feed it."),
    "jobs": Command("penstock.cli.commands.jobs:app", "List, stop, pause and restart queries and pipelines."),
    "state": Command("penstock.cli.commands.state:app", "Look at what jobs keep, and reset it."),
    "connectors": Command("penstock.cli.commands.connectors:app", "List and install connector jars."),
    "doctor": Command("penstock.cli.commands.doctor:doctor", "Check this machine and say what to do."),
}

# Commands that always start a session, and the options with which it is not the plain one or does not start at all.
STARTS_SPARK = ("sql", "shell")
READS_PIPELINE = ("run", "replay", "dry-run", "plan", "preview", "test")
CHANGES_START = ("--conf", "--master", "--connector", "-c", "-m", "-h", "--help")

_hide_from_trace: Callable[[str], str] = str
EXAMPLES = """\
  penstock sql "SELECT count(*) FROM 'data/orders.parquet'"
  penstock shell
  penstock doctor"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    global _hide_from_trace
    _hide_from_trace = str
    debug = _take_debug(words)
    if threading.current_thread() is threading.main_thread():
        # As an exception, SIGTERM passes every `finally` on its way out, where sessions are stopped.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
        if arguments is None and words[:1] == ["sql"]:
            # An exception may get lost while modules are imported; and until Spark runs there is nothing to tidy up.
            signal.signal(signal.SIGINT, lambda *_: _end_interrupted())
    try:
        if arguments is None:
            _boot_early(words)
        code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader has left (`| head`): nothing more can be written, also not by the interpreter's last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        return show(error, debug=debug)
    if code == INTERRUPTED and arguments is None:
        _end_interrupted()
    return code


def _end_interrupted() -> NoReturn:
    """End this process with the code for an interrupt.

    Python would end by the signal and not with a code where the interrupt met code that is run from text, as in the making of
    dataclasses.
    """
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(INTERRUPTED)


def show(error: Exception, *, debug: bool = False) -> int:
    """Print an error to stderr as one short message with its place and hint, and return the exit code it deserves."""
    if debug:
        import traceback

        error.__suppress_context__ = False  # the error of Spark is left out only without --debug
        # An error is without secrets; what it came from is as others raised it.
        print(_hide_from_trace("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    if not isinstance(error, PenstockError):
        text = _text_of(error)
        hint = "" if debug else "\n  hint: this is not expected; --debug shows the trace"
        print(f"{_red('error')}: {text}{hint}", file=sys.stderr)
        return FAILED
    print(f"{_red('error')}: {error}", file=sys.stderr)
    return WRONG_INPUT if isinstance(error, ConfigError | SqlError) else FAILED


def hide_from_traces(hide: Callable[[str], str]) -> None:
    """Take something out of the traces that `--debug` shows from now on."""
    global _hide_from_trace
    _hide_from_trace = hide


def load(name: str) -> typer.Typer:
    """Import a command and return it as a Typer app; an unknown name is an error that suggests the nearest."""
    import typer

    if name not in COMMANDS:
        raise ConfigError(
            f"unknown command '{name}'", code="UNKNOWN_COMMAND", hint=suggest(name, COMMANDS, what="command")
        )
    module, _, attribute = COMMANDS[name].target.partition(":")
    command = getattr(import_module(module), attribute)
    app = typer.Typer(
        help=COMMANDS[name].help,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    if isinstance(command, typer.Typer):
        # Without a name its commands become ours, and are shown as plainly as all others.
        app.add_typer(command)
        app.callback(help=COMMANDS[name].help)(lambda: None)
    else:
        app.command(name)(command)
    return app


def overview() -> str:
    """What `penstock --help` prints."""
    width = max(map(len, COMMANDS)) + 2
    lines = "\n".join(f"  {name:<{width}}{command.help}" for name, command in COMMANDS.items())
    return f"""\
Usage: penstock COMMAND [OPTIONS] ...

One engine for batch SQL, streaming pipelines and incremental views, on Apache Spark.

Commands:
{lines}

Options:
  -h, --help  Show this, or the help of a command: penstock COMMAND --help.
  --version   Show the version.
  --debug     Show the whole trace of an error; may stand after the command too.

Examples:
{EXAMPLES}"""


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        if len(words) > 1:
            return _run([words[1], "--help"])
        print(overview())
        return DONE if words else WRONG_INPUT
    if words[0] == "--version":
        print(f"penstock {__version__}")
        return DONE
    name, *rest = words
    if name.startswith("-"):
        raise ConfigError(
            f"unknown option '{name}' before the command", code="UNKNOWN_OPTION", hint="see penstock --help"
        )
    return _invoke(name, rest)


def _boot_early(words: list[str]) -> None:
    """Let Spark boot while this process still imports what the command needs: a fifth of the whole start."""
    if not words or words[0] not in STARTS_SPARK + READS_PIPELINE:
        return
    if any(word.startswith(CHANGES_START) for word in words[1:]):
        return
    if words[0] in READS_PIPELINE and not _is_plain_pipeline(words[1:]):
        return
    from penstock.spark.boot import session

    # Whatever is wrong with the settings, the command itself will say.
    with suppress(PenstockError):
        settings = config.load()
        if not settings.connectors and not settings.catalogs:
            session.prepare(settings)


def _is_plain_pipeline(words: list[str]) -> bool:
    """Whether a pipeline is there and surely has no node whose connector Spark must be started with."""
    try:
        files = [Path(word) for word in words if Path(word).is_file()]
        return len(files) == 1 and b"iceberg" not in files[0].read_bytes()
    except (OSError, ValueError):
        return False


def _invoke(name: str, words: list[str]) -> int:
    app = load(name)
    arrange = getattr(import_module(COMMANDS[name].target.partition(":")[0]), "arrange", None)
    words = words if arrange is None else arrange(words)
    import typer

    if app.registered_groups and not words:
        _invoke(name, ["--help"])
        return WRONG_INPUT
    try:
        result = app(words, prog_name=f"penstock {name}", standalone_mode=False)
    except typer.TyperException as error:
        # Typer's own refusals: an unknown option, a missing argument, a value of the wrong type.
        message = error.format_message().rstrip(".") or "wrong usage"
        quotes = "what has spaces needs quotes around it; " if "extra argument" in message else ""
        raise ConfigError(
            message[:1].lower() + message[1:], code="USAGE", hint=f"{quotes}see penstock {name} --help"
        ) from error
    except typer.Abort:
        return INTERRUPTED
    return result if isinstance(result, int) else DONE


def _take_debug(words: list[str]) -> bool:
    """Remove `--debug` wherever it stands before a `--`: people add it to the end of the line that failed."""
    end = words.index("--") if "--" in words else len(words)
    debug = "--debug" in words[:end]
    words[:end] = [word for word in words[:end] if word != "--debug"]
    return debug


def _text_of(error: Exception) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}" if str(error) else name
    except Exception:
        # Py4J asks the JVM for the text of its errors, and the JVM may be gone.
        return name


def _red(text: str) -> str:
    return f"\033[1;31m{text}\033[0m" if sys.stderr.isatty() and config.wants_color() else text
