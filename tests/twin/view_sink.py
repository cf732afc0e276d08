"""Sinks in memory with transactions, faults of every kind, and processes that are killed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, ClassVar

import pyarrow as pa

from penstock.sinks.base import Guarantee
from penstock.sinks.key_change import by_key, summed
from penstock.sinks.server import ServerOptions
from penstock.sinks.view_sink import Change, ViewSink, ViewTarget

KINDS = {"keyed": "twin.view_sink:KeyedViewSink", "changelog": "twin.view_sink:ChangelogViewSink"}


class Away(Exception):
    """The server does not answer."""


class Killed(Exception):
    """The process that calls was killed before."""


@dataclass
class Store:
    """A server: rows and a mark, which change together."""

    rng: random.Random
    faults: float = 0.0
    rows: Counter[str] = field(default_factory=Counter)
    mark: int | None = None
    process: int = 0
    replaced: int = 0
    transactions: int = 0
    lock: Lock = field(default_factory=Lock)

    def kill(self) -> None:
        """End the process that writes: what it has not committed by now will not be."""
        with self.lock:
            self.process += 1

    def commit(self, process: int, rows: Callable[[], Counter[str]], mark: int) -> None:
        """Store rows and mark, or fail before or behind that."""
        with self.lock:
            if process != self.process:
                raise Killed
            if self.rng.random() < self.faults:
                raise Away
            self.rows, self.mark = rows(), mark
            self.transactions += 1
            if self.rng.random() < self.faults:
                raise Away


STORES: dict[str, Store] = {}


class PlaceOptions(ServerOptions):
    place: str
    password: str | None = None


class _StoreSink(ViewSink):
    Options = PlaceOptions
    options: PlaceOptions

    def __init__(self, options: Mapping[str, Any], settings: Any = None) -> None:
        super().__init__(options, settings)
        self._store = STORES[self.options.place]
        self._process = self._store.process

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def describe(self) -> str:
        return f"store {self.options.place}"

    def open(self, target: ViewTarget) -> int | None:
        self._target = target
        if self._store.rng.random() < self._store.faults:
            raise Away
        return self._store.mark

    def transient(self, error: Exception) -> str | None:
        return "away" if isinstance(error, Away) else None


class KeyedViewSink(_StoreSink):
    """The row of each key; what does not fit what is there fails."""

    def replace(self, rows: pa.Table, tick: int) -> None:
        self._store.replaced += 1
        self._store.commit(self._process, lambda: texts(rows), tick)

    def apply(self, changes: Sequence[Change]) -> None:
        change = by_key(summed(changes), self.target.keys, where="twin")

        def applied() -> Counter[str]:
            gone = texts(change.deleted) + texts(change.replaced)
            assert gone <= self._store.rows, "a row that goes must be there"
            return self._store.rows - gone + texts(change.updated) + texts(change.inserted)

        self._store.commit(self._process, applied, changes[-1].tick)


class ChangelogViewSink(_StoreSink):
    """The sum of all changes that were ever stored."""

    needs_key: ClassVar[bool] = False
    replaces: ClassVar[bool] = False

    def replace(self, rows: pa.Table, tick: int) -> None:
        assert not self._store.rows
        self._store.commit(self._process, lambda: texts(rows), tick)

    def apply(self, changes: Sequence[Change]) -> None:
        def applied() -> Counter[str]:
            total = Counter(self._store.rows)
            for change in changes:
                for row, weight in zip(change.rows.table.to_pylist(), change.rows.weights, strict=True):
                    total[str(row)] += int(weight)
            assert all(count >= 0 for count in total.values())
            return +total

        self._store.commit(self._process, applied, changes[-1].tick)


def texts(rows: pa.Table) -> Counter[str]:
    """Rows as a multiset."""
    return Counter(map(str, rows.to_pylist()))
