"""`penstock init`: write a pipeline to begin with."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.main import show
from penstock.cli.new_files import write_new_files
from penstock.cli.plugin_package import KINDS, create
from penstock.errors import ConfigError
from penstock.pipeline.starter import SINKS, SOURCES, TRANSFORMS, require_choice, starter

NAME = "my-pipeline"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")


def init(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="The name of the pipeline and of its file.", show_default=False
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="TYPE", help=f"Where rows come from: {', '.join(SOURCES)}."),
    ] = None,
    transform: Annotated[
        str | None,
        typer.Option("--transform", metavar="TYPE", help=f"What happens to them: {', '.join(TRANSFORMS)}."),
    ] = None,
    sink: Annotated[
        str | None, typer.Option("--sink", metavar="TYPE", help=f"Where they go: {', '.join(SINKS)}.")
    ] = None,
    plugin: Annotated[
        str | None,
        typer.Option("--plugin", metavar="NAME", help="Write the package of a new plugin instead."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", metavar="KIND", help=f"What the plugin is: {', '.join(KINDS)}."),
    ] = None,
    folder: Annotated[
        Path,
        typer.Option("--folder", metavar="DIR", help="Where the files are written.", show_default="here"),
    ] = Path(),
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask; what is left out has its default.")
    ] = False,
) -> None:
    """Write a pipeline to begin with.

    It is valid, and has rows of its own where it reads files; where it names a server it runs as soon as that is
    there. On a terminal init asks for what is left out. Nothing is written over.

    \b
    Examples:
      penstock init
      penstock init orders --source file --transform view --sink print
      penstock init clicks --source rate --transform none --sink file --yes
      penstock init --plugin weather-station --kind source
    """
    if plugin is not None:
        _write_plugin(plugin, kind, folder, others=(name, source, transform, sink))
        return
    if kind is not None:
        raise ConfigError(
            "--kind is that of a plugin", code="USAGE", hint="add --plugin NAME, or leave it out"
        )
    asks = sys.stdin.isatty() and not yes
    sources = {choice: rows.about for choice, rows in SOURCES.items()}
    sinks = {choice: about for choice, (about, _) in SINKS.items()}
    # The options of the command line first: nobody answers questions for nothing.
    if name is not None:
        _checked(name)
    for what, choice, choices in (
        ("source", source, sources),
        ("transform", transform, TRANSFORMS),
        ("sink", sink, sinks),
    ):
        if choice is not None:
            require_choice(what, choice, choices)
    name = name or (_asked("Name of the pipeline", NAME, _checked) if asks else NAME)
    source = source or _choose("source", sources, asks=asks)
    transform = transform or _choose("transform", TRANSFORMS, asks=asks)
    sink = sink or _choose("sink", sinks, asks=asks)
    path, data = folder / f"{name}.yaml", folder / f"{name}-data"
    write_new_files(
        starter(
            name, source=source, transform=transform, sink=sink, path=path.as_posix(), data=data.as_posix()
        )
    )
    print(f"next: penstock validate {path.as_posix()}, then penstock run {path.as_posix()}", file=sys.stderr)


def _write_plugin(name: str, kind: str | None, folder: Path, *, others: tuple[str | None, ...]) -> None:
    """Write the package of a plugin into a folder of its name."""
    if any(others):
        raise ConfigError(
            "--plugin writes a package, which has no name, source, transform or sink of a pipeline",
            code="USAGE",
            hint="leave them out; --kind says what the plugin is",
        )
    package = folder / f"penstock-{name.removeprefix('penstock-')}"
    for path in create(name, kind or KINDS[0], package):
        print(path.as_posix())
    print(f"next: pip install -e {package.as_posix()}, and pytest in it", file=sys.stderr)


def _choose(what: str, choices: Mapping[str, str], *, asks: bool) -> str:
    """One of the choices, the first one when nobody is asked."""
    default = next(iter(choices))
    if not asks:
        return default
    width = max(map(len, choices))
    for choice, about in choices.items():
        print(f"  {choice:<{width}}  {about}", file=sys.stderr)
    return _asked(what.capitalize(), default, lambda answer: require_choice(what, answer, choices))


def _asked(question: str, default: str, checked: Callable[[str], str]) -> str:
    """The answer to a question, which is put again until the answer is right."""
    while True:
        answer: str = typer.prompt(question, default=default, err=True)
        try:
            return checked(answer.strip())
        except ConfigError as error:
            show(error)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"'{name[:50]}' cannot be the name of a pipeline and of its file",
            code="USAGE",
            hint="use letters, digits, dots, _ and -",
        )
    return name
