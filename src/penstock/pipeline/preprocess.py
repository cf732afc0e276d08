"""Preprocessors: plugins that may rewrite a pipeline between reading its file and checking it.

A preprocessor is a function in the group `penstock.preprocessors`: it takes the document as plain dictionaries and lists, and returns it. They
run one after the other by their attribute `order` (0 without it), and those of the same order by their names.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from penstock.errors import ConfigError, PenstockError

GROUP = "penstock.preprocessors"

Document = dict[str, Any]


def preprocessed(document: Document, *, path: str) -> Document:
    """Return a document as all preprocessors leave it; `path` is its file, for their errors."""
    for name, function in _in_order():
        try:
            result = function(copy.deepcopy(document))
        except PenstockError as error:
            error.where = error.where or path
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise ConfigError(
                f"the preprocessor '{name}' failed: {said}",
                code="PREPROCESSOR_FAILED",
                where=path,
                hint="correct the pipeline or the plugin, or uninstall the plugin",
            ) from error
        if not isinstance(result, dict):
            raise ConfigError(
                f"the preprocessor '{name}' returned {type(result).__name__}, and a pipeline is a dictionary",
                code="PREPROCESSOR_FAILED",
                where=path,
                hint="it must return the document that it was given, changed or not",
            )
        document = result
    return document


def names() -> list[str]:
    """Return the preprocessors that are installed, in the order in which they run."""
    return [name for name, _ in _in_order()]


def _in_order() -> list[tuple[str, Callable[[Document], Any]]]:
    functions = [(point.name, _loaded(point)) for point in entry_points(group=GROUP)]
    return sorted(functions, key=lambda item: (getattr(item[1], "order", 0), item[0]))


def _loaded(point: EntryPoint) -> Callable[[Document], Any]:
    try:
        function = point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the preprocessor '{point.name}' cannot be imported: {error}",
            code="PLUGIN_IMPORT",
            hint="install its package again, with what it needs",
        ) from error
    if not callable(function):
        raise ConfigError(
            f"'{point.name}' is no preprocessor: {function!r}",
            code="PLUGIN_KIND",
            hint="the entry point must name a function of a dictionary that returns one",
        )
    return function  # type: ignore[no-any-return]
