"""A driver program on a cluster: a flow in shards whose executors are killed, beside a plain flow.

python sharded_flow.py MASTER FOLDER STATE
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter

import psutil
import pytest

import penstock as ps

QUERIES = {
    "totals": "SELECT customer, SUM(amount) AS total, AVG(rate) AS r FROM orders GROUP BY customer",
    "by_name": "SELECT name, SUM(rate) AS rates, COUNT(*) AS n FROM orders o JOIN customers c ON o.customer = c.id GROUP BY name",
    "top": "SELECT * FROM totals ORDER BY total DESC, customer LIMIT 3",
}


def answers(flow: ps.IncrementalFlow) -> dict[str, Counter[str]]:
    return {name: Counter(map(str, flow.snapshot(name).to_pylist())) for name in (*QUERIES, "orders")}


def declare(flow: ps.IncrementalFlow) -> None:
    flow.register_source("orders", "id BIGINT, customer BIGINT, amount BIGINT, rate DOUBLE", primary_key="id")
    flow.register_source("customers", "id BIGINT, name STRING")
    for name, query in QUERIES.items():
        flow.register_view(name, query)


def orders(first: int, count: int) -> list[dict[str, object]]:
    return [
        {"id": at, "customer": at % 7, "amount": at, "rate": at / 3} for at in range(first, first + count)
    ]


def executors(port: str) -> list[psutil.Process]:
    """The executors of the driver at a port."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in command and any(
            f":{port}" in part for part in command
        ):
            found.append(process)
    return found


def main(master: str, folder: str, state: str) -> None:
    os.environ["PENSTOCK_STATE"] = state
    conf = {
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.task.maxFailures": "8",
    }
    with ps.Session.embedded(master=master, conf=conf) as session:
        port = str(session.spark.sparkContext.getConf().get("spark.driver.port"))
        with pytest.raises(ps.ConfigError, match="on this machine alone"):
            ps.PartitionedIncrementalFlow(session, shards=2)
        plain = ps.IncrementalFlow(session, clock=lambda: 0)
        options = {"path": folder, "durability": "shared", "shared_disk": True, "clock": lambda: 0}
        with ps.PartitionedIncrementalFlow(session, shards=2, **options) as flow:
            for one in (plain, flow):
                declare(one)
                one.tick("customers", [{"id": at, "name": f"n{at % 3}"} for at in range(7)])
                one.tick("orders", orders(0, 100))
            assert answers(flow) == answers(plain)
            killed = executors(port)
            assert len(killed) >= 1, "no executor was found"
            killed[0].send_signal(signal.SIGKILL)
            for one in (plain, flow):
                one.tick("orders", orders(50, 100))
            assert answers(flow) == answers(plain)
            append = flow._runner.journal.append

            def killing(event: object) -> None:
                append(event)  # type: ignore[arg-type]
                executors(port)[0].send_signal(signal.SIGKILL)

            flow._runner.journal.append = killing  # type: ignore[method-assign]
            for one in (plain, flow):
                one.tick("orders", orders(10, 30))
            del flow._runner.journal.append
            for one in (plain, flow):
                one.tick("orders", orders(500, 30))
            assert answers(flow) == answers(plain)
        with ps.PartitionedIncrementalFlow(session, shards=3, **options) as again:
            assert answers(again) == answers(plain)
            for one in (plain, again):
                one.tick("orders", orders(0, 5))
            assert answers(again) == answers(plain)
    print("the same answers")


if __name__ == "__main__":
    main(*sys.argv[1:])
