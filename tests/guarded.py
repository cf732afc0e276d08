"""Dicts and sets that may only be used by a thread that has their lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

Items = TypeVar("Items", dict[str, Any], set[str])

USES = (
    *("__contains__", "__getitem__", "__setitem__", "__delitem__", "__iter__", "__len__"),
    *("get", "pop", "setdefault", "keys", "values", "items", "add", "remove", "discard", "clear"),
)


class OwnedLock:
    """A lock that knows whether the thread that asks has it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None
        self._depth = 0

    @property
    def is_held(self) -> bool:
        """Whether this thread has the lock."""
        return self._owner == threading.get_ident()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner, self._depth = threading.get_ident(), self._depth + 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
        self._lock.release()


def guarded(items: Items, lock: OwnedLock, wrong: list[str]) -> Items:
    """The same items; every use of them without the lock is added to `wrong`."""
    kind = type(items)

    def checked(name: str) -> Callable[..., Any]:
        method = getattr(kind, name)

        def use(self: Any, *arguments: Any) -> Any:
            if not lock.is_held:
                wrong.append(name)
            return method(self, *arguments)

        return use

    methods = {name: checked(name) for name in USES if hasattr(kind, name)}
    made: Items = type(f"Guarded{kind.__name__}", (kind,), methods)(items)
    return made
