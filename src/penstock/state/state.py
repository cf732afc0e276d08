"""State: what ticks change, in pieces that have names.

A tick stages changes. `commit` makes them final: it only forgets how to take them back, so it cannot fail. `rollback`
takes them back. Either may be interrupted (by a signal) and called again: it then does the rest. `maintain` merges
and compacts what the ticks before it have left; it changes no answer, may be left out, and may fail without harm. A
piece is one array, one set of runs or one value, or it is made of other pieces (`Composite`): each has a role in the
piece that it belongs to, and the roles on the way down are its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import StateError
from penstock.state.scratch import Piece


class SupportsArray(Protocol):
    """What NumPy reads as an array: an array, or a version of one."""

    def __array__(self, dtype: npt.DTypeLike | None = ..., copy: bool | None = ...) -> npt.NDArray[Any]: ...


@dataclass(frozen=True, slots=True)
class Image:
    """A state at rest: what JSON can say, arrays, and the images of its parts, each by name.

    It stays what it is while ticks go on: an array that ticks write to is there as a version of it.
    The arrays of a `fixed` image never change under its name, so a checkpoint writes them once. Those of a `mapped`
    one lie in files.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, SupportsArray | pa.Array] = field(default_factory=dict)
    parts: Mapping[str, Image] = field(default_factory=dict)
    fixed: bool = False
    mapped: bool = False


class State(Protocol):
    """A piece of state."""

    def commit(self) -> None:
        """Make final what was staged: assignments only, of what was made ready before. It cannot fail."""

    def rollback(self) -> None:
        """Take back what was staged."""

    def maintain(self, fuel: int) -> None:
        """Merge and compact, `fuel` rows for each row that has changed since the last time. Called between ticks only.

        When it raises, the state is what it was.
        """

    def memory(self) -> int:
        """Bytes of memory, with those that lie in files."""

    def mapped(self) -> int:
        """Bytes that lie in files, from which the system reads them when they are needed."""

    def pieces(self) -> Iterable[Piece]:
        """What lies in memory and may move to a scratch file. Called between ticks only."""

    def save(self) -> Image:
        """The committed state. Its arrays must not be changed. Called between ticks only; it may be read while ticks go on."""

    def load(self, image: Image) -> None:
        """Be what `save` gave, instead of what is there. Called between ticks only."""


class Leaf:
    """A state that is not made of others, and that has nothing to merge or compact."""

    __slots__ = ()

    def maintain(self, fuel: int) -> None:
        """Nothing is left behind."""

    def mapped(self) -> int:
        """It lies in memory."""
        return 0

    def pieces(self) -> Iterable[Piece]:
        """It is small."""
        return ()


class Composite:
    """A state that is made of others: what happens to it happens to each of them.

    Every tick commits and maintains all states. So what there is to do is listed once, with the pieces of pieces,
    unless a class has more to do (it overrides the method) or gets other pieces later (`fixed` is False).
    """

    __slots__ = ("_to_commit", "_to_maintain")

    fixed: ClassVar[bool] = True

    def states(self) -> Iterable[tuple[str, State]]:
        """The states that this one is made of, with their roles; the same ones every time, if it is `fixed`."""
        return ()

    def commit(self) -> None:
        if not hasattr(self, "_to_commit"):
            self._to_commit = _listed(self, "commit")
        for state in self._to_commit:
            state.commit()

    def rollback(self) -> None:
        for _, state in self.states():
            state.rollback()

    def maintain(self, fuel: int) -> None:
        if not hasattr(self, "_to_maintain"):
            self._to_maintain = _listed(self, "maintain")
        for state in self._to_maintain:
            state.maintain(fuel)

    def changed_shape(self) -> None:
        """List the states anew: there are others now."""
        for listed in ("_to_commit", "_to_maintain"):
            if hasattr(self, listed):
                delattr(self, listed)

    def memory(self) -> int:
        """Bytes of memory, with those that lie in files."""
        return sum(state.memory() for _, state in self.states())

    def mapped(self) -> int:
        """Bytes that lie in files."""
        return sum(state.mapped() for _, state in self.states())

    def pieces(self) -> Iterator[Piece]:
        """What lies in memory and may move to a scratch file."""
        for _, state in self.states():
            yield from state.pieces()

    def save(self) -> Image:
        """The committed state."""
        return Image(parts={role: state.save() for role, state in self.states()})

    def load(self, image: Image) -> None:
        """Be what `save` gave."""
        own = dict(self.states())
        if own.keys() != image.parts.keys():
            raise StateError(
                f"a saved {type(self).__name__} has the parts {sorted(image.parts)}, expected {sorted(own)}",
                code="STATE_SHAPE",
                hint="the state was saved by another version, or for another plan",
            )
        for role, state in own.items():
            state.load(image.parts[role])


def _listed(owner: Composite, method: str) -> tuple[State, ...]:
    """The states for which a method has something to do, in order."""
    listed: list[State] = []
    for _, state in owner.states():
        own = getattr(type(state), method)
        if isinstance(state, Composite) and state.fixed and own is getattr(Composite, method):
            listed.extend(_listed(state, method))
        elif own is not Leaf.maintain:
            listed.append(state)
    return tuple(listed)


def leaves(state: State, name: str = "") -> Iterator[tuple[str, State]]:
    """All pieces of a state that are not made of others, by their names."""
    if not isinstance(state, Composite):
        yield name, state
        return
    for role, part in state.states():
        yield from leaves(part, f"{name}/{role}" if name else role)


def numpy_array(image: Image, name: str) -> npt.NDArray[Any]:
    """An array of an image."""
    return np.asarray(image.arrays[name])
