"""Sources that read something else than they did, that came, or that went: the others go on where they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock.pipeline.secret import slow_hash
from penstock.pipeline.values import PlannedValues
from penstock.spark.micro_batch.checkpoint import SHAPE

CONDITION = "filter"
READS = "reads"
"""Under which a source remembers what it reads, as hashes by the names of fields."""


@dataclass(frozen=True, slots=True)
class SourceChange:
    """What is different about one source of a group that has run."""

    node: str
    change: Literal["changed", "new", "dropped"]
    reason: str = ""

    @property
    def loses_offset(self) -> bool:
        """Whether the offset up to which it was read is lost."""
        return self.change != "new" or bool(self.reason)


@dataclass(frozen=True, slots=True)
class SourceChanges:
    """What the sources of a group mean for the checkpoint that it has."""

    changes: tuple[SourceChange, ...] = ()
    continuing: tuple[str, ...] = ()
    """The sources that go on, in the words of the checkpoint."""
    obstacle: str = ""
    """Why the group cannot go on with its state."""


def fingerprint(reads: Mapping[str, Any]) -> dict[str, str]:
    """What is stored of what a source reads: enough to see whether it has changed."""
    return {name: _hash(name, value) for name, value in reads.items()}


def _hash(name: str, value: Any) -> str:
    text = json.dumps(value, default=str, sort_keys=True).encode()
    # A condition may have a short secret, such as the number of a customer, that could be found by trying.
    key = slow_hash(text) if name == CONDITION and value is not None else text
    return hashlib.sha256(key).hexdigest()[:16]


def note_reads(values: PlannedValues, sources: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Note what sources read, and forget what was fixed for something else; return why, by the sources that have changed."""
    for name in {namespace.split("/")[1] for namespace, _ in values.values if "/" in namespace}:
        if name not in sources:
            values.within(name).clear()
    changed = {}
    for name, reads in sources.items():
        own, now = values.within(name), fingerprint(reads)
        before = own.get(READS)
        if before is not None and before != now:
            fields = [field for field in {**before, **now} if before.get(field) != now.get(field)]
            changed[name] = f"another {', '.join(fields)}"
            own.clear()
        own.put(READS, now)
    return changed


def source_changes(
    checkpoint: Path,
    sources: Sequence[tuple[str, str]],
    changed: Mapping[str, str],
    elsewhere: Mapping[str, str],
) -> SourceChanges:
    """Compare the sources that a group reads now, each with its words in a checkpoint, with those of the checkpoint
    that is there.

    `changed` are those that read something else, with the reason; `elsewhere` are those that other groups have read,
    with the group.
    """
    noted = _sources(checkpoint)
    if noted is None:
        return SourceChanges()
    continuing = tuple(text for name, text in sources if text in noted and name not in changed)
    changes = tuple(_changes(noted, sources, changed, elsewhere))
    done, begun = _last(checkpoint / "commits"), _last(checkpoint / "offsets")
    obstacle = ""
    if changes and begun > done:
        obstacle = f"epoch {begun} of the sources as they were has begun, and is not done"
    return SourceChanges(changes, continuing, obstacle)


def _changes(
    noted: Sequence[str],
    sources: Sequence[tuple[str, str]],
    changed: Mapping[str, str],
    elsewhere: Mapping[str, str],
) -> Iterator[SourceChange]:
    before: dict[str, list[str]] = {}
    for text in noted:
        before.setdefault(text.rpartition(" as ")[2], []).append(text)
    now: dict[str, list[str]] = {}
    for name, text in sources:
        now.setdefault(name, []).append(text)
    for name, texts in now.items():
        if name in before:
            if name in changed or texts != before[name]:
                yield SourceChange(name, "changed", changed.get(name) or "another place")
        else:
            reason = f"it was read in {elsewhere[name]}" if name in elsewhere else ""
            yield SourceChange(name, "new", reason)
    yield from (SourceChange(name, "dropped") for name in before if name not in now)


def _sources(checkpoint: Path) -> list[str] | None:
    """The sources of a checkpoint in which an epoch has begun, in its words; None when they have no names."""
    try:
        shape = json.loads((checkpoint / SHAPE).read_text(encoding="utf-8"))["shape"]
    except FileNotFoundError:
        return None
    sources = [text for kind, text in shape if kind == "source"]
    is_named = all(" as " in text for text in sources)
    return sources if is_named and _last(checkpoint / "offsets") >= 0 else None


def _last(folder: Path) -> int:
    """The last epoch that is noted in a folder of a checkpoint; -1 when there is none."""
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return max((int(name) for name in names if name.isdigit()), default=-1)
