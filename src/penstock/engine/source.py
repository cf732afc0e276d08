"""What a flow knows of one source: its declaration, and the rows that were fed and not yet stepped."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from penstock.circuit.kernel import KernelSource
from penstock.data.batch import DeltaBatch
from penstock.data.conform import conform_to
from penstock.data.delta import Delta
from penstock.data.hashing import canonical_keys, hash_rows
from penstock.data.schema import declared_type, to_arrow_schema
from penstock.data.types import kernel_type
from penstock.engine.lateness import Lateness, declare_lateness
from penstock.engine.names import one_of, position, require_comparable
from penstock.errors import ConfigError
from penstock.plan.node import Field

DEDUP_CAPACITY = 10_000_000


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """What a source is, and how far it was fed."""

    name: str
    primary_key: tuple[str, ...]
    ordinal: int | None
    """The ordinal that was committed last; None when none was."""
    table: str | None = None
    """The table that it reads."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """The table of a lake that a source reads; `ids` are those of its columns, where the format has them."""

    name: str
    format: str
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source as it was registered."""

    name: str
    fields: tuple[Field, ...]
    primary_key: tuple[str, ...] = ()
    dedup: bool = False
    retain: Literal["all", "used", "open"] = "all"
    on_missing_delete: Literal["reject", "quarantine", "ignore"] = "reject"
    lateness: Lateness | None = None
    table: SourceTable | None = None

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return tuple(kernel_type(field.type) for field in self.fields)

    def info(self, ordinal: int | None) -> SourceInfo:
        """What users see of the source."""
        return SourceInfo(
            self.name, self.primary_key, ordinal, None if self.table is None else self.table.name
        )

    def positions(self, names: Sequence[str]) -> tuple[int, ...]:
        """Where the named columns stand."""
        columns = [field.name for field in self.fields]
        return tuple(position(name, columns, of=f"source '{self.name}'") for name in names)

    def kernel_source(self, retained: tuple[int, ...] = ()) -> KernelSource:
        """The source as the kernel has it."""
        return KernelSource(
            self.name,
            self.fields,
            canonical_keys(self.positions(self.primary_key)),
            self.on_missing_delete,
            "all" if self.retain == "all" else "used",
            retained,
            self.event_time,
            frees=self.retain == "open",
        )

    @property
    def event_time(self) -> int | None:
        """The column of event times of a source that accepts no change behind its watermark."""
        # A row that is replaced by its key may be of any time.
        return None if self.lateness is None or self.primary_key else self.lateness.column


def declare(
    name: str,
    schema: Any,
    *,
    primary_key: Any = None,
    dedup: bool,
    retain: str,
    on_missing_delete: str,
    lateness: Any = None,
) -> SourceSpec:
    """Check a declaration and return it as a spec."""
    one_of("retain", retain, ("all", "used", "open"))
    one_of("on_missing_delete", on_missing_delete, ("reject", "quarantine", "ignore"))
    fields = tuple(
        Field(field.name, declared_type(field), field.nullable) for field in to_arrow_schema(schema)
    )
    names = [field.name for field in fields]
    double = next((name for name in names if names.count(name) > 1), None)
    if double or not fields or "_weight" in names:
        raise ConfigError(
            f"column '{double}' is there twice"
            if double
            else ("'_weight' is reserved" if fields else "a source needs at least one column"),
            code="FLOW_SCHEMA",
            where=f"source '{name}'",
        )
    keys = (primary_key,) if isinstance(primary_key, str) else tuple(primary_key or ())
    allowed = declare_lateness(lateness, fields, where=f"source '{name}'")
    spec = SourceSpec(name, fields, keys, dedup, retain, on_missing_delete, allowed)  # type: ignore[arg-type]  # checked above
    if retain == "open" and spec.event_time is None:
        raise ConfigError(
            "retain='open' needs a lateness, and no primary key: a row that can be replaced by its key is never closed",
            code="FLOW_OPTION",
            where=f"source '{name}'",
            hint="""give lateness={"column": "ts", "delay": "10 minutes"}, or take retain='used'""",
        )
    positions = spec.positions(keys)
    require_comparable((fields[at] for at in positions), of="a primary key", collated=True)
    return replace(spec, primary_key=tuple(names[at] for at in positions))


@dataclass(slots=True)
class SeenBatches:
    """The content of insert-only batches that were accepted, for coalescing replays of the same batch.

    It empties when a batch with retractions is accepted, so that an insert, its delete and the same insert again all count.
    """

    WIDTH: ClassVar[int] = 16  # bytes of a digest

    capacity: int = DEDUP_CAPACITY
    dropped: int = 0
    _seen: OrderedDict[bytes, None] = field(default_factory=OrderedDict)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._seen

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def digests(self) -> Iterable[bytes]:
        """The digests that it remembers, the oldest first."""
        return self._seen.keys()

    def add(self, digest: bytes) -> None:
        """Remember a batch, forgetting the oldest one when there are too many."""
        self._seen[digest] = None
        if len(self._seen) > self.capacity:
            self._seen.popitem(last=False)
            self.dropped += 1

    def clear(self) -> None:
        """Forget all."""
        self._seen.clear()


def content_digest(delta: Delta) -> bytes:
    """A wide hash of the rows and weights of a batch, in their order."""
    rows = hash_rows(delta.columns)
    return hashlib.blake2b(
        rows.tobytes() + delta.weights.tobytes(),
        digest_size=SeenBatches.WIDTH,
        salt=len(delta).to_bytes(8, "little"),
    ).digest()


def to_delta(spec: SourceSpec, batch: DeltaBatch) -> Delta:
    """Return a fed batch as kernel rows of the source's schema, or say what does not fit."""
    where = f"source '{spec.name}'"
    table = batch.table
    wanted = [(field.name, field.type, field.nullable) for field in spec.fields]
    if spec.primary_key and len(batch) and not (batch.weights > 0).any():
        # A retraction by key needs only the key: the row itself is known.
        absent = [
            name for name, _, _ in wanted if name not in table.column_names and name not in spec.primary_key
        ]
        for name in absent:
            table = table.append_column(name, pa.nulls(table.num_rows))
        wanted = [(name, kind, nullable or name in absent) for name, kind, nullable in wanted]
    return Delta(conform_to(table, wanted, where=where), np.ascontiguousarray(batch.weights, np.int64))
