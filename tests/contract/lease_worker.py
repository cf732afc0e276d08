"""A process that runs a job as badly as it can: it goes on writing after it has lost its lease, until the fence stops it.

    python -m contract.lease_worker URL WORKER CLOCK_SKEW

Each turn it writes twice: a row without a fence, which shows what a late writer does, and then a counter behind the fence. The
counter is read and written back apart from each other, so that two writers at one time would lose counts.
"""

from __future__ import annotations

import os
import sys
import time

from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, insert, select, update

from penstock.backend import Backend, Heartbeat, Lease, open_backend, this_process
from penstock.errors import ConnectorError, StateError

JOB = "contended"
TTL_MS = 400

tables = MetaData()
counter = Table("counter", tables, Column("n", Integer, nullable=False))
fenced = Table("fenced", tables, Column("n", Integer), Column("epoch", BigInteger), Column("worker", Integer))
unfenced = Table(
    "unfenced",
    tables,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("epoch", BigInteger),
)


def write(backend: Backend, lease: Lease, worker: int) -> None:
    """One turn of the job."""
    with backend.transaction() as connection:
        connection.execute(insert(unfenced).values(epoch=lease.epoch))
    with backend.transaction() as connection:
        backend.leases.fence(connection, lease)
        n = connection.execute(select(counter.c.n)).scalar_one()
        time.sleep(0.01)
        connection.execute(insert(fenced).values(n=n, epoch=lease.epoch, worker=worker))
        connection.execute(update(counter).values(n=n + 1))


def main() -> None:
    url, worker, skew = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    real = time.time
    time.time = lambda: real() + skew
    with open_backend(url, create=False) as backend:
        parent = os.getppid()
        while os.getppid() == parent:
            try:
                lease = backend.leases.acquire(JOB, this_process(), ttl_ms=TTL_MS, wait_ms=60_000)
                with Heartbeat(backend, lease, on_lost=lambda _: None):
                    while os.getppid() == parent:
                        write(backend, lease, worker)
                        time.sleep(0.005)
            except StateError as error:
                if error.code != "STATE_LEASE_LOST":
                    raise
            except ConnectorError as error:
                if error.code != "STATE_LOCKED":
                    raise


if __name__ == "__main__":
    main()
