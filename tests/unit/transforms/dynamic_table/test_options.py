from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.pipeline.transforms.dynamic_table import DynamicTableNode


def test_a_node_reads_what_its_query_reads() -> None:
    node = DynamicTableNode.model_validate({"backend": "inmemory", "sql": "SELECT id FROM Orders"})
    assert (node.backend, node.inputs({"orders": "orders"})) == ("InMemory", ("orders",))
    assert DynamicTableNode.model_validate({"backend": "postgres", "table": "t"}).inputs({}) == ()


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({"backend": "Postgres"}, "backend Postgres needs `table`"),
        ({"backend": "InMemory", "table": "t"}, "table is no field of the backend InMemory"),
        (
            {"backend": "Postgres", "table": "t", "value_type": "int"},
            "value_type is no field of the backend Postgres",
        ),
        ({"sql": "SELECT 1", "value_type": "int"}, "beside `sql`"),
        ({"backend": "Redis"}, "InMemory"),
    ],
)
def test_what_does_not_fit_is_refused(node: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as raised:
        DynamicTableNode.model_validate(node)
    assert text in str(raised.value)
