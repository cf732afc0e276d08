"""What was declared of a sink of a flow, as its log and its checkpoints keep it: without secrets."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from penstock.backend.address import hidden_values
from penstock.engine.backlog import Backlog
from penstock.errors import ConfigError

ALTERABLE = ("retry_for", "timeout")
"""Options that say how, and not where."""


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A sink of a view. `withheld` are options with secrets, which are given again when the flow is opened."""

    name: str
    view: str
    kind: str
    key: tuple[str, ...]
    id: str
    options: Mapping[str, Any]
    withheld: tuple[str, ...] = ()
    overwrite: bool = False
    replaces: bool = True
    notes_sources: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As a JSON value."""
        return {**asdict(self), "key": list(self.key), "withheld": list(self.withheld)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> SinkSpec:
        """Of a JSON value."""
        return cls(**{**saved, "key": tuple(saved["key"]), "withheld": tuple(saved["withheld"])})

    def differences(self, other: SinkSpec) -> list[str]:
        """What another declaration says otherwise, for people."""
        withheld = {*self.withheld, *other.withheld}
        own, others = self._compared(withheld), other._compared(withheld)
        return [
            f"{name} was {own.get(name)!r} and is {others.get(name)!r}"
            for name in dict.fromkeys([*own, *others])
            if own.get(name) != others.get(name)
        ]

    def _compared(self, withheld: Collection[str]) -> dict[str, Any]:
        options = {
            name: value
            for name, value in self.options.items()
            if name not in ALTERABLE and name not in withheld
        }
        return {"view": self.view, "sink": self.kind, "key": list(self.key), **options}


@dataclass(slots=True)
class SinkState:
    """A sink and the changes that it may lack."""

    spec: SinkSpec
    backlog: Backlog
    sources: dict[int, dict[str, str]] = field(default_factory=dict)
    """From a tick on, the snapshots of the tables that the view stands for; those of ticks before the mark are gone."""

    def note_sources(self, tick: int, sources: dict[str, str]) -> bool:
        """Remember what the view stands for after a tick; False when that is what it was before."""
        changed = sources != self.sources_at(tick)
        if changed:
            self.sources[tick] = sources
            mark = self.backlog.mark
            if mark is not None:
                last = max((since for since in self.sources if since <= mark), default=mark)
                self.sources = {since: value for since, value in self.sources.items() if since >= last}
        return changed

    def sources_at(self, tick: int) -> dict[str, str]:
        """What the view stands for after a tick."""
        sources = self.sources
        before = [since for since in sources if since <= tick]
        return sources[max(before)] if before else {}


def savable_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The options that a log may have, and the names of those with secrets.

    >>> savable_options({"table": "totals", "url": "postgresql://ann:secret@db/shop"})
    ({'table': 'totals'}, ('url',))
    """
    plain = {name: _plain(name, value) for name, value in options.items() if value is not None}
    hidden = hidden_values(plain)
    withheld = tuple(name for name in plain if hidden[name] != plain[name])
    return {name: value for name, value in plain.items() if name not in withheld}, withheld


def _plain(name: str, value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, Mapping):
        return {str(key): _plain(name, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(name, item) for item in value]
    raise ConfigError(
        f"the option {name} is a {type(value).__name__}, which a flow cannot keep",
        code="FLOW_SINK_OPTION_VALUE",
        hint="options are texts, numbers, durations, lists and dictionaries",
    )
