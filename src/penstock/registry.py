"""Tables from a name to "module:Attribute", loaded when the name is used.

Built-in entries are written as strings, so that naming a connector or a command imports nothing. Other packages add theirs
through an entry point of the same group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from penstock.errors import ConfigError, PenstockError, suggest


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
            return load_entry_point(plugins[name], f"{self.what} plugin")
        raise ConfigError(
            f"unknown {self.what} '{name}'",
            code=f"UNKNOWN_{self.what.upper().replace(' ', '_')}",
            hint=suggest(name, self.names(), what=self.what),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _plugins(self) -> dict[str, EntryPoint]:
        return {} if self.group is None else {point.name: point for point in entry_points(group=self.group)}


def load_entry_point(point: EntryPoint, what: str) -> Any:
    """Import what another package offers; whatever goes wrong is a `ConfigError` that names it."""
    package = "its package" if point.dist is None else point.dist.name
    with importing(
        f"the {what} '{point.name}' cannot be imported", hint=f"install {package} again, with what it needs"
    ):
        return point.load()


@contextmanager
def importing(failed: str, *, hint: str) -> Iterator[None]:
    """Raise what code of others raises while it is imported, or that it ends the process, as a `ConfigError`."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, PenstockError):
            text, hint = error.message, error.hint or hint
        elif isinstance(error, ImportError | AttributeError):
            text = str(error)
        else:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ConfigError(f"{failed}: {text}", code="PLUGIN_IMPORT", hint=hint) from error
