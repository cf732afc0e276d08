"""Full checkpoints of views that Spark has planned: with static tables, and with plans that another version has made."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import penstock as ps
from penstock import IncrementalFlow, Session
from penstock.state.full_folder import MANIFEST


def rows(flow: IncrementalFlow, view: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in flow.snapshot(view).to_pylist())


def test_views_on_static_tables_and_plans_of_another_version(session: Session, tmp_path: Path) -> None:
    countries = session.spark.createDataFrame(
        [("de", "Germany"), ("fr", "France")], "code STRING, country STRING"
    )
    countries.createOrReplaceTempView("full_countries")
    flow = IncrementalFlow(session)
    flow.register_source("orders", "id BIGINT, code STRING, amount BIGINT", primary_key="id")
    flow.register_view("totals", "SELECT code, SUM(amount) AS total FROM orders GROUP BY code")
    flow.register_view("named", "SELECT country, total FROM totals JOIN full_countries USING (code)")
    flow.tick("orders", [{"id": 1, "code": "de", "amount": 5}, {"id": 2, "code": "fr", "amount": 7}])
    flow.checkpoint_full(tmp_path)
    # The table is another one by now: the flow has the rows that it had.
    session.spark.createDataFrame([("de", "other")], "code STRING, country STRING").createOrReplaceTempView(
        "full_countries"
    )
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    for version in (1, 99):
        for view in manifest["flow"]["views"]:
            view["plan"]["version"] = version
        content = {"flow": manifest["flow"], "files": manifest["files"]}
        manifest["crc"] = zlib.crc32(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
        (tmp_path / MANIFEST).write_text(json.dumps(manifest))
        loaded = IncrementalFlow.load(tmp_path, session)
        for either in (flow, loaded):
            assert rows(either, "named") == [("France", 7), ("Germany", 5)]
        loaded.tick("orders", [{"id": 1, "code": "fr", "amount": 5}])
        assert rows(loaded, "named") == [("France", 12)]
        assert isinstance(loaded.reload_static("full_countries"), ps.StepSummary)
        assert rows(loaded, "named") == []
