"""Views to JSON text and back, exactly: a saved flow ticks on the plan it was saved with.

Every node, expression and value is written as [name, ...] by the table of classes below, so that a plan that this version
does not know is refused by name.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from penstock.errors import StateError, suggest
from penstock.plan import expression, node

VERSION = 1

_CLASSES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        expression.Column,
        expression.Literal,
        expression.Call,
        expression.Parameter,
        expression.Lambda,
        node.Field,
        node.Scan,
        node.Values,
        node.Filter,
        node.Project,
        node.Union,
        node.Expand,
        node.Generate,
        node.Join,
        node.Asof,
        node.SessionWindow,
        node.AggregateCall,
        node.Aggregate,
        node.SortKey,
        node.TopK,
        node.Frame,
        node.WindowCall,
        node.Window,
        node.Single,
        node.Recursive,
        node.Spark,
        node.KernelFirst,
        node.Exchange,
        node.Variable,
        node.View,
    )
}


def dumps(view: node.View) -> str:
    """Return the JSON text of a view."""
    return json.dumps({"version": VERSION, "view": encode(view)}, allow_nan=False, separators=(",", ":"))


def loads(text: str) -> node.View:
    """Return the view of a JSON text; a version or class that is not known is a StateError."""
    decoded = json.loads(text)
    version = decoded.get("version")
    if version != VERSION:
        raise StateError(
            f"a saved plan has version {version!r}; this penstock reads version {VERSION}",
            code="STATE_PLAN_VERSION",
            hint="open it with the version that wrote it, or register the view again",
        )
    view = _decode(decoded["view"])
    if not isinstance(view, node.View):
        raise StateError("a saved plan holds no view", code="STATE_PLAN")
    return view


def encode(value: Any) -> Any:
    """Return a part of a plan as a JSON value, always the same one for equal parts.

    Plain JSON values stand for themselves; everything else is a list that begins with its kind.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return ["float", value.hex()]
        case Decimal():
            return ["decimal", str(value)]
        case bytes():
            return ["bytes", value.hex()]
        case datetime():
            return ["utc" if value.tzinfo else "local", value.replace(tzinfo=None).isoformat()]
        case date():
            return ["date", value.isoformat()]
        case tuple():
            return ["tuple", *(encode(item) for item in value)]
        case list():
            return ["list", *(encode(item) for item in value)]
        case dict():
            return ["dict", *([encode(key), encode(item)] for key, item in value.items())]
    name = type(value).__name__
    if is_dataclass(value) and _CLASSES.get(name) is type(value):
        return [name, *(encode(getattr(value, item.name)) for item in fields(value))]
    raise StateError(f"a plan holds a value that cannot be saved: {name}", code="STATE_PLAN")


def _decode(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    name, *rest = value
    match name:
        case "float":
            return float.fromhex(rest[0])
        case "decimal":
            return Decimal(rest[0])
        case "bytes":
            return bytes.fromhex(rest[0])
        case "utc":
            return datetime.fromisoformat(rest[0]).replace(tzinfo=UTC)
        case "local":
            return datetime.fromisoformat(rest[0])
        case "date":
            return date.fromisoformat(rest[0])
        case "tuple":
            return tuple(_decode(item) for item in rest)
        case "list":
            return [_decode(item) for item in rest]
        case "dict":
            return {_decode(key): _decode(item) for key, item in rest}
    kind = _CLASSES.get(name)
    if kind is None:
        raise StateError(
            f"a saved plan has a part that this penstock does not know: {name!r}",
            code="STATE_PLAN",
            hint=suggest(str(name), _CLASSES, what="part"),
        )
    return kind(*(_decode(item) for item in rest))
