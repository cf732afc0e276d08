"""The package of a new plugin, from templates: its class, its tests, a pipeline that uses it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args

from penstock.errors import ConfigError, suggest

Kind = Literal["source", "transform", "sink", "function", "preprocessor"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_PREFIX = "penstock-"
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")


def create(name: str, kind: str, folder: Path) -> list[Path]:
    """Write the package of a plugin into a folder that is not there yet, or empty; return its files.

    `name` is what users write behind `type:`, or call in SQL; the package is called after it, with "penstock-" before it.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"unknown kind of plugin '{kind}'", code="INIT_KIND", hint=suggest(kind, KINDS, what="kind")
        )
    short = name.removeprefix(_PREFIX)
    if not _NAME.fullmatch(short):
        raise ConfigError(
            f"'{name}' cannot be the name of a plugin",
            code="INIT_NAME",
            hint="use small letters, digits and hyphens, as in weather-station",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"{folder} is there already", code="INIT_FOLDER", hint="name another folder, or remove it"
        )
    values = _values(short.replace("_", "-"), kind)
    written = []
    for target, text in _templates(kind, values["__MODULE__"]):
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_filled(text, values), encoding="utf-8")
        written.append(path)
    return written


def _values(short: str, kind: str) -> dict[str, str]:
    type_ = short.replace("-", "_")
    is_function = kind in ("function", "preprocessor")
    uses = {
        "function": f"`{type_}(...)` in SQL",
        "preprocessor": "every pipeline is given to it, wherever the package is installed",
    }
    words = short.split("-") if short.endswith(kind) else [*short.split("-"), kind]
    return {
        "__DISTRIBUTION__": f"{_PREFIX}{short}",
        "__MODULE__": f"penstock_{type_}",
        "__SLUG__": short,
        "__TYPE__": type_,
        "__ATTRIBUTE__": type_ if is_function else "".join(word.capitalize() for word in words),
        "__GROUP__": f"{kind}s",
        "__DESCRIPTION__": f"The {kind} {short} for penstock.",
        "__KIND_TITLE__": kind.capitalize(),
        "__KIND__": kind,
        "__USE__": uses.get(kind, f"`type: {type_}` in a pipeline"),
    }


def _templates(kind: str, module: str) -> Iterator[tuple[str, str]]:
    """The files of a package and their templates."""
    templates = files(__package__) / "plugin_templates"
    targets = {
        "package/pyproject.toml.in": "pyproject.toml",
        "package/README.md.in": "README.md",
        "package/gitignore.in": ".gitignore",
        f"{kind}/plugin.py.in": f"src/{module}/__init__.py",
        f"{kind}/test.py.in": f"tests/test_{module}.py",
        f"{kind}/pipeline.yaml.in": "pipeline.yaml",
    }
    if kind != "source":
        targets["package/people.csv.in"] = "people.csv"
    for template, target in targets.items():
        yield target, (templates / template).read_text(encoding="utf-8")


def _filled(text: str, values: Mapping[str, str]) -> str:
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text
