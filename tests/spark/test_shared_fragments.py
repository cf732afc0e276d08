"""Views of one flow whose expressions of Spark's stand at the same places share them only when they are the same."""

from __future__ import annotations

import pytest

import penstock as ps
from golden import canonical

PAIRS = [
    ("SELECT id, exp(x + 1) AS v FROM t", "SELECT id, exp(x + 2) AS v FROM t"),
    ("SELECT id, soundex(concat(s, 'a')) AS v FROM t", "SELECT id, soundex(concat(s, 'l')) AS v FROM t"),
    ("SELECT approx_percentile(x, 0.1) AS v FROM t", "SELECT approx_percentile(x, 0.9) AS v FROM t"),
    ("SELECT id FROM t WHERE exp(x) > 3", "SELECT id FROM t WHERE exp(x) > 100"),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_views_have_their_own_answers(session: ps.Session, one: str, other: str) -> None:
    rows = [{"id": number, "x": float(number), "s": f"s{number}"} for number in range(6)]
    together = ps.IncrementalFlow(session)
    alone = {}
    together.register_source("t", "id INT, x DOUBLE, s STRING")
    for name, query in (("one", one), ("other", other)):
        together.register_view(name, query)
        flow = ps.IncrementalFlow(session)
        flow.register_source("t", "id INT, x DOUBLE, s STRING")
        flow.register_view("v", query)
        flow.tick("t", ps.DeltaBatch.inserts(rows))
        alone[name] = canonical.rows(flow.snapshot("v"))
    together.tick("t", ps.DeltaBatch.inserts(rows))
    assert alone["one"] != alone["other"]
    for name, answer in alone.items():
        assert canonical.rows(together.snapshot(name)) == answer
