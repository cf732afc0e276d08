"""The shell's own commands, which begin with a backslash."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.cli.output import Format
from penstock.cli.script import Printing
from penstock.errors import ConfigError, suggest

HELP = """\
  \\d                list the tables and views
  \\d NAME           describe a table, a view or a 'file'
  \\output FORMAT    print rows as table, json or csv
  \\limit ROWS       print at most so many rows; 0 is all
  \\timing           show or hide the line under a result
  \\?                show this
  \\q                leave (also Ctrl-D)

A statement ends with ; and may take several lines. Ctrl-C cancels a running one.
Tab completes keywords, tables, columns, functions and, inside quotes, files."""

COMMANDS = ("\\d", "\\output", "\\limit", "\\timing", "\\?", "\\q")


@dataclass(frozen=True, slots=True)
class BackslashAction:
    """What a backslash command asks for: a statement to run, something to say, other printing, or the end."""

    printing: Printing
    statement: str | None = None
    say: str | None = None
    leave: bool = False


def interpret(line: str, printing: Printing) -> BackslashAction:
    """Read a backslash command.

    >>> interpret("\\\\d orders", Printing()).statement
    'DESCRIBE TABLE orders'
    """
    command, _, argument = line.strip().rstrip(";").partition(" ")
    argument = argument.strip()
    match command.lower():
        case "\\q" | "\\quit" | "\\exit":
            return BackslashAction(printing, leave=True)
        case "\\?" | "\\h" | "\\help":
            return BackslashAction(printing, say=HELP)
        case "\\d":
            return BackslashAction(printing, statement=_describe(argument))
        case "\\timing":
            changed = replace(printing, summary=not printing.summary)
            return BackslashAction(changed, say=f"timing is {'on' if changed.summary else 'off'}")
        case "\\output" | "\\o":
            return _output(argument, printing)
        case "\\limit":
            return _limit(argument, printing)
    raise ConfigError(
        f"unknown command '{command}'",
        code="UNKNOWN_COMMAND",
        hint=suggest(command, COMMANDS, what="command"),
    )


def _describe(argument: str) -> str:
    if not argument:
        return "SHOW TABLES"
    if argument[0] in "'\"":
        return f"DESCRIBE QUERY SELECT * FROM {argument}"
    return f"DESCRIBE TABLE {argument}"


def _output(argument: str, printing: Printing) -> BackslashAction:
    choices = [Format.TABLE.value, Format.JSON.value, Format.CSV.value]
    if argument not in choices:
        raise ConfigError(
            f"unknown format '{argument}'" if argument else f"rows are printed as {printing.output}",
            code="USAGE",
            hint=f"\\output {'|'.join(choices)}",
        )
    return BackslashAction(replace(printing, output=Format(argument)), say=f"rows are printed as {argument}")


def _limit(argument: str, printing: Printing) -> BackslashAction:
    if not argument.isdecimal():
        raise ConfigError(
            f"'{argument}' is not a number of rows", code="USAGE", hint="\\limit 100, or 0 for all"
        )
    return BackslashAction(
        replace(printing, limit=int(argument)),
        say=f"at most {argument} rows" if int(argument) else "all rows",
    )
