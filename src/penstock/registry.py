"""Tables from a name to "module:Attribute", loaded when the name is used.

Built-in entries are written as strings, so that naming a connector or a command imports nothing. Other packages add theirs
through an entry point of the same group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from penstock.errors import ConfigError, suggest


@dataclass(frozen=True, slots=True)
class Registry:
    """One table of lazily loaded things of a kind.

    >>> Registry("shape", {"path": "pathlib:Path"}).load("path").__name__
    'Path'
    """

    what: str
    builtin: Mapping[str, str]
    group: str | None = None

    def names(self) -> list[str]:
        """All known names, the built-in ones first."""
        return [*self.builtin, *(name for name in self._plugins() if name not in self.builtin)]

    def load(self, name: str) -> Any:
        """Import and return what `name` stands for; an unknown name is an error that suggests the nearest."""
        if name in self.builtin:
            module, _, attribute = self.builtin[name].partition(":")
            return getattr(import_module(module), attribute)
        plugins = self._plugins()
        if name in plugins:
            return plugins[name].load()
        raise ConfigError(
            f"unknown {self.what} '{name}'",
            code=f"UNKNOWN_{self.what.upper().replace(' ', '_')}",
            hint=suggest(name, self.names(), what=self.what),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _plugins(self) -> dict[str, Any]:
        return {} if self.group is None else {point.name: point for point in entry_points(group=self.group)}
