"""What the coordinator of a kernel in shards asks of each shard.

Changes make the next version of a shard: all shards do the same ones in the same order. What a shard gives is a function of the
changes before and of the rows that other shards have sent to it, so that a shard that is lost is made again from those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.circuit.kernel import KernelSource, ViewFailure
from penstock.circuit.state_key import StateKey
from penstock.data.delta import Delta
from penstock.data.tick import Tick
from penstock.plan.exchange import Exchanged
from penstock.state.part import CheckpointOrder, RestoredPart
from penstock.state.state import Image

# Changes: those of a flow, in the order in which they come.


@dataclass(frozen=True, slots=True)
class AddSource:
    """Take in a source, or be the one that was saved; every shard has all rows of one that is `copied`."""

    source: KernelSource
    restored: bool = False
    copied: bool = False


@dataclass(frozen=True, slots=True)
class Register:
    """Compile a view and fill it; `statics` are new static tables, whose rows come with it."""

    exchanged: Exchanged
    tick: Tick
    statics: tuple[KernelSource, ...] = ()
    suspended: bool = False
    restored: bool = False
    quiet: bool = False  # whether no operator of any shard has given a row so far


@dataclass(frozen=True, slots=True)
class DropRelation:
    """Take out a source or a view."""

    name: str


@dataclass(frozen=True, slots=True)
class StepCircuit:
    """Step the circuit without the views that have `failed`; those that are `optional` may fail."""

    tick: Tick
    optional: frozenset[str]
    failed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Resume:
    """Compute suspended views again."""

    views: tuple[str, ...]
    tick: Tick


@dataclass(frozen=True, slots=True)
class Put:
    """Let a source without rows, or a suspended view, have rows."""

    name: str


@dataclass(frozen=True, slots=True)
class EndLoad:
    """Sources and views that are added from now on are not saved ones."""


Change = AddSource | Register | DropRelation | StepCircuit | Resume | Put | EndLoad


# Questions, which change nothing.


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Give all rows of a relation: as `rows` gives them, with hidden columns, or as `put` takes them."""

    name: str
    kind: str = "shown"  # shown, hidden, stored


@dataclass(frozen=True, slots=True)
class Lookup:
    """The rows of a relation with these values, through an index or, with `hidden` columns, without making one."""

    name: str
    columns: tuple[int, ...]
    values: tuple[pa.Array, ...]
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of state, and those of them that lie in files."""


@dataclass(frozen=True, slots=True)
class Save:
    """Write all states to a folder, or give them: a shard that is lost is made again from there."""

    folder: str | None


@dataclass(frozen=True, slots=True)
class StageCheckpoint:
    """Note what a checkpoint gets, and give its bytes while changes go on."""

    order: CheckpointOrder


@dataclass(frozen=True, slots=True)
class Continue:
    """Let the next checkpoint write what changes from now on; each shard has its own part."""

    parts: tuple[RestoredPart, ...]


@dataclass(frozen=True, slots=True)
class Ping:
    """Be there: a process that does nothing for a while is ended."""


Question = ReadRows | Lookup | Size | Save | StageCheckpoint | Continue | Ping


# Answers.


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change did on one shard.

    `sources` has how many rows were inserted into and retracted from sources that changed, `columns` what sources
    keep that keep only some columns, and `gave` says whether any operator has ever given a row.
    """

    outputs: Mapping[str, Delta] = field(default_factory=dict)
    sources: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    missing: Mapping[str, Delta] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    columns: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    gave: bool = False


class ViewsFailed(Exception):
    """Views that may fail have failed on a shard."""

    def __init__(self, failures: Mapping[str, ViewFailure]) -> None:
        super().__init__(dict(failures))
        self.failures: Mapping[str, ViewFailure] = failures


Images = Mapping[StateKey, Image]
