"""The tasks of shards with threads in place of Spark."""

from __future__ import annotations

import random
import threading
from typing import Any

from penstock.spark.shards import worker
from penstock.spark.shards.executor import SparkShards
from penstock.spark.shards.worker import ShardGroup


class Threads(SparkShards):
    """A thread for each group of shards; what it held is often lost, and tasks die in the middle."""

    def __init__(
        self,
        shards: int,
        chance: random.Random,
        deaths: float,
        *,
        remote: bool = False,
        memory: int | None = None,
    ) -> None:
        super().__init__(lambda: Context(), shards, remote=remote, memory=memory)  # type: ignore[arg-type, return-value]
        self.chance, self.deaths, self.died, self.jobs = chance, deaths, 0, 0

    def _built(self, hub: Any) -> Any:
        address = (self._host, hub.port)
        return [
            ShardGroup(
                self._kernel, address, hub.secret, tuple(range(at, self.shards, 2)), self.shards, self._memory
            )
            for at in range(min(2, self.shards))
        ]

    def _run_job(self) -> None:
        self.jobs += 1
        threads = [threading.Thread(target=self._task, args=(group,)) for group in self._job]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def run_one(self) -> None:
        """The first task alone."""
        self._task(self._job[0])
        assert self._work is not None
        assert self._work.abandoned

    def _task(self, group: ShardGroup) -> None:
        while True:
            if self.chance.random() < self.deaths:
                # Another process, or an executor that has an older version.
                for number in group.numbers:
                    worker._LIVE.pop((group.kernel, number), None)
            try:
                list(worker.run_group(group, []))
                return
            except OSError:
                self.died += 1


class Context:
    """What is asked of Spark."""

    defaultParallelism = 2  # noqa: N815

    @property
    def sparkContext(self) -> Context:  # noqa: N802
        return self

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        """The tasks that wait hear it from the hub."""

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return {"spark.driver.host": "127.0.0.1"}
