"""What `penstock plan` says about sources: those that are read again, that are gone, and what stays of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.backend import Backend, Job, open_backend, this_process
from penstock.pipeline.changes import NodeChange, changes, fingerprints, is_changed
from penstock.pipeline.group_name import GROUP, NODES, OUTSIDE, job_name
from penstock.pipeline.source_change import SourceChange, SourceChanges
from pipeline_text import check_text

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


def _group(name: str, *nodes: str, found: SourceChanges = SAME) -> Any:
    return SimpleNamespace(
        name=name, nodes=dict.fromkeys(nodes), source_changes=found, views=(), left_views=[]
    )


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with open_backend(f"sqlite:///{tmp_path}/state.db") as backend:
        known = fingerprints(_spec())
        for group, nodes in {"orders": ("orders", "out"), "clicks": ("clicks", "clicked")}.items():
            record = {GROUP: group, NODES: {name: known[name] for name in nodes}}
            record[OUTSIDE] = {group: f"replication slot {group}"}
            lease = backend.leases.acquire(job_name("shop", group), this_process("s"))
            backend.jobs.record(Job(lease.job, kind="pipeline", definition=record), lease)
        yield backend


def _states(found: list[NodeChange] | None) -> dict[str, tuple[str, str | None, str, bool]]:
    assert found is not None
    return {one.node: (one.change, one.state, one.reason, one.loses_rows) for one in found}


def test_a_pipeline_that_has_not_run(backend: Backend) -> None:
    assert changes(_spec(TEXT.replace("shop", "other")), [], backend) is None
    assert changes(_spec(), [], None) is None


def test_a_group_that_is_gone_leaves_its_slot(backend: Backend) -> None:
    lines = [line for line in TEXT.splitlines() if "click" not in line]
    found = changes(_spec("\n".join(lines)), [_group("orders", "orders", "out")], backend)
    assert _states(found) == {
        "orders": ("unchanged", None, "", False),
        "out": ("unchanged", None, "", False),
        "clicks": (
            "dropped",
            "left",
            "its replication slot clicks and state stay until penstock state reset shop/clicks",
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
    group = _group("orders", "orders", "clicks", "out", "clicked", found=found)
    told = _states(changes(_spec(), [group], backend))
    beginning = "it is read from its beginning"
    assert told["orders"][1:] == ("read again", f"another table: {beginning}", True)
    assert told["clicks"][1:] == ("new", f"it was read in the group 'shop/clicks': {beginning}", True)
    assert told["old"] == ("dropped", "dropped", "how far it was read is forgotten", True)


def test_a_job_of_another_file(backend: Backend) -> None:
    job = backend.jobs.get("shop/orders")
    assert not is_changed(_spec(), job)
    assert is_changed(
        _spec(TEXT.replace("orders: {type: rate}", "orders: {type: rate, rows_per_second: 9}")), job
    )
