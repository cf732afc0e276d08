"""Flows in shards inside Spark tasks: the answers of a plain flow, one job per tick, lost workers, restarts, other numbers of shards."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.circuit.sharded import ShardedKernel
from penstock.spark.daemon import VARIABLE
from penstock.spark.shards.executor import SparkShards

VIEWS = {
    "totals": "SELECT customer, SUM(amount) AS total, COUNT(*) AS n, AVG(rate) AS r FROM orders GROUP BY customer",
    "named": "SELECT o.id, c.name, o.amount FROM orders o LEFT JOIN customers c ON o.customer = c.id",
    "by_name": "SELECT name, SUM(amount) AS total, SUM(rate) AS rates FROM orders o JOIN customers c ON o.customer = c.id GROUP BY name",
    "everything": "SELECT COUNT(*) AS n, SUM(amount) AS total, MAX(rate) AS most FROM orders",
    "above": "SELECT id FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)",
    "top": "SELECT * FROM totals ORDER BY total DESC, customer LIMIT 3",
    "ranked": "SELECT id, customer, RANK() OVER (PARTITION BY customer ORDER BY amount DESC) AS place FROM orders",
    "missing": "SELECT id FROM orders WHERE customer NOT IN (SELECT id FROM customers)",
    "both": "SELECT customer AS k FROM orders UNION ALL SELECT id FROM customers",
    "spoken": "SELECT id, soundex(name) AS s FROM customers",
    "labelled": "SELECT o.id, l.label FROM orders o JOIN labels l ON o.customer = l.customer",
    "empty": "SELECT o.id FROM orders o JOIN nothing n ON o.id = n.id",
}


def declare(flow: ps.IncrementalFlow) -> None:
    flow.register_source(
        "orders", "id BIGINT, customer BIGINT, amount DECIMAL(10,2), rate DOUBLE", primary_key="id"
    )
    flow.register_source("customers", "id BIGINT, name STRING")
    flow.register_source("nothing", "id BIGINT")


def order(at: int, customer: int | None, amount: int) -> dict[str, Any]:
    return {"id": at, "customer": customer, "amount": Decimal(amount), "rate": amount / 7}


TICKS: Sequence[tuple[str, Any]] = [
    ("customers", [{"id": at, "name": f"n{at % 3}"} for at in range(5)]),
    ("orders", [order(at, at % 4 if at % 6 else None, at * 10) for at in range(40)]),
    # One customer has most of the orders.
    ("orders", [order(100 + at, 2, at) for at in range(30)]),
    ("orders", [order(3, 1, 999), order(4, None, 1)]),
    ("orders", ps.DeltaBatch.deletes([order(5, 1, 50), order(6, None, 60)])),
    ("customers", ps.DeltaBatch.updates([{"id": 2, "name": "n2"}], [{"id": 2, "name": "other"}])),
]


def answers(flow: ps.IncrementalFlow) -> dict[str, Counter[str]]:
    names = (*flow._graph.views, *flow._graph.sources)
    return {name: Counter(map(str, flow.snapshot(name).to_pylist())) for name in names}


def shards_of(flow: ps.IncrementalFlow) -> SparkShards:
    kernel = flow._graph.kernel
    assert isinstance(kernel, ShardedKernel)
    executor = kernel._executor
    assert isinstance(executor, SparkShards)
    return executor


def workers(flow: ps.IncrementalFlow) -> list[int]:
    """The Python workers of a flow: those that were forked by a daemon of its own."""
    own = {pid for pid, text in _environments() if f"{VARIABLE}={shards_of(flow)._kernel}".encode() in text}
    return [pid for pid in own if _parent(pid) in own]


def _environments() -> Iterator[tuple[int, bytes]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), (entry / "environ").read_bytes()
            except OSError:
                continue


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def jobs(session: ps.Session, flow: ps.IncrementalFlow) -> int:
    return len(session.spark.sparkContext.statusTracker().getJobIdsForGroup(shards_of(flow)._kernel))


@pytest.fixture
def labels(session: ps.Session) -> Iterator[None]:
    session.spark.createDataFrame(
        [(1, "one"), (2, "two")], "customer BIGINT, label STRING"
    ).createOrReplaceTempView("labels")
    yield
    session.spark.catalog.dropTempView("labels")


def test_answers_jobs_and_lost_workers(session: ps.Session, labels: None) -> None:
    plain = ps.IncrementalFlow(session, clock=lambda: 0)
    with ps.PartitionedIncrementalFlow(session, shards=3, clock=lambda: 0) as flow:
        for one in (plain, flow):
            declare(one)
            for name, query in VIEWS.items():
                assert one.register_view(name, query).tier in ("kernel", "spark", "recompute")
        watch = flow.watch_output("by_name")
        for at, (source, change) in enumerate(TICKS):
            before = jobs(session, flow)
            expected = plain.tick(source, change)
            if at == 3:
                for pid in workers(flow):
                    os.kill(pid, signal.SIGKILL)
            summary = flow.tick(source, change)
            if at != 3:
                assert jobs(session, flow) == before + 1
            assert (summary.rows_in, summary.rows_out) == (expected.rows_in, expected.rows_out)
            for name, step in summary.views.items():
                assert (step.inserted, step.retracted) == (
                    expected.views[name].inserted,
                    expected.views[name].retracted,
                )
        assert answers(flow) == answers(plain)
        assert flow.snapshot("top").to_pylist() == plain.snapshot("top").to_pylist()
        assert flow.lookup("totals", customer=2).to_pylist() == plain.lookup("totals", customer=2).to_pylist()
        assert watch.recv(timeout=0) is not None
        # A tick that one shard refuses is made by none, and is fed again.
        with pytest.raises(ps.DataError):
            flow.tick("customers", ps.DeltaBatch.deletes([{"id": 0, "name": "n0"}, {"id": 77, "name": "x"}]))
        assert answers(flow) == answers(plain)
        for one in (plain, flow):
            one.tick("customers", ps.DeltaBatch.deletes([{"id": 0, "name": "n0"}]))
        assert answers(flow) == answers(plain)


def test_a_worker_that_dies_in_a_tick(session: ps.Session) -> None:
    """It is killed when it has done its part, and before it hears that the tick is final."""
    plain = ps.IncrementalFlow(session, clock=lambda: 0)
    with ps.PartitionedIncrementalFlow(session, shards=2, clock=lambda: 0) as flow:
        for one in (plain, flow):
            declare(one)
            one.register_view("totals", VIEWS["totals"])
            one.register_view("by_name", VIEWS["by_name"])
            one.tick("customers", [{"id": at, "name": f"n{at % 3}"} for at in range(5)])
        append = flow._runner.journal.append

        def killing(event: Any) -> None:
            append(event)
            for pid in workers(flow):
                os.kill(pid, signal.SIGKILL)

        flow._runner.journal.append = killing  # type: ignore[method-assign]
        for at in range(2):
            for one in (plain, flow):
                one.tick("orders", [order(at * 10 + each, each % 5, each) for each in range(10)])
        del flow._runner.journal.append
        assert answers(flow) == answers(plain)
        for one in (plain, flow):
            one.tick("orders", [order(1, 4, 7)])
        assert answers(flow) == answers(plain)


def test_a_directory_is_opened_again_on_other_shards(session: ps.Session, tmp_path: Path) -> None:
    plain = ps.IncrementalFlow(session, clock=lambda: 0)
    path = tmp_path / "flow"
    kept = ("totals", "by_name", "top", "everything")
    declared = False
    for shards, ticks in ((2, TICKS[:2]), (2, TICKS[2:3]), (3, TICKS[3:4]), (1, TICKS[4:5])):
        with ps.PartitionedIncrementalFlow(
            session, shards=shards, path=path, checkpoint_every=1, clock=lambda: 0
        ) as flow:
            for one in (plain, flow) if not declared else ():
                declare(one)
                for name in kept:
                    one.register_view(name, VIEWS[name])
            declared = True
            assert answers(flow) == answers(plain)
            for source, change in ticks:
                plain.tick(source, change)
                flow.tick(source, change)
            assert answers(flow) == answers(plain)
            assert flow.explain("totals").durability == "local"
    # In one process, to look at it and to go on.
    read = ps.IncrementalFlow.read(path, session)
    assert answers(read) == answers(plain)
    read.close()
    with ps.IncrementalFlow(session, path=path, clock=lambda: 0) as local:
        for one in (plain, local):
            one.tick(*TICKS[5])
        assert answers(local) == answers(plain)
        assert local.snapshot("totals", at_tick=local.ticks()[-2]).num_rows > 0


def test_an_opened_directory_makes_the_ticks_of_its_log_in_one_job(
    session: ps.Session, tmp_path: Path
) -> None:
    kept = ("totals", "spoken")
    with ps.PartitionedIncrementalFlow(session, shards=2, path=tmp_path / "flow", clock=lambda: 0) as flow:
        declare(flow)
        for name in kept:
            flow.register_view(name, VIEWS[name])
        for source, change in TICKS:
            flow.tick(source, change)
        before = answers(flow)
    with ps.PartitionedIncrementalFlow(session, shards=2, path=tmp_path / "flow", clock=lambda: 0) as flow:
        assert jobs(session, flow) == len(kept) + 1
        assert answers(flow) == before
        for pid in workers(flow):
            os.kill(pid, signal.SIGKILL)
        flow.tick("orders", [order(1000, 2, 1)])
        assert flow.snapshot("orders").num_rows == sum(before["orders"].values()) + 1


def test_checkpoints_go_from_a_plain_flow_to_shards_and_back(session: ps.Session, tmp_path: Path) -> None:
    plain = ps.IncrementalFlow(session, clock=lambda: 0)
    declare(plain)
    for name in ("totals", "named", "top"):
        plain.register_view(name, VIEWS[name])
    for source, change in TICKS[:3]:
        plain.tick(source, change)
    plain.checkpoint(tmp_path / "plain")
    plain.checkpoint_full(tmp_path / "full")
    for folder in ("plain", "full"):
        with ps.PartitionedIncrementalFlow.load(
            tmp_path / folder, session, shards=2, clock=lambda: 0
        ) as flow:
            assert answers(flow) == answers(plain)
            flow.tick(*TICKS[3])
            flow.checkpoint_full(tmp_path / f"{folder} again")
    plain.tick(*TICKS[3])
    again = ps.IncrementalFlow.load(tmp_path / "full again", session)
    assert answers(again) == answers(plain)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"shards": 0}, "FLOW_SHARDS"),
        ({"shards": 70_000}, "FLOW_SHARDS"),
        ({"shards": 2, "memory": "much"}, "CONFIG_SIZE"),
    ],
)
def test_what_is_refused(session: ps.Session, options: dict[str, Any], code: str) -> None:
    with pytest.raises(ps.ConfigError) as caught:
        ps.PartitionedIncrementalFlow(session, **options)
    assert caught.value.code == code


def test_views_are_not_recomputed_in_shards(session: ps.Session) -> None:
    with ps.PartitionedIncrementalFlow(session, shards=2) as flow, pytest.raises(ps.StateError) as caught:
        flow.force_diff_based()
    assert caught.value.code == "FLOW_SHARDED"
