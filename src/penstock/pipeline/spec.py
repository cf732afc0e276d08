"""The specification of a pipeline: nodes with their models and places, in the order of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.pipeline.node import Node, RowTransformNode, SinkNode, SourceNode, TransformNode
from penstock.pipeline.view_node import ViewTransformNode

STDIN = "stdin"
"""The path of a pipeline that came from there."""
Kind = Literal["source", "transform", "sink"]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in a file; lines and columns count from 1."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node: its name as declared (it may have dots), its model, and the places of it and its fields."""

    kind: Kind
    name: str
    model: Node
    place: Place
    places: Mapping[tuple[str | int, ...], Place] = field(default_factory=dict)
    """Of its fields, by their path: `("telemetry", "labels")`."""
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """What variables gave in its fields."""

    def place_of(self, *path: str | int) -> Place:
        """The place of a field; of the nearest field around it, or of the node, when the file does not have it."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return self.place

    @property
    def type(self) -> str:
        """The value of `type:`."""
        return self.model.type


@dataclass(frozen=True, slots=True)
class TestSpec:
    """One entry of `tests:`: rows that sources give, and rows that nodes must have then."""

    __test__ = False

    name: str
    given: Mapping[str, Sequence[Mapping[str, Any]]]
    expect: Mapping[str, Sequence[Mapping[str, Any]]]
    place: Place


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A file that was read and whose nodes fit their models."""

    name: str
    path: str
    nodes: Mapping[str, NodeSpec]
    """By their names, in the order of the file."""
    state: str | None = None
    """The address of the state backend; None: that of the settings."""
    tests: Sequence[TestSpec] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How it runs: `trigger` and `checkpoint`, as far as the file has them."""
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Values that came from the environment, which no output shows."""
    _inputs: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = {node.name.lower(): node.name for node in self.nodes.values() if node.kind != "sink"}
        inputs = {name: _inputs(node.model, names) for name, node in self.nodes.items()}
        object.__setattr__(self, "_inputs", inputs)

    def of_kind(self, kind: Kind) -> Iterator[NodeSpec]:
        """The nodes of a kind."""
        return (node for node in self.nodes.values() if node.kind == kind)

    def find(self, name: str) -> NodeSpec | None:
        """A node by its name, in any case."""
        return self.nodes.get(name) or next(
            (node for node in self.nodes.values() if node.name.lower() == name.lower()), None
        )

    def rows_of(self, name: str) -> str:
        """The node whose rows are meant by the name of a node: of a sink, the one that it reads."""
        node = self.nodes[name]
        return self.inputs(name)[0] if node.kind == "sink" else name

    def may_have_key(self, name: str) -> bool:
        """Whether the rows of a node have a key, or may get one when types are resolved: from a table, or through a
        query that keeps its columns."""
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            node = self.nodes.get(waiting.pop())
            if node is None or node.name in seen:
                continue
            seen.add(node.name)
            model = node.model
            if getattr(model, "primary_key", ()):
                return True
            if isinstance(model, SourceNode) and model.may_know_its_key:
                return True
            if isinstance(model, ViewTransformNode):
                if model.keys:
                    return True
                continue
            waiting += self.inputs(node.name)
        return False

    def inputs(self, name: str) -> tuple[str, ...]:
        """The nodes that a node reads, by their names as declared."""
        return self._inputs[name]

    def primary_key(self, name: str) -> tuple[str, ...]:
        """The columns that tell the rows of a node apart: its own, or those of the node in `from`."""
        seen: set[str] = set()
        while name in self.nodes and name not in seen:
            seen.add(name)
            model = self.nodes[name].model
            if isinstance(model, SourceNode | TransformNode | SinkNode) and model.primary_key:
                return model.primary_key
            name = self.inputs(name)[0] if isinstance(getattr(model, "from_", None), str) else ""
        return ()


def _inputs(model: Node, names: Mapping[str, str]) -> tuple[str, ...]:
    match model:
        case SourceNode():
            return ()
        case RowTransformNode() | SinkNode():
            return (names.get(model.from_.lower(), model.from_),)
        case TransformNode():
            return model.inputs(names)
    raise AssertionError(f"a node of no kind: {type(model).__name__}")
