"""The nodes of a pipeline as a graph: their order, their connected groups, and drawings."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.pipeline.spec import NodeSpec, PipelineSpec


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are connected through what they read; each group is one query."""

    nodes: tuple[NodeSpec, ...]
    """In an order in which every node comes after those that it reads."""

    @property
    def sources(self) -> tuple[NodeSpec, ...]:
        """Where its rows come from."""
        return tuple(node for node in self.nodes if node.kind == "source")

    @property
    def transforms(self) -> tuple[NodeSpec, ...]:
        """What happens to them."""
        return tuple(node for node in self.nodes if node.kind == "transform")

    @property
    def sinks(self) -> tuple[NodeSpec, ...]:
        """Where they go."""
        return tuple(node for node in self.nodes if node.kind == "sink")


@dataclass(frozen=True, slots=True)
class PipelineGraph:
    """Which node reads which; a value of a pipeline without cycles."""

    inputs: Mapping[str, tuple[str, ...]]
    """Of every node, the nodes that it reads, by their names as declared, in the order of the file."""
    groups: tuple[Group, ...]

    @property
    def queries(self) -> tuple[Group, ...]:
        """The groups that run: those with rows that come. A table that nothing joins has no work to do."""
        return tuple(group for group in self.groups if group.sources)

    @property
    def nodes(self) -> tuple[NodeSpec, ...]:
        """All nodes, group after group."""
        return tuple(node for group in self.groups for node in group.nodes)

    @property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """Of every node, the nodes that read it."""
        return readers_of(self.inputs)

    def above(self, name: str) -> tuple[NodeSpec, ...]:
        """A node and all that it reads, directly or not, in order."""
        names = reachable([name], self.inputs)
        return tuple(node for node in self.nodes if node.name in names)


def graph(spec: PipelineSpec) -> PipelineGraph:
    """Return the graph of a pipeline that was read without errors."""
    inputs = {name: spec.inputs(name) for name in spec.nodes}
    ordered = [spec.nodes[name] for name in topological(inputs)]
    groups = (tuple(node for node in ordered if node.name in names) for names in connected(inputs))
    return PipelineGraph(inputs, tuple(map(Group, groups)))


def topological(inputs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return names so that each comes after those that it reads, otherwise in their order; names in a cycle, or that
    read one, are left out.

    >>> topological({"sink": ["view"], "view": ["b", "a"], "a": [], "b": []})
    ['a', 'b', 'view', 'sink']
    """
    missing = {name: sum(other in inputs for other in set(others)) for name, others in inputs.items()}
    readers = readers_of(inputs)
    ready = deque(name for name, count in missing.items() if count == 0)
    ordered = []
    while ready:
        name = ready.popleft()
        ordered.append(name)
        for reader in readers.get(name, ()):
            missing[reader] -= 1
            if missing[reader] == 0:
                ready.append(reader)
    return ordered


def connected(inputs: Mapping[str, Sequence[str]]) -> list[set[str]]:
    """Return the connected sets of names, in the order of their first names.

    >>> [sorted(names) for names in connected({"a": [], "b": [], "c": ["a"], "d": ["b", "c"], "e": []})]
    [['a', 'b', 'c', 'd'], ['e']]
    """
    readers = readers_of(inputs)
    both = {name: (*inputs[name], *readers.get(name, ())) for name in inputs}
    result: list[set[str]] = []
    for name in inputs:
        if not any(name in names for names in result):
            result.append(reachable([name], both))
    return result


def cycles(inputs: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """Return cycles, one for every set of names that read each other; each ends with the name with which it begins.

    >>> cycles({"a": ["c"], "b": ["a"], "c": ["b"], "d": ["d", "a"]})
    [('a', 'c', 'b', 'a'), ('d', 'd')]
    """
    result: list[tuple[str, ...]] = []
    seen = set(topological(inputs))
    for name in inputs:
        if name in seen:
            continue
        path = _path_back(name, inputs)
        if path:
            around = reachable([name], inputs) & reachable([name], readers_of(inputs))
            seen |= around
            result.append(path)
    return result


def readers_of(inputs: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return of every name that is read, who reads it."""
    readers: dict[str, list[str]] = {}
    for name, others in inputs.items():
        for other in dict.fromkeys(others):
            readers.setdefault(other, []).append(name)
    return {name: tuple(who) for name, who in readers.items()}


def reachable(start: Iterable[str], edges: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the names that one gets to, those of the start too."""
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(edges.get(name, ()))
    return seen


def mermaid(spec: PipelineSpec) -> str:
    """Return the graph as a Mermaid flowchart, as Markdown pages and editors draw it."""
    graph_ = graph(spec)
    numbers = {node.name: f"n{number}" for number, node in enumerate(spec.nodes.values())}
    shapes = {"source": ("([", "])"), "transform": ("[", "]"), "sink": ("[(", ")]")}
    lines = ["flowchart LR"]
    for node in spec.nodes.values():
        opening, closing = shapes[node.kind]
        label = f"{node.name}<br/>{node.type}".replace('"', "#quot;")
        lines.append(f'  {numbers[node.name]}{opening}"{label}"{closing}')
    for node in spec.nodes.values():
        lines += [f"  {numbers[name]} --> {numbers[node.name]}" for name in graph_.inputs[node.name]]
    return "\n".join(lines)


def text(spec: PipelineSpec) -> str:
    """Return the graph as lines for a terminal: every node in order, with what it reads."""
    graph_ = graph(spec)
    blocks = ["\n".join(_lines(group, graph_.inputs)) for group in graph_.groups]
    return "\n\n".join(blocks)


def _lines(group: Group, inputs: Mapping[str, Sequence[str]]) -> Iterator[str]:
    names = max(len(node.name) for node in group.nodes)
    types = max(len(f"{node.kind} {node.type}") for node in group.nodes)
    for node in group.nodes:
        reads = f"<- {', '.join(inputs[node.name])}" if inputs[node.name] else ""
        yield f"{node.name:<{names}}  {f'{node.kind} {node.type}':<{types}}  {reads}".rstrip()


def _path_back(start: str, edges: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The shortest way from a name back to itself; empty when there is none."""
    before: dict[str, str] = {}
    waiting = deque([start])
    while waiting:
        name = waiting.popleft()
        for other in edges.get(name, ()):
            if other == start:
                path = [start, name]
                while path[-1] != start:
                    path.append(before[path[-1]])
                return (*reversed(path[1:]), start)
            if other not in before:
                before[other] = name
                waiting.append(other)
    return ()
