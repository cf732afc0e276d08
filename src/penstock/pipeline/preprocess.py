"""Preprocessors: plugins that may rewrite a pipeline between reading its file and checking it.

A preprocessor is a function in the group `penstock.preprocessors`: it takes the document as plain dictionaries and
lists, and returns it. They run one after the other by their attribute `order` (0 without it), and those of the same
order by their names.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from penstock.errors import ConfigError, PenstockError
from penstock.pipeline.problem import Problem
from penstock.pipeline.spec import Place
from penstock.pipeline.yaml_tree import MappingTree, SequenceTree, Tree, YamlScalar, plain
from penstock.registry import load_entry_point

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
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise ConfigError(
                f"the preprocessor '{name}' failed: {reason}",
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


def rewritten(tree: Tree, path: str) -> tuple[Tree, Problem | None]:
    """Return the tree of a file as all preprocessors leave it, and what is wrong when one of them refuses it.

    What they do not change keeps its place; what is new has the place of the value around it.
    """
    if not isinstance(tree, MappingTree) or not entry_points(group=GROUP):
        return tree, None
    try:
        return _merged(preprocessed(plain(tree), path=path), tree, tree.place), None
    except PenstockError as error:
        place = Place(path, 1, 1)
        return tree, Problem(
            place, error.message, error.hint or "correct the pipeline or the plugin", error.code
        )


def _merged(value: Any, before: Tree | None, place: Place) -> Tree:
    """A value as a tree, with the places of the tree that was there before."""
    place = place if before is None else before.place
    if before is not None and _same(plain(before), value):
        return before
    if isinstance(value, dict):
        old = before if isinstance(before, MappingTree) else MappingTree((), place)
        entries = [
            (old.key(str(name)) or YamlScalar(str(name), place), _merged(item, old.get(str(name)), place))
            for name, item in value.items()
        ]
        return MappingTree(tuple(entries), place)
    if isinstance(value, list | tuple):
        items = before.items if isinstance(before, SequenceTree) else ()
        old_items = [*items, *[None] * max(0, len(value) - len(items))]
        return SequenceTree(
            tuple(_merged(item, old, place) for item, old in zip(value, old_items, strict=False)), place
        )
    if isinstance(value, str):
        return YamlScalar(value, place, style='"')
    if value is None or isinstance(value, bool | int | float):
        return YamlScalar(json.dumps(value), place, plain=True)
    raise ConfigError(
        f"a preprocessor left {type(value).__name__} in the pipeline, which YAML does not have",
        code="PREPROCESSOR_FAILED",
        hint="use dictionaries, lists, texts, numbers, truth values and None",
    )


def _same(before: Any, value: Any) -> bool:
    """Whether a value is what it was; 1 and true are not the same."""
    return isinstance(before, type(value)) and repr(before) == repr(value)


def names() -> list[str]:
    """Return the preprocessors that are installed, in the order in which they run."""
    return [name for name, _ in _in_order()]


def _in_order() -> list[tuple[str, Callable[[Document], Any]]]:
    functions = [(point.name, _loaded(point)) for point in entry_points(group=GROUP)]
    return sorted(functions, key=lambda item: (getattr(item[1], "order", 0), item[0]))


def _loaded(point: EntryPoint) -> Callable[[Document], Any]:
    function = load_entry_point(point, "preprocessor")
    if not callable(function):
        raise ConfigError(
            f"'{point.name}' is no preprocessor: {function!r}",
            code="PLUGIN_KIND",
            hint="the entry point must name a function of a dictionary that returns one",
        )
    return cast("Callable[[Document], Any]", function)
