"""What `penstock plan` says about sources: those that are read again, that are gone, and what stays of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.backend import Backend, Job, open_backend, this_process
from penstock.backend.job_values import JobValues
from penstock.pipeline.changes import NodeChange, changes, fingerprints, is_changed
from penstock.pipeline.group_name import GROUP, NODES, job_name
from penstock.pipeline.load import check_text
from penstock.pipeline.outside import OUTSIDE, Note, left_behind, note_resources, notes
from penstock.pipeline.source_change import SourceChange, SourceChanges
from penstock.sources.base import ExternalResource

TEXT = """
name: shop
sources:
  orders: {type: rate}
  clicks: {type: rate}
sinks:
  out: {type: blackhole, from: orders}
  clicked: {type: blackhole, from: clicks}
"""

SAME = SourceChanges()


def _spec(text: str = TEXT) -> Any:
    spec = check_text(text, "shop.yaml").spec
    assert spec is not None
    return spec


def _slot(name: str) -> ExternalResource:
    return ExternalResource(f"replication slot {name}", "postgres_cdc", "db:5432/shop", {"slot": name})


def _group(
    name: str, *nodes: str, found: SourceChanges = SAME, slots: Mapping[str, str] | None = None
) -> Any:
    """A planned group; `slots` are those that its sources make."""
    sources = [
        SimpleNamespace(
            node=SimpleNamespace(name=node), source=SimpleNamespace(external_resource=_slot(slot))
        )
        for node, slot in (slots or {}).items()
    ]
    return SimpleNamespace(
        name=name, nodes=dict.fromkeys(nodes), source_changes=found, views=(), left_views=[], sources=sources
    )


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        known = fingerprints(_spec())
        for group, nodes in {"orders": ("orders", "out"), "clicks": ("clicks", "clicked")}.items():
            record = {GROUP: group, NODES: {name: known[name] for name in nodes}}
            lease = backend.leases.acquire(job_name("shop", group), this_process("s"))
            backend.jobs.record(Job(lease.job, kind="pipeline", definition=record), lease)
            made = [Note(group, _slot(group))]
            note_resources(JobValues(backend, lease.job, OUTSIDE), made, everywhere=made)
        yield backend


def _states(found: list[NodeChange] | None) -> dict[str, tuple[str, str | None, str, bool]]:
    assert found is not None
    return {one.node: (one.change, one.state, one.reason, one.loses_rows) for one in found}


def test_a_pipeline_that_has_not_run(backend: Backend) -> None:
    assert changes(_spec(TEXT.replace("shop", "other")), [], backend) is None
    assert changes(_spec(), [], None) is None


def test_a_group_that_is_gone_leaves_its_slot(backend: Backend) -> None:
    lines = [line for line in TEXT.splitlines() if "click" not in line]
    kept = _group("orders", "orders", "out", slots={"orders": "orders"})
    found = changes(_spec("\n".join(lines)), [kept], backend)
    assert _states(found) == {
        "orders": ("unchanged", None, "", False),
        "out": ("unchanged", None, "", False),
        "clicks": (
            "dropped",
            "left",
            "its state stays until penstock state reset shop/clicks; "
            "the replication slot clicks at db:5432/shop stays until penstock state reset shop/clicks",
            False,
        ),
        "clicked": ("dropped", None, "", False),
    }


def test_sources_that_are_read_again(backend: Backend) -> None:
    found = SourceChanges(
        (
            SourceChange("orders", "changed", "another table"),
            SourceChange("clicks", "new", "it was read in the group 'shop/clicks'"),
            SourceChange("old", "dropped"),
        )
    )
    slots = {"orders": "orders", "clicks": "clicks"}
    group = _group("orders", "orders", "clicks", "out", "clicked", found=found, slots=slots)
    told = _states(changes(_spec(), [group], backend))
    beginning = "it is read from its beginning"
    assert told["orders"][1:] == ("read again", f"another table: {beginning}", True)
    assert told["clicks"][1:] == ("new", f"it was read in the group 'shop/clicks': {beginning}", True)
    assert told["old"] == ("dropped", "dropped", "how far it was read is forgotten", True)


def test_a_source_that_is_gone_from_a_group_leaves_its_slot(backend: Backend) -> None:
    values = JobValues(backend, "shop/orders", OUTSIDE)
    now = [Note("orders", _slot("orders")), Note("old", _slot("old"))]
    note_resources(values, now, everywhere=now)
    dropped = SourceChanges((SourceChange("old", "dropped"),))
    made = {"orders": "orders", "clicks": "clicks"}
    nodes = ("orders", "clicks", "out", "clicked")
    group = _group("orders", *nodes, found=dropped, slots=made)
    command = "the replication slot old at db:5432/shop stays until penstock state reset shop --source old"
    told = _states(changes(_spec(), [group], backend))
    assert told["old"] == ("dropped", "dropped", f"how far it was read is forgotten; {command}", True)
    # A run without it notes that it is left, and forgets it no more; what another group makes is noted there.
    note_resources(values, now[:1], everywhere=[*now[:1], Note("clicks", _slot("clicks"))])
    assert {note.node: note.is_left for note in notes(backend, "shop/orders")} == {
        "orders": False,
        "old": True,
    }
    told = _states(changes(_spec(), [_group("orders", *nodes, slots=made)], backend))
    assert told["old"] == ("dropped", "left", command, False)


def test_another_slot_of_a_source_leaves_the_first(backend: Backend) -> None:
    change = SourceChanges((SourceChange("orders", "changed", "another slot"),))
    groups = [
        _group("orders", "orders", "out", found=change, slots={"orders": "mine"}),
        _group("clicks", "clicks", "clicked", slots={"clicks": "clicks"}),
    ]
    told = _states(changes(_spec(), groups, backend))
    assert told["orders"][2] == (
        "another slot: it is read from its beginning; the replication slot orders at db:5432/shop stays until "
        "penstock state reset shop --source orders"
    )
    [(note, command)] = left_behind("shop", {"orders": "shop/orders"}, groups, backend)
    assert (str(note), command) == (
        "replication slot orders at db:5432/shop of 'orders'",
        "penstock state reset shop --source orders",
    )


def test_a_source_that_moved_to_another_group_leaves_nothing(backend: Backend) -> None:
    both = _group(
        "orders",
        "orders",
        "clicks",
        "out",
        "clicked",
        slots={"orders": "orders", "clicks": "clicks"},
    )
    jobs = {"orders": "shop/orders", "clicks": "shop/clicks"}
    assert left_behind("shop", jobs, [both], backend) == []


def test_a_job_of_another_file(backend: Backend) -> None:
    job = backend.jobs.get("shop/orders")
    assert not is_changed(_spec(), job)
    assert is_changed(
        _spec(TEXT.replace("orders: {type: rate}", "orders: {type: rate, rows_per_second: 9}")), job
    )
