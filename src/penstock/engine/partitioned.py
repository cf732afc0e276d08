"""`PartitionedIncrementalFlow`: a flow whose rows and views are in shards, which Spark's executors step."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

from penstock.circuit.kernel import Kernel
from penstock.circuit.sharded import ShardedKernel
from penstock.config import Settings
from penstock.data.byte_size import byte_size
from penstock.data.hashing import MOST_SHARDS
from penstock.engine.directory import CHECKPOINT_EVERY
from penstock.engine.durability import Durability, Sync
from penstock.engine.flow import IncrementalFlow
from penstock.engine.session import Session
from penstock.errors import ConfigError
from penstock.spark.boot.defaults import DEFAULT_MASTER, is_local
from penstock.spark.shards.executor import SparkShards


class PartitionedIncrementalFlow(IncrementalFlow):
    """An `IncrementalFlow` in shards: the same methods and the same answers, with one Spark job per tick.

    >>> flow = PartitionedIncrementalFlow(session, shards=8)                   # doctest: +SKIP
    >>> flow.register_source("orders", "customer BIGINT, amount DECIMAL(10,2)")

    Every shard has the rows whose keys it has by their hash, in the memory of a Python worker; rows that an operator
    must see together travel between shards inside the job. On a cluster the flow needs `durability="shared"`.
    """

    def __init__(
        self,
        session: Session | None = None,
        *,
        shards: int | None = None,
        name: str | None = None,
        clock: Callable[[], int] | None = None,
        path: str | os.PathLike[str] | None = None,
        durability: Durability | None = None,
        sync: Sync = "tick",
        checkpoint_every: int = CHECKPOINT_EVERY,
        shared_disk: bool = False,
        memory: int | str | None = None,
    ) -> None:
        """Make a flow of so many shards, without a number as many as this machine has cores, or open the one in the
        flow directory `path`.

        A flow that was saved on another number of shards, or without, is brought onto this one. The other arguments
        are those of `IncrementalFlow`; of the bytes of `memory` every shard has an equal part, with scratch files
        where the temporary files of its worker are.
        """
        self.shards = _checked(shards)
        self._memory_of_shards = memory
        super().__init__(
            session,
            name=name,
            clock=clock,
            path=path,
            durability=durability,
            sync=sync,
            checkpoint_every=checkpoint_every,
            shared_disk=shared_disk,
        )

    def _kernels(self, settings: Settings, durability: Durability) -> Callable[[], Kernel]:
        return shard_kernels(
            lambda: self.session,
            settings,
            shards=self.shards,
            durability=durability,
            memory=self._memory_of_shards,
        )

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        session: Session | None = None,
        *,
        clock: Callable[[], int] | None = None,
        memory: int | str | None = None,
        shards: int | None = None,
    ) -> Self:
        """Return the flow of the newest checkpoint, or of the full one, in a folder or at a prefix of an object
        store, on so many shards."""
        flow = cls(session, shards=shards, clock=clock, memory=memory)
        try:
            flow.restore(path)
        except BaseException:
            flow.close()
            raise
        return flow

    @classmethod
    def from_definition(
        cls,
        text: str,
        session: Session | None = None,
        *,
        clock: Callable[[], int] | None = None,
        memory: int | str | None = None,
        shards: int | None = None,
    ) -> Self:
        """Build an empty flow from what `definition()` gave, on so many shards."""
        return cls._of_definition(text, partial(cls, session, shards=shards, clock=clock, memory=memory))

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        session: Session | None = None,
        *,
        memory: int | str | None = None,
    ) -> Self:
        """Not for flows in shards: `IncrementalFlow.read` reads their directories, too."""
        raise ConfigError(
            f"'{Path(path)}' is read in this process, whatever the number of its shards",
            code="FLOW_SHARDS",
            hint="take IncrementalFlow.read(path)",
        )


def shard_kernels(
    session: Callable[[], Session],
    settings: Settings,
    *,
    shards: int | None,
    durability: Durability,
    memory: int | str | None = None,
) -> Callable[[], Kernel]:
    """Return what makes kernels in so many shards; ConfigError when a flow of this durability cannot have them where
    Spark runs."""
    count = _checked(shards)
    size = None if memory is None else byte_size(memory, what="memory")
    master = _master(settings)
    _require_shared(durability, master)
    return lambda: ShardedKernel(
        SparkShards(lambda: session().spark, count, remote=not is_local(master), memory=size)
    )


def _checked(shards: int | None) -> int:
    if shards is None:
        return len(os.sched_getaffinity(0))
    if not isinstance(shards, int) or isinstance(shards, bool) or not 1 <= shards <= MOST_SHARDS:
        raise ConfigError(
            f"a flow has 1 to {MOST_SHARDS:,} shards, not {shards!r}",
            code="FLOW_SHARDS",
            hint="take as many as the executors have cores, or a few times as many",
        )
    return shards


def _master(settings: Settings) -> str:
    return settings.master or settings.conf.get("spark.master") or DEFAULT_MASTER


def _require_shared(durability: Durability, master: str) -> None:
    if durability != "shared" and not is_local(master):
        raise ConfigError(
            f"Spark runs on {master}, and a flow with durability '{durability}' is on this machine alone",
            code="FLOW_DURABILITY",
            hint="take storage that all nodes reach: PartitionedIncrementalFlow(session, "
            'path="s3://bucket/flows/orders", durability="shared")',
        )
