"""From the value of `type:` to the model of a node: built-in types by their tables, others are plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.pipeline.node import Node
from penstock.pipeline.nodes import SINK_NODES, SOURCE_NODES, TRANSFORM_NODES
from penstock.pipeline.spec import Kind
from penstock.registry import Registry

BUILT_IN: Mapping[Kind, Registry] = {"source": SOURCE_NODES, "transform": TRANSFORM_NODES, "sink": SINK_NODES}
SECTIONS: Mapping[str, Kind] = {"sources": "source", "transforms": "transform", "sinks": "sink"}


def model_of(kind: Kind, type_: str, fields: Mapping[str, Any]) -> type[Node]:
    """Return the model of a node; an unknown type is an error that suggests the nearest of all types."""
    if type_ in BUILT_IN[kind].builtin:
        model: type[Node] = BUILT_IN[kind].load(type_)
        return model
    from penstock.pipeline.plugin import node_model

    return node_model(kind, type_, fields)


def type_names(kind: Kind) -> list[str]:
    """Return the values that `type:` may have."""
    from penstock.pipeline import plugin

    return plugin.type_names(kind)
