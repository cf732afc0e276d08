"""Dead letters that go through a pipeline again: the requests for it, and the epoch that takes them.

1. A request in the state backend names a node and the ids of letters (`Requests`). It needs no lease.
2. The next epoch of the group that has not begun takes all requests, and has no rows of the sources (`Replay`). Which
  epoch that is
   is noted before anything of it is computed, so that it takes the same letters when it comes again.
3. When the checkpoint has the epoch, the letters are noted as replayed, and the requests are gone.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.backend.job_values import JobValues
from penstock.errors import DataError
from penstock.pipeline.dead_letter import LetterStore
from penstock.pipeline.node_output import NodeOutput
from penstock.pipeline.spec import NodeSpec
from penstock.spark.errors.query import translated
from penstock.streaming.job import SINK
from penstock.transforms import dead_letter
from penstock.transforms.dead_letter import Replayed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.backend import Backend, Job
    from penstock.plugin import KeyValues
    from penstock.sinks.base import Target

NAMESPACE = "replay"
"""Of requests, and of the letters that were replayed: they outlive a checkpoint, as letters do."""
TAKEN = "dead letters taken"
"""Where the state of a group has the epoch that takes letters, and the requests that it takes."""
_REQUEST = "request-"
_ID = 32


@dataclass(frozen=True, slots=True)
class Request:
    """Letters of one node that are to go through again."""

    name: str
    node: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests to the job of a group, and which letters were replayed."""

    backend: Backend
    job: str

    def add(self, node: str, ids: Sequence[str]) -> str:
        """Ask for letters of a node; return the name of the request."""
        name = f"{_REQUEST}{uuid.uuid4().hex}"
        self.values.put(name, {"node": node, "ids": "".join(ids)})
        return name

    def waiting(self) -> list[Request]:
        """The requests that no committed epoch has taken."""
        items = self.backend.state.items(self.job, namespace=NAMESPACE)
        return [
            Request(key, value["node"], tuple(_split(value["ids"])))
            for (_, key), value in items.items()
            if key.startswith(_REQUEST)
        ]

    def done(self, requests: Iterable[Request]) -> None:
        """Note letters as replayed, and forget the requests."""
        for request in requests:
            Replayed(self.values).add(request.ids)
            self.values.remove(request.name)

    def replayed(self) -> Replayed:
        """The letters that were replayed, and those that are about to be."""
        return _WithWaiting(self)

    @property
    def values(self) -> JobValues:
        """Where both are stored; a request needs no lease."""
        return JobValues(self.backend, self.job, NAMESPACE)


class _WithWaiting(Replayed):
    """Letters that were replayed or are requested."""

    def __init__(self, requests: Requests) -> None:
        super().__init__(requests.values)
        self._requests = requests

    def ids(self) -> list[str]:
        return [
            *super().ids(),
            *(letter_id for request in self._requests.waiting() for letter_id in request.ids),
        ]


@dataclass(frozen=True, slots=True)
class Letters:
    """The letters of one node: where they are, and the rows that come into the node."""

    node: NodeSpec
    store: LetterStore
    input: NodeOutput

    def rows(self, spark: SparkSession, ids: Sequence[str]) -> DataFrame:
        """The rows of letters."""
        stored = self.store.read(spark)
        chosen = stored.where(stored.id.isin(list(ids))).dropDuplicates(["id"])
        return dead_letter.rows(chosen, self.input.schema)

    def check(self, spark: SparkSession, ids: Sequence[str]) -> None:
        """Refuse letters that are no rows of the node any more: an epoch that takes them could never be done."""
        rows = self.rows(spark, ids)
        try:
            rows.write.format("noop").mode("overwrite").save()
        except Exception as error:
            with translated(where=str(self.node.place)):
                raise DataError(
                    f"letters of '{self.node.name}' do not fit the columns that come into it now",
                    code="PIPELINE_REPLAY",
                    where=str(self.node.place),
                    hint=f"they are {self.input.schema.simpleString()}; leave older letters out with --limit, "
                    "or change the types back",
                ) from error


@dataclass(slots=True)
class Replay:
    """Gives the epochs of one running group the letters that were requested."""

    requests: Requests
    letters: Mapping[str, Letters]
    """Of each node that may have some."""
    _spark: SparkSession | None = None
    _values: KeyValues | None = None
    _begun: int = -1
    _waiting: list[Request] = field(default_factory=list)
    _taken: tuple[int, frozenset[str]] | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether an epoch shall be made for letters."""
        return bool(self._waiting) and self._taken is None

    def open(self, target: Target) -> None:
        """Called before the first epoch of each run; requests that come later are seen by the next run."""
        self._spark, self._values, self._begun = target.spark, target.state, target.begun
        self._waiting = [request for request in self.requests.waiting() if request.node in self.letters]
        self._taken = None
        note = None if self._values is None else self._values.get(TAKEN)
        if note is not None:
            self._taken = (note["epoch"], frozenset(note["requests"]))
            self.finalize(target.committed)

    def rows(self, epoch: int) -> dict[str, DataFrame]:
        """The rows that come into nodes in an epoch, in addition to those of the nodes that they read."""
        if self._values is None or not self._waiting:
            return {}
        if self._taken is None and epoch > self._begun:
            names = [request.name for request in self._waiting]
            self._values.put(TAKEN, {"epoch": epoch, "requests": names})
            self._taken = (epoch, frozenset(names))
        if self._taken is None or self._taken[0] != epoch:
            return {}
        ids: dict[str, list[str]] = {}
        for request in self._of_epoch():
            ids.setdefault(request.node, []).extend(request.ids)
        assert self._spark is not None
        return {node: self.letters[node].rows(self._spark, ids[node]) for node in ids}

    def finalize(self, epoch: int) -> None:
        """An epoch, and all before it, are in the checkpoint."""
        if self._taken is None or self._taken[0] > epoch:
            return
        assert self._values is not None
        done = self._of_epoch()
        self.requests.done(done)
        self._values.remove(TAKEN)
        self._taken, self._waiting = None, [request for request in self._waiting if request not in done]

    def _of_epoch(self) -> list[Request]:
        names = frozenset() if self._taken is None else self._taken[1]
        return [request for request in self._waiting if request.name in names]


def are_done(backend: Backend, job: Job, requests: Iterable[Request]) -> bool:
    """Whether a committed epoch of a job has taken requests: its progress shows it before the next epoch removes them."""
    waiting = {request.name for request in Requests(backend, job.name).waiting()}
    left = waiting & {request.name for request in requests}
    taken = backend.state.get(job.name, TAKEN, namespace=SINK)
    batch = (job.progress or {}).get("batch_id", -1)
    if taken is not None and taken["epoch"] <= batch:
        left -= set(taken["requests"])
    return not left


def _split(ids: str) -> list[str]:
    return [ids[at : at + _ID] for at in range(0, len(ids), _ID)]
