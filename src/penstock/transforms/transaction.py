"""What a plugin stores while it takes the rows of an epoch: kept when they are written, taken back when they come again.

A batch that a plugin refuses comes again, whole or in parts, and an epoch that a sink refuses comes again, too. What
the plugin had stored until then would be there twice.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.plugin import KeyValues

_REMOVED = object()


@dataclass(slots=True)
class _Changes:
    """Values that are not written yet."""

    values: dict[str, Any] = field(default_factory=dict)
    is_cleared: bool = False
    """Whether nothing of what is below is there any more."""


class ValueTransaction:
    """Values whose changes are written at its end; outside of one they are written at once."""

    def __init__(self, stored: KeyValues) -> None:
        self._stored = stored
        self._levels: list[_Changes] = []

    def begin(self) -> None:
        """Begin anew, without what was not written."""
        self._levels = [_Changes()]

    def commit(self) -> None:
        """Write all changes."""
        levels, self._levels = self._levels, []
        for level in levels:
            self._merge(level)

    @contextmanager
    def attempt(self, *, keep: bool = True) -> Iterator[None]:
        """Take back what was changed inside when it raises, or is not to be kept."""
        outer = self._levels
        own = _Changes()
        self._levels = [*outer, own]
        is_written = False
        try:
            yield
            is_written = keep
        finally:
            self._levels = outer
            if is_written:
                self._merge(own)

    def _merge(self, changes: _Changes) -> None:
        """Do what was changed on the level that is the last one now, or in what is stored."""
        if changes.is_cleared:
            self.clear()
        for key, value in changes.values.items():
            if value is _REMOVED:
                self.remove(key)
            else:
                self.put(key, value)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        for level in reversed(self._levels):
            if key in level.values:
                value = level.values[key]
                return default if value is _REMOVED else copy.deepcopy(value)
            if level.is_cleared:
                return default
        # What a plugin does to a list or a dictionary is not to be there before it puts it.
        return copy.deepcopy(self._stored.get(key, default))

    def put(self, key: str, value: Any) -> None:
        """Set the value of a key."""
        if self._levels:
            self._levels[-1].values[key] = copy.deepcopy(value)
        else:
            self._stored.put(key, value)

    def remove(self, key: str) -> None:
        """Forget a key; one that is not there is no error."""
        if self._levels:
            self._levels[-1].values[key] = _REMOVED
        else:
            self._stored.remove(key)

    def clear(self) -> None:
        """Forget all."""
        if self._levels:
            self._levels[-1].values = {}
            self._levels[-1].is_cleared = True
        else:
            self._stored.clear()
