"""Names of states, which come from what a state means: the plan of the rows that it holds, the key columns, and its role there.

A name is the same in every process and whatever the order in which views, rows and look-ups came, so that a flow that is rebuilt
from its definition finds its state. Nothing in it counts, and nothing in it is a place in memory.

- A source is its name, its columns and its primary key. A source of the same name with other columns is another one.
- A view is its plan. A view that is dropped and registered anew under the same name does not find the rows of the old one, and
  two views of the same plan have the same rows. A suspended view has its name in the digest, because it has rows of before.
- Every other operator is its plan node, in which scans stand for the source or the view that they read.
- The rows of a source or a view have no keys in their name, because the order in which a source keeps its rows (the first
  key that a join asks for) does not change which rows they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import quote

from penstock.plan import codec
from penstock.plan import node as plan

_BYTES = 16


@dataclass(frozen=True, slots=True)
class StateKey:
    """The name of one state."""

    node: str  # digest of the plan whose rows, or whose operator, it belongs to
    keys: tuple[int, ...] | None  # key columns of an index; None where the node says it all
    role: str  # which of the operator's states it is

    def __str__(self) -> str:
        """A name for a file.

        >>> str(StateKey("9f", (1, 0), "rows")), str(StateKey("9f", None, "sum of [1]"))
        ('9f.by-1-0.rows', '9f.sum%20of%20%5B1%5D')
        """
        by = [] if self.keys is None else [f"by-{'-'.join(map(str, self.keys))}"]
        return ".".join([self.node, *by, quote(self.role, safe="")])

    def to_json(self) -> str:
        """The name in the manifest of a checkpoint."""
        return json.dumps([self.node, self.keys, self.role], separators=(",", ":"))

    @classmethod
    def from_json(cls, name: str) -> StateKey:
        """The state that has this name in a manifest."""
        node, keys, role = json.loads(name)
        return cls(node, None if keys is None else tuple(keys), role)

    def of_shard(self, number: int) -> StateKey:
        """The name of the same state on a shard."""
        return replace(self, role=f"{number} {self.role}")

    def on_shard(self) -> tuple[int, StateKey]:
        """The shard of a state that `of_shard` has named, and its name there."""
        number, _, role = self.role.partition(" ")
        return int(number), replace(self, role=role)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an operator stands for: a node of a plan, by key columns when it is an index of the node's rows.

    `part` counts the operators that one node needs, as the conditions of a filter on the time.
    """

    node: plan.Node
    keys: tuple[int, ...] | None = None
    part: int = 0


@dataclass(frozen=True, slots=True)
class StateNames:
    """Makes names; `relations` has the digest of every source, static table and view that a plan may scan."""

    relations: Mapping[str, str]
    _digests: dict[plan.Node, str] = field(default_factory=dict)

    def key(self, meaning: Meaning, role: str) -> StateKey:
        """The name of a state."""
        part = f"{meaning.part}-{role}" if meaning.part else role
        return StateKey(self.node(meaning.node), meaning.keys, part)

    def node(self, node: plan.Node) -> str:
        """The digest of a plan node."""
        if node not in self._digests:
            self._digests[node] = self._digest(node)
        return self._digests[node]

    def _digest(self, node: plan.Node) -> str:
        if isinstance(node, plan.Scan):
            # A scan within a recursion reads rows that belong to no relation.
            relation = self.relations.get(node.name) or digest(["recursion", node.name])
            return digest(["scan", relation, list(node.columns)])
        return digest(
            [type(node).__name__, *(self._described(getattr(node, item.name)) for item in fields(node))]
        )

    def _described(self, value: Any) -> Any:
        if isinstance(value, plan.Node):
            return ["node", self.node(value)]
        if isinstance(value, tuple) and value and all(isinstance(item, plan.Node) for item in value):
            return ["nodes", *(self.node(item) for item in value)]
        return codec.encode(value)


def source_digest(name: str, columns: plan.Fields, primary_key: tuple[int, ...]) -> str:
    """The digest of a source or a static table."""
    return digest(["source", name, codec.encode(columns), list(primary_key)])


def view_digest(names: StateNames, view: plan.View, *, suspended: bool = False) -> str:
    """The digest of a view. The rows of a suspended one are its own: another view of the same plan may have gone on."""
    kind = ["suspended", view.name] if suspended else ["view"]
    return digest([*kind, names.node(view.root), view.visible])


def digest(value: Any) -> str:
    """A stable hash of a JSON value."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=_BYTES).hexdigest()
