"""`penstock replay` while another process runs the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.backend import Backend, Heartbeat, Job, JobState, Lease, open_backend, this_process
from penstock.cli.commands.replay import _let_take
from penstock.errors import StateError
from penstock.pipeline.replay import Requests


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with open_backend(f"sqlite:///{tmp_path}/state.db") as opened:
        yield opened


@pytest.fixture
def lease(backend: Backend) -> Lease:
    """That of a pipeline that somebody runs."""
    lease = backend.leases.acquire("shop", this_process("another"), ttl_ms=3_000)
    backend.jobs.record(Job("shop", kind="pipeline"), lease)
    backend.jobs.update(lease, state=JobState.RUNNING)
    return lease


def test_it_says_how_a_pipeline_ended_that_did_not_take_its_letters(backend: Backend, lease: Lease) -> None:
    requests = Requests(backend, "shop")
    requests.add("parse", ["a" * 32])

    def fail(_: str) -> None:
        backend.jobs.update(lease, state=JobState.FAILED, message="the disk is full")

    with (
        Heartbeat(backend, lease, on_lost=lambda _: None, on_request=fail),
        pytest.raises(StateError, match="'shop' is FAILED: the disk is full") as raised,
    ):
        _let_take(backend, backend.jobs.get("shop"), requests.waiting(), 30)
    assert (raised.value.code, raised.value.hint) == (
        "PIPELINE_REPLAY",
        "its next run takes the letters that were asked for",
    )
    assert len(requests.waiting()) == 1


def test_it_does_not_wait_for_ever(backend: Backend, lease: Lease) -> None:
    requests = Requests(backend, "shop")
    requests.add("parse", ["a" * 32])
    with pytest.raises(StateError, match="has not taken its dead letters within"):
        _let_take(backend, backend.jobs.get("shop"), requests.waiting(), 0.1)
    assert len(requests.waiting()) == 1
