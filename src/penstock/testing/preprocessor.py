"""The contract of a preprocessor."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import PenstockError
from penstock.testing.report import Broken, Report, require

_EXAMPLE: dict[str, Any] = {
    "name": "example",
    "sources": {"ticks": {"type": "rate", "rows_per_second": 5}},
    "transforms": {"even": {"type": "sql", "primary_key": "value", "sql": "SELECT * FROM ticks"}},
    "sinks": {"out": {"type": "print", "from": "even"}},
}
_UNCHECKED: dict[str, dict[str, Any]] = {
    "empty": {},
    "sections without nodes": {"sources": None, "transforms": None, "sinks": {}},
    "sections that are lists": {"sources": [], "sinks": ["out"]},
    "nodes that are no mappings": {"sources": {"a": None, "b": "rate", "c": [1]}, "sinks": {"out": 5}},
    "fields of any kind": {
        "sources": {"a": {"type": None, "telemetry": "no", "primary_key": {}}},
        "sinks": {},
    },
}


def check_preprocessor(
    function: Callable[[dict[str, Any]], Any], pipeline: Mapping[str, Any] | None = None
) -> None:
    """Check a preprocessor with a pipeline, an example or one that it is made for, and with documents that are no pipelines.

    It returns a document of what YAML has, the same one for the same document, and nothing but a `PenstockError`
    refuses one: it runs before anything is checked, so sections may be missing and nodes may be anything.
    """
    report = Report(getattr(function, "__name__", "preprocessor"))
    document = dict(_EXAMPLE if pipeline is None else pipeline)
    with report.part("its order is a number"):
        order = getattr(function, "order", 0)
        require(isinstance(order, int | float), f"order is {order!r}")
    with report.part("it takes a pipeline"):
        first = _returned(function, document)
        again = _returned(function, document)
        require(first == again, f"the same pipeline gave {again!r}, and before {first!r}")
    for what, unchecked in _UNCHECKED.items():
        with report.part(f"it takes a document that nobody has checked ({what})"):
            try:
                _returned(function, unchecked)
            except PenstockError:
                continue  # it may refuse a pipeline, with a reason
    report.end()


def _returned(function: Callable[[dict[str, Any]], Any], document: Mapping[str, Any]) -> Any:
    result = function(copy.deepcopy(dict(document)))
    require(
        isinstance(result, dict),
        f"it returned {type(result).__name__}; return the document that it was given, changed or not",
    )
    _require_plain(result, "the document")
    return result


def _require_plain(value: Any, where: str) -> None:
    """Refuse what a file in YAML cannot have."""
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                raise Broken(f"{where} has the key {name!r}; keys are texts")
            _require_plain(item, f"{where}, {name}")
    elif isinstance(value, list | tuple):
        for item in value:
            _require_plain(item, where)
    elif value is not None and not isinstance(value, str | bool | int | float):
        raise Broken(f"{where} has {type(value).__name__}, which YAML does not have")
