"""What nodes remember: apart from each other, and stored when the lease is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.backend import Backend, open_backend, this_process
from penstock.backend.job_values import JobValues
from penstock.errors import StateError
from penstock.pipeline.values import SOURCES, GroupValues, PlannedValues
from penstock.plugin import Namespace, TransientValues


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        yield backend


@pytest.fixture(params=["job", "planned", "transient"])
def values(request: pytest.FixtureRequest, backend: Backend) -> Namespace:
    match request.param:
        case "job":
            return JobValues(backend, "p", SOURCES)
        case "planned":
            return PlannedValues({})
    return TransientValues()


def test_nodes_do_not_see_each_other(values: Namespace) -> None:
    left, right = values.within("a"), values.within("a.b")
    values.put("n", 0)
    left.put("n", 1)
    right.put("n", 2)
    assert (values.get("n"), left.get("n"), right.get("n"), left.get("m", 7)) == (0, 1, 2, 7)
    left.put("m", 1)
    left.remove("m")
    left.remove("never there")
    assert left.get("m") is None
    left.clear()
    assert (values.get("n"), left.get("n"), right.get("n")) == (0, None, 2)
    values.clear()
    assert right.get("n") is None


def test_a_value_is_one_write(backend: Backend) -> None:
    node = JobValues(backend, "p", "sink").within("a")
    for number in range(20):
        node.put(f"order-{number}", number)
    assert len(backend.state.items("p")) == 20


def _stored(backend: Backend) -> dict[tuple[str, str], object]:
    return backend.state.items("p", namespace=SOURCES)


def _store(backend: Backend, values: GroupValues) -> None:
    lease = backend.leases.acquire("p", this_process("s"))
    try:
        values.store(JobValues(backend, "p", SOURCES, lease))
    finally:
        backend.leases.release(lease)


def test_what_is_planned_is_stored_with_the_lease(backend: Backend) -> None:
    values = GroupValues.of(_stored(backend), begins=True)
    values.planned.within("orders").put("boundary", {"cursor": "7"})
    assert _stored(backend) == {}
    _store(backend, values)
    assert _stored(backend) == {(f"{SOURCES}/orders", "boundary"): {"cursor": "7"}}
    again = GroupValues.of(_stored(backend), begins=False)
    assert again.planned.within("orders").get("boundary") == {"cursor": "7"}
    _store(backend, again)


def test_a_group_that_begins_forgets_what_was_fixed_before(backend: Backend) -> None:
    JobValues(backend, "p", SOURCES).put("history_done", True)
    JobValues(backend, "p", "sink").put("n", 1)
    values = GroupValues.of(_stored(backend), begins=True)
    assert values.planned.get("history_done") is None
    _store(backend, values)
    assert backend.state.items("p") == {("sink", "n"): 1}


def test_of_two_that_plan_a_first_start_the_second_is_refused(backend: Backend) -> None:
    first, second = (GroupValues.of(_stored(backend), begins=True) for _ in range(2))
    first.planned.put("boundary", 1)
    second.planned.put("boundary", 2)
    _store(backend, first)
    with pytest.raises(StateError) as caught:
        _store(backend, second)
    assert caught.value.code == "PIPELINE_PLANNED"
    assert _stored(backend) == {(SOURCES, "boundary"): 1}
