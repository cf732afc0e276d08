"""What one node remembers in the state backend, beside the other nodes of its pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.plugin import KeyValues

if TYPE_CHECKING:
    from penstock.backend import Backend

SOURCES = "sources"
"""The namespace of what sources remember."""
_INDEX = "keys"


@dataclass(frozen=True, slots=True)
class NodeValues:
    """The values of a query under keys that begin with the name of a node."""

    values: KeyValues
    node: str

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self.values.get(self._name(key), default)

    def put(self, key: str, value: Any) -> None:
        """Set the value of a key."""
        keys = self._keys()
        if key not in keys:
            self.values.put(self._name(_INDEX, own=True), [*keys, key])
        self.values.put(self._name(key), value)

    def remove(self, key: str) -> None:
        """Forget a key; one that is not there is no error."""
        self.values.remove(self._name(key))
        self.values.put(self._name(_INDEX, own=True), [one for one in self._keys() if one != key])

    def clear(self) -> None:
        """Forget all of this node."""
        for key in self._keys():
            self.values.remove(self._name(key))
        self.values.remove(self._name(_INDEX, own=True))

    def _keys(self) -> list[str]:
        return list(self.values.get(self._name(_INDEX, own=True), []))

    def _name(self, key: str, *, own: bool = False) -> str:
        return f"{quote(self.node, safe='')}{'#' if own else '/'}{key}"


@dataclass(frozen=True, slots=True)
class JobValues:
    """What is remembered of a job without its lease, such as what sources fix at the first start, before anybody has it."""

    backend: Backend
    job: str
    namespace: str = SOURCES

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self.backend.state.get(self.job, key, default, namespace=self.namespace)

    def put(self, key: str, value: Any) -> None:
        """Set the value of a key."""
        self.backend.state.put(self.job, key, value, namespace=self.namespace)

    def remove(self, key: str) -> None:
        """Forget a key; one that is not there is no error."""
        self.backend.state.remove(self.job, key, namespace=self.namespace)

    def clear(self) -> None:
        """Forget all."""
        self.backend.state.clear(self.job, namespace=self.namespace)
