"""What one node remembers in the state backend, beside the other nodes of its pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from penstock.plugin import KeyValues

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
