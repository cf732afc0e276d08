from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.pipeline.transforms.lookup import LookupNode

POSTGRES = {"backend": "postgres", "table": "customers", "on": "id"}
HTTP = {"backend": "http", "url": "http://h/{id}", "on": "id", "schema": {"name": "string"}, "from": "orders"}


def test_a_node_says_what_it_reads() -> None:
    table = LookupNode.model_validate(POSTGRES)
    assert (table.is_table, table.inputs({})) == (True, ())
    step = LookupNode.model_validate({**POSTGRES, "from": "orders", "on": ["a", "b"], "columns": {"x": "y"}})
    assert (step.is_table, step.inputs({})) == (False, ("orders",))
    assert (step.on, step.columns, step.ttl) == ({"a": "a", "b": "b"}, {"x": "y"}, 300_000)
    http = LookupNode.model_validate(HTTP)
    assert http._own()["schema"] == {"name": "string"}
    assert "http://h" not in repr(http)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({**POSTGRES, "path": "x"}, "path is no field of the backend postgres"),
        ({**POSTGRES, "query": "SELECT 1"}, "either `table` or `query`"),
        ({"backend": "postgres"}, "either `table` or `query`"),
        ({"backend": "file"}, "backend file needs `path`"),
        ({**HTTP, "schema": {}}, "needs `schema`"),
        ({**HTTP, "url": "ftp://h"}, "starts with http://"),
        ({**HTTP, "url": "http://h/{other}"}, "{other}, which is not among the columns of `on`"),
        ({**HTTP, "url": "http://h/"}, "url has no {id}"),
        ({**HTTP, "url": "http://h/{id"}, "a brace that is not closed"),
        ({name: value for name, value in HTTP.items() if name != "from"}, "backend http needs `from`"),
        ({"backend": "postgres", "table": "t", "from": "orders"}, "needs `on`"),
        ({**POSTGRES, "tabel": "x"}, "Extra inputs"),
    ],
)
def test_what_does_not_fit_is_refused(node: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as raised:
        LookupNode.model_validate(node)
    assert text in str(raised.value)
