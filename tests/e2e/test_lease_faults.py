"""Leases between processes that are paused, killed and started twice, on both databases."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from contract.backend import until
from contract.lease_worker import JOB, TTL_MS, counter, fenced, tables, unfenced
from penstock.backend import Backend, JobState, open_backend
from seed import SEED
from servers.postgres import Postgres

Start = Callable[..., "subprocess.Popen[str]"]
TESTS = Path(__file__).parents[1]


@pytest.fixture(params=["sqlite", "postgresql"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/state.db"
    else:
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_database()
    with open_backend(url) as opened:
        yield opened


@pytest.fixture
def start(backend: Backend, tmp_path: Path) -> Iterator[Start]:
    """Start Python programs on the backend; whatever is left of them at the end is killed."""
    started: list[subprocess.Popen[str]] = []
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])

    def begin(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": path,
                "PENSTOCK_STATE": backend.url,
                "PENSTOCK_HOME": str(tmp_path),
            },
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("pauses", [8, pytest.param(300, marks=pytest.mark.soak)])
def test_fenced_writes_exclude_each_other_whatever_is_paused(
    backend: Backend, start: Start, pauses: int
) -> None:
    with backend.transaction() as connection:
        tables.create_all(connection)
        connection.execute(insert(counter).values(n=0))
    day = 86_400
    workers = [
        start("-m", "contract.lease_worker", backend.url, str(worker), str(skew))
        for worker, skew in enumerate((-day, 0, day))
    ]
    chance = random.Random(SEED)
    until(lambda: _written(backend) > 5, seconds=30)
    done = 0
    # On a busy machine a pause may end before another worker has taken the lease: then there is one more.
    while done < pauses or not _provoked(backend, pauses):
        done += 1
        assert done <= 10 * pauses, "no pause made a writer late"
        owner = _owner(backend)
        os.kill(owner, signal.SIGSTOP)
        time.sleep(TTL_MS / 1000 * chance.uniform(1.5, 3))
        os.kill(owner, signal.SIGCONT)
        until(partial(_has_written, backend, more_than=_written(backend) + 5), seconds=30)
    assert [worker.poll() for worker in workers] == [None, None, None], [
        w.communicate() for w in workers if w.poll()
    ]
    for worker in workers:
        worker.kill()
        worker.wait()
    with backend.reading() as connection:
        rows = connection.execute(select(fenced).order_by(fenced.c.n)).all()
        count = connection.execute(select(counter.c.n)).scalar_one()
    assert [row.n for row in rows] == list(range(count))
    assert all(before.epoch <= after.epoch for before, after in pairwise(rows))
    owners = {(row.epoch, row.worker) for row in rows}
    assert len({epoch for epoch, _ in owners}) == len(owners)


def _provoked(backend: Backend, pauses: int) -> bool:
    """Whether the pauses provoked what the fence is for: many holders, and a writer that was late."""
    with backend.reading() as connection:
        epochs = connection.execute(select(unfenced.c.epoch).order_by(unfenced.c.id)).scalars().all()
        holders = set(connection.execute(select(fenced.c.epoch)).scalars())
    return len(holders) > pauses // 2 and any(before > after for before, after in pairwise(epochs))


def _written(backend: Backend) -> int:
    with backend.reading() as connection:
        return int(connection.execute(select(counter.c.n)).scalar_one())


def _has_written(backend: Backend, *, more_than: int) -> bool:
    return _written(backend) > more_than


def _owner(backend: Backend) -> int:
    def active() -> bool:
        lease = backend.leases.get(JOB)
        return lease is not None and lease.active

    until(active)
    lease = backend.leases.get(JOB)
    assert lease is not None
    return lease.owner.pid


RUNS = """
import sys, time
from penstock import config
from penstock.backend import *
from penstock.errors import PenstockError
backend = open_backend(config.load())
try:
    lease = backend.leases.acquire("orders", this_process(), ttl_ms=5000)
except PenstockError as error:
    print(error.code, error.message, flush=True)
    sys.exit(1)
backend.jobs.record(Job("orders"), lease)
backend.jobs.update(lease, state=JobState.RUNNING)
with Heartbeat(backend, lease, on_lost=lambda error: print(error.code, flush=True)):
    print("runs", lease.epoch, flush=True)
    time.sleep(600)
"""


@pytest.mark.smoke
def test_of_two_that_start_at_once_one_runs(backend: Backend, start: Start) -> None:
    both = [start("-c", RUNS) for _ in range(2)]
    said = [_line(process) for process in both]
    assert sorted(line.split()[0] for line in said) == ["STATE_LEASE_HELD", "runs"]
    winner = both[0] if said[0].startswith("runs") else both[1]
    refused = next(line for line in said if not line.startswith("runs"))
    assert f"process {winner.pid} on " in refused


def test_a_killed_process_leaves_a_lost_job_that_can_be_started_again(backend: Backend, start: Start) -> None:
    first = start("-c", RUNS)
    assert _line(first) == "runs 1\n"
    assert backend.jobs.get("orders").state is JobState.RUNNING
    first.kill()
    first.wait()
    # This start waits for the lease of the dead process to end.
    second = start("-c", RUNS)
    assert _line(second) == "runs 2\n"
    assert backend.jobs.get("orders").state is JobState.RUNNING
    second.kill()
    second.wait()
    until(lambda: backend.jobs.get("orders").state is JobState.LOST)


def test_a_process_that_wakes_up_late_stops_at_once(backend: Backend, start: Start) -> None:
    first = start("-c", RUNS)
    assert _line(first) == "runs 1\n"
    os.kill(first.pid, signal.SIGSTOP)
    until(lambda: backend.jobs.get("orders").state is JobState.LOST)
    second = start("-c", RUNS)
    assert _line(second) == "runs 2\n"
    os.kill(first.pid, signal.SIGCONT)
    assert _line(first) == "STATE_LEASE_LOST\n"
    assert first.poll() is None  # it has not slept its ten minutes
    assert backend.jobs.get("orders").state is JobState.RUNNING


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return line
