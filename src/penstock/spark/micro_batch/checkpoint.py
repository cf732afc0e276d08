"""The folder in which Spark keeps how far a query has come: whose it is, whether it fits, copies of it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, StateError, suggest
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHAPE = "_penstock.json"
COPYING = "_penstock_copying"
"""Stands in a checkpoint as long as it is being filled from a savepoint."""
NO_OFFSET = "-"
"""How Spark writes that a source has not been read yet."""
FAR_FUTURE_MS = 253_402_300_799_000
"""The end of the year 9999: a watermark that closes every window."""

Shape = Sequence[tuple[str, str]]


def last_epoch(folder: Folder, log: str = "commits") -> int:
    """Return the number of the last batch that Spark has committed, or begun (`offsets`); -1 when there is none."""
    return max((int(name) for name in folder.names(log) if name.isdigit()), default=-1)


def last_epochs(spark: SparkSession, location: str) -> tuple[int, int]:
    """Return the numbers of the last batch that is committed, and of the last one that has begun."""
    folder = Folder(spark, location)
    return last_epoch(folder), last_epoch(folder, "offsets")


def forget_offsets(spark: SparkSession, location: str, number: int) -> None:
    """Take out what was noted of a batch of which nothing was done: its rows come with the next one."""
    folder = Folder(spark, location)
    for name in folder.names("offsets"):
        # Its checksum has the name with an end of its own.
        if name.partition(".")[0] == str(number):
            folder.delete(f"offsets/{name}")


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """What a query goes on from."""

    query: str
    """The id of the query that the checkpoint belongs to."""
    committed: int
    """The last batch that is committed; -1 when there is none."""
    checksums: bool
    """Whether Spark adds checksums of its own to the files."""
    begun: int = -1
    """The last batch whose offsets are noted: one that is not committed comes again with the same rows."""


def inspect(
    spark: SparkSession, location: str | None, shape: Shape, *, savepoint: str | None = None
) -> CheckpointState:
    """Return what a query of this shape would go on from, and refuse one that cannot; nothing is written.

    `location` is None for a checkpoint that is yet to be made. `savepoint` is what a new checkpoint is filled from.
    """
    folder = None if location is None else Folder(spark, location)
    query = (None if folder is None else _query_id(folder)) or str(uuid.uuid4())
    if savepoint is not None and (folder is None or _is_unfilled(folder)):
        folder = _savepoint(spark, savepoint)
    if folder is None:
        return CheckpointState(query, -1, checksums=False)
    checksums = _checksums_that_fit(folder, shape)
    return CheckpointState(
        query,
        last_epoch(folder),
        _new_checksums(folder) if checksums is None else checksums,
        last_epoch(folder, "offsets"),
    )


def prepare(
    spark: SparkSession, location: str, shape: Shape, *, query: str, savepoint: str | None = None
) -> CheckpointState:
    """Fill a new checkpoint from a savepoint, give it the id of its query and note its shape; refuse one that does not fit.

    A checkpoint that has begun is left as it is, and may have another id than `query`.
    """
    if savepoint is not None:
        _fill(spark, savepoint, location)
    folder = Folder(spark, location)
    noted_query = _query_id(folder)
    if noted_query is None:
        folder.write("metadata", json.dumps({"id": query}))  # as Spark would write it
    checksums = _checksums_that_fit(folder, shape)
    if checksums is None:
        checksums = _new_checksums(folder)
        folder.write(SHAPE, json.dumps({"shape": list(shape), "checksums": checksums}))
    return CheckpointState(noted_query or query, last_epoch(folder), checksums, last_epoch(folder, "offsets"))


def _query_id(folder: Folder) -> str | None:
    return str(json.loads(folder.read("metadata"))["id"]) if folder.exists("metadata") else None


def _new_checksums(folder: Folder) -> bool:
    """Whether a checkpoint without a note of ours has Spark's checksums.

    Hadoop keeps checksums of local files by itself. What a checkpoint begins with it keeps: Spark would find old checksums of
    new files.
    """
    return not folder.is_local or bool(folder.names("offsets"))


def _checksums_that_fit(folder: Folder, shape: Shape) -> bool | None:
    """Refuse a query that cannot go on from a checkpoint; return whether it has checksums, None when it has not begun."""
    if not folder.exists(SHAPE) or last_epoch(folder, "offsets") < 0:
        return None
    note = json.loads(folder.read(SHAPE))
    before = [tuple(part) for part in note["shape"]]
    changes = [
        *_changes("reads", _texts(before, "source"), _texts(shape, "source")),
        *_changes("keeps", _texts(before, "state"), _texts(shape, "state")),
    ]
    if changes:
        raise StateError(
            f"the checkpoint belongs to another query: {'; '.join(changes)}",
            code="STREAM_CHECKPOINT_CHANGED",
            where=folder.path,
            hint="start from the beginning with another checkpoint.location (or `penstock state reset NAME`), "
            "or change the query back; filters and columns may change, sources and what is kept may not",
        )
    return bool(note.get("checksums", True))


def _texts(shape: Shape, kind: str) -> list[str]:
    return [text for of, text in shape if of == kind]


def is_stateful(shape: Shape) -> bool:
    """Whether a query keeps something between batches."""
    return bool(_texts(shape, "state"))


def evolves(shape: Shape) -> bool:
    """Whether what a query keeps may get other fields: that of processors may, in a format that Spark has for nothing else."""
    states = _texts(shape, "state")
    return bool(states) and all(text.startswith("a processor by ") for text in states)


def _changes(verb: str, before: list[str], now: list[str]) -> list[str]:
    if before == now:
        return []
    return [f"it {verb} {', '.join(now) or 'nothing'} now and had {', '.join(before) or 'nothing'}"]


def save(spark: SparkSession, checkpoint: str, path: str) -> int:
    """Copy what a checkpoint has committed to another place; return the last epoch in it.

    The query may go on meanwhile: what it has not committed is left out, and files of committed epochs do not change.
    """
    source, target = Folder(spark, checkpoint), Folder(spark, path)
    if target.names():
        raise ConfigError(
            f"the place of the savepoint is not empty: {path}",
            code="STREAM_SAVEPOINT_EXISTS",
            hint="choose a new folder",
        )
    last = last_epoch(source)
    if last < 0:
        raise StateError(
            "the query has not committed anything yet", code="STREAM_SAVEPOINT_EMPTY", where=checkpoint
        )
    for name in ("sources", "state", SHAPE):
        if source.exists(name):
            source.copy(name, target, name)
    for log in ("offsets", "commits"):
        for name in source.names(log):
            if name.isdigit() and int(name) <= last:
                source.copy(f"{log}/{name}", target, f"{log}/{name}")
    target.write("savepoint.json", json.dumps({"epoch": last, "checkpoint": source.url}))
    return last


def _is_unfilled(folder: Folder) -> bool:
    """Whether a checkpoint is to be filled from a savepoint: one that has begun already goes on where it is."""
    return last_epoch(folder, "offsets") < 0 or folder.exists(COPYING)


def _savepoint(spark: SparkSession, path: str) -> Folder:
    folder = Folder(spark, path)
    if not folder.exists("savepoint.json"):
        raise ConfigError(
            f"no savepoint in {path}",
            code="STREAM_SAVEPOINT_MISSING",
            hint="query.savepoint(path) makes one",
        )
    return folder


def _fill(spark: SparkSession, savepoint: str, location: str) -> None:
    """Fill a new checkpoint from a savepoint."""
    target = Folder(spark, location)
    if not _is_unfilled(target):
        return
    source = _savepoint(spark, savepoint)
    target.write(COPYING, savepoint)
    for name in source.names():
        if name != "savepoint.json":
            source.copy(name, target, name)
    before = json.loads(source.read("savepoint.json")).get("checkpoint", "")
    for name in list(target.walk("state")):
        # Spark notes whole paths of the schemas of a processor's state, and the first checkpoint may be gone.
        if before and "/_metadata/" in name and not name.rpartition("/")[2].startswith("."):
            target.write(name, target.read(name).replace(f"{before}/", f"{target.url}/"))
    target.delete(COPYING)


def follow(
    spark: SparkSession, before: str, after: str, shape: Shape, *, continuing: Collection[str] = ()
) -> None:
    """Let a query with other sources go on where one has ended: its id stays, its epochs are counted on, and the new
    sources begin where they begin.

    The sources in `continuing`, in the words of the shape, go on where they are. What `after` has already is left as
    it is, so that it may be called at every start.
    """
    source, target = Folder(spark, before), Folder(spark, after)
    last = last_epoch(source)
    if target.exists(f"commits/{last}") or last_epoch(target) > last:
        return
    source.copy("metadata", target, "metadata")
    note = json.loads(source.read(SHAPE))
    target.write(SHAPE, json.dumps({**note, "shape": list(shape)}))
    places = _places_before(_texts([tuple(part) for part in note["shape"]], "source"), shape, continuing)
    for place, old in enumerate(places):
        if old is not None and source.exists(f"sources/{old}"):
            source.copy(f"sources/{old}", target, f"sources/{place}")
    # Spark looks at the batch before the last one, too.
    for epoch in range(max(last - 1, 0), last + 1):
        version, metadata, *offsets = source.read(f"offsets/{epoch}").split("\n")
        lines = [NO_OFFSET if old is None else offsets[old] for old in places]
        target.write(f"offsets/{epoch}", "\n".join([version, metadata, *lines]))
        target.write(f"commits/{epoch}", source.read(f"commits/{epoch}"))


def _places_before(before: Sequence[str], shape: Shape, continuing: Collection[str]) -> list[int | None]:
    """The place that each source of a shape had before; None for one that begins."""
    left = {place: text for place, text in enumerate(before) if text in continuing}
    places: list[int | None] = []
    for text in _texts(shape, "source"):
        place = next((place for place, other in left.items() if other == text), None)
        if place is not None:
            del left[place]
        places.append(place)
    return places


def begin_empty(spark: SparkSession, checkpoint: str) -> None:
    """Let the next batch have no rows: for what changes although none comes. Nothing happens before the first batch,
    or when one has begun."""
    folder = Folder(spark, checkpoint)
    last = last_epoch(folder)
    if last >= 0 and last_epoch(folder, "offsets") == last:
        folder.write(f"offsets/{last + 1}", folder.read(f"offsets/{last}"))


def begin_closing(spark: SparkSession, checkpoint: str) -> bool:
    """Let the next batch have no rows and a watermark that has passed everything, so that every window is emitted.

    Spark takes the watermark of a batch from its entry in the log of offsets: this writes the next entry, with the offsets of
    the last one. False when there is nothing that a watermark could close.
    """
    folder = Folder(spark, checkpoint)
    last = last_epoch(folder)
    if last < 0 or last_epoch(folder, "offsets") != last or not folder.exists("state"):
        return False
    version, metadata, *offsets = folder.read(f"offsets/{last}").split("\n")
    content = {**json.loads(metadata), "batchWatermarkMs": FAR_FUTURE_MS}
    folder.write(f"offsets/{last + 1}", "\n".join([version, json.dumps(content), *offsets]))
    return True


def is_closing(spark: SparkSession, checkpoint: str) -> bool:
    """Whether a batch that closes all windows has begun and is not committed."""
    folder = Folder(spark, checkpoint)
    last = last_epoch(folder, "offsets")
    return last > last_epoch(folder) and _watermark(folder, last) == FAR_FUTURE_MS


def end_closing(spark: SparkSession, checkpoint: str) -> None:
    """Give a query whose windows were closed its own watermark back, so that rows that come later are not too late."""
    folder = Folder(spark, checkpoint)
    last = last_epoch(folder)
    if last < 1 or _watermark(folder, last) != FAR_FUTURE_MS:
        return
    before = json.loads(folder.read(f"commits/{last - 1}").split("\n")[1])["nextBatchWatermarkMs"]
    for log, key in (("commits", "nextBatchWatermarkMs"), ("offsets", "batchWatermarkMs")):
        version, metadata, *rest = folder.read(f"{log}/{last}").split("\n")
        content = {**json.loads(metadata), key: before}
        folder.write(f"{log}/{last}", "\n".join([version, json.dumps(content), *rest]))


def _watermark(folder: Folder, epoch: int) -> int:
    content = json.loads(folder.read(f"offsets/{epoch}").split("\n")[1])
    return int(content["batchWatermarkMs"])


def state(spark: SparkSession, checkpoint: str, operator: int, variable: str | None = None) -> DataFrame:
    """Return what a stateful operator keeps, one row per key; a processor keeps variables, which have names."""
    operators = _operators(spark, checkpoint)
    if not operators:
        raise StateError(
            "no query has kept anything here",
            code="STREAM_STATE_MISSING",
            where=checkpoint,
            hint="is it the checkpoint.location of a query with windows, aggregates, joins or a "
            "processor, which has done a batch?",
        )
    if operator not in operators:
        raise ConfigError(
            f"the query has no operator {operator} that keeps something",
            code="STREAM_STATE_OPERATOR",
            where=checkpoint,
            hint=f"those that do, from the source on: {', '.join(map(str, sorted(operators)))}",
        )
    variables = operators[operator]
    stored = spark.read.format("statestore").option("operatorId", operator)
    if variable is None and len(variables) == 1:
        variable = variables[0]
    if variable is None and not variables:
        return stored.load(checkpoint)
    if variable not in variables:
        raise ConfigError(
            f"the operator {operator} keeps no variable {variable!r}"
            if variable
            else f"the processor keeps several variables: {', '.join(variables)}",
            code="STREAM_STATE_VARIABLE",
            where=checkpoint,
            hint=suggest(variable, variables, what="variable")
            if variable and variables
            else 'session.state(query, variable="name") reads one of a processor',
        )
    return stored.option("stateVarName", variable).load(checkpoint)


def _operators(spark: SparkSession, checkpoint: str) -> dict[int, list[str]]:
    """Return the operators that keep something, each with the names of its variables, which only processors have."""
    metadata = spark.read.format("state-metadata").load(checkpoint).select("operatorId", "operatorProperties")
    return {
        int(number): sorted(
            named["stateName"] for named in json.loads(text or "{}").get("stateVariables", ())
        )
        for number, text in metadata.collect()
    }
