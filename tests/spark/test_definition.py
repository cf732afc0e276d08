"""A flow's definition: rebuilt without Spark, it gives the same rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock import DeltaBatch, IncrementalFlow, Session

VIEWS = {
    "totals": "SELECT customer, SUM(amount) AS total, COUNT(*) AS n FROM orders GROUP BY customer",
    "named": "SELECT name, total FROM totals LEFT JOIN customers ON customer = customers.id",
    "best": "SELECT name FROM named ORDER BY total DESC, name LIMIT 2",
    "ranked": "SELECT id, rank() OVER (PARTITION BY customer ORDER BY amount DESC) AS r FROM orders",
    "local": "SELECT id, CAST(at AS DATE) AS day, hour(at) AS hour FROM orders",
    "recent": "SELECT id FROM orders WHERE at > now() - INTERVAL 1 HOUR",
    "reached": """
        WITH RECURSIVE walk(id, customer) AS (
            SELECT id, customer FROM orders WHERE id = 1
            UNION ALL SELECT o.id, o.customer FROM walk JOIN orders o ON o.customer = walk.id AND o.id > walk.id)
        SELECT id FROM walk""",
    "average": "SELECT AVG(CAST(amount AS DOUBLE)) AS a, COLLECT_LIST(id) AS ids FROM orders",
}
SCRIPT = """
import json, sys
from penstock import IncrementalFlow
from pathlib import Path

now = [1_700_000_000_000_000]
flow = IncrementalFlow.from_definition(Path(sys.argv[1]).read_text(), clock=lambda: now[0])
from penstock.data.batch import DeltaBatch
found = []
for source, rows in json.loads(Path(sys.argv[2]).read_text()):
    now[0] += 1_200_000_000
    flow.tick(source, DeltaBatch.weighted(rows))
    found.append({name: flow.snapshot(name).to_pylist() for name in json.loads(sys.argv[3])})
assert "pyspark" not in sys.modules and "py4j" not in sys.modules, "Spark was loaded"
children = Path(f"/proc/self/task/{__import__('os').getpid()}/children").read_text()
assert not children, f"a process was started: {children}"
print(json.dumps(found, default=str))
"""


def order(number: int, customer: int | None, amount: float, minute: int, weight: int = 1) -> dict[str, Any]:
    at = f"2023-11-14T22:{minute:02d}:00Z"
    return {"id": number, "customer": customer, "amount": amount, "at": at, "note": "", "_weight": weight}


TICKS = [
    ("customers", [{"id": 1, "name": "a", "_weight": 1}, {"id": 2, "name": "b", "_weight": 1}]),
    ("orders", [order(number, number % 3, number / 4, number) for number in range(1, 9)]),
    ("orders", [order(2, 2, 0.5, 2, -1), order(20, 8, 9.5, 30), order(21, None, 1.5, 31)]),
    ("customers", [{"id": 1, "name": "a", "_weight": -1}, {"id": 1, "name": "z", "_weight": 1}]),
    ("orders", [order(20, 8, 9.5, 30, -1)]),
]


def declared(session: Session, clock: Any = None) -> IncrementalFlow:
    flow = IncrementalFlow(session, name="shop", clock=clock)
    flow.register_source(
        "orders", "id BIGINT, customer BIGINT, amount DOUBLE, at TIMESTAMP, note STRING", retain="used"
    )
    flow.register_source("customers", "id BIGINT NOT NULL, name STRING", primary_key="id")
    for name, query in VIEWS.items():
        flow.register_view(name, query)
    return flow


def test_a_rebuilt_flow_ticks_without_a_jvm(session: Session, tmp_path: Path) -> None:
    before = session.spark.conf.get("spark.sql.session.timeZone")
    session.spark.conf.set("spark.sql.session.timeZone", "America/Lima")
    try:
        now = [1_700_000_000_000_000]
        flow = declared(session, lambda: now[0])
    finally:
        session.spark.conf.set("spark.sql.session.timeZone", before)
    assert all(flow.explain(name).tier == "kernel" for name in VIEWS)
    text = flow.definition()
    expected = []
    for source, rows in TICKS:
        now[0] += 1_200_000_000
        flow.tick(source, DeltaBatch.weighted(rows))
        expected.append({name: flow.snapshot(name).to_pylist() for name in VIEWS})
    (tmp_path / "flow.json").write_text(text)
    (tmp_path / "ticks.json").write_text(json.dumps(TICKS))
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT,
            str(tmp_path / "flow.json"),
            str(tmp_path / "ticks.json"),
            json.dumps(list(VIEWS)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": "", "JAVA_HOME": str(tmp_path)},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == json.loads(json.dumps(expected, default=str))
    assert expected[0]["best"] == []
    assert len(expected[-1]["best"]) == 2
    assert len(expected[-1]["recent"]) < len(expected[2]["recent"])


@pytest.mark.smoke
def test_a_definition_is_the_same_when_it_is_saved_again(session: Session) -> None:
    text = declared(session).definition()
    again = IncrementalFlow.from_definition(text)
    assert again.name == "shop"
    assert again.definition() == text
    with pytest.raises(ps.StateError) as caught:
        again.snapshot("orders")
    assert caught.value.code == "FLOW_NOT_RETAINED"


def test_what_only_spark_knows_is_asked_for_when_rows_come(session: Session) -> None:
    flow = IncrementalFlow(session)
    flow.register_source("orders", "id BIGINT, customer BIGINT")
    flow.register_view("written", "SELECT id, to_csv(named_struct('id', id)) AS h FROM orders")
    flow.register_view(
        "sketched",
        "SELECT approx_count_distinct(CAST(customer AS STRING) COLLATE UTF8_LCASE) AS n FROM orders",
    )
    session.register_table("countries", [{"customer": 7, "country": "Peru"}])
    flow.register_view("placed", "SELECT id, country FROM orders JOIN countries USING (customer)")
    again = IncrementalFlow.from_definition(flow.definition(), session)
    assert again.snapshot("sketched").to_pylist() == [{"n": 0}]
    for one in (flow, again):
        one.tick("orders", [{"id": 1, "customer": 7}])
    for name in ("written", "sketched", "placed"):
        assert again.snapshot(name).to_pylist() == flow.snapshot(name).to_pylist()
    assert again.explain("written").tier == "spark"


def test_what_cannot_be_saved_or_read_is_said(session: Session) -> None:
    flow = IncrementalFlow(session)
    flow.register_source("orders", "id BIGINT")
    flow.register_view("plain", flow.table("orders").where(F.col("id") > 1))
    assert IncrementalFlow.from_definition(flow.definition()).snapshot("plain").num_rows == 0
    flow.register_view("written", flow.table("orders").select(F.to_csv(F.struct("id"))))
    with pytest.raises(ps.StateError) as caught:
        flow.definition()
    assert caught.value.code == "FLOW_NOT_SAVABLE"
    for text, code in (
        ("rubbish", "STATE_DEFINITION"),
        ("[]", "STATE_DEFINITION"),
        ('{"version": 99}', "STATE_DEFINITION_VERSION"),
    ):
        with pytest.raises(ps.StateError) as caught:
            IncrementalFlow.from_definition(text)
        assert caught.value.code == code
