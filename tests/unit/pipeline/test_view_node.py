"""Nodes that remember, as the SQL of their views."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.options import OptionsOwner, read_options
from penstock.pipeline.nodes import TRANSFORM_NODES
from penstock.pipeline.transforms.cdc import CdcNode
from penstock.pipeline.transforms.dedup import DedupNode
from penstock.pipeline.transforms.view import ViewNode
from penstock.pipeline.view_node import ViewInput, ViewTransformNode

NAMES = {"orders": "Orders", "shop.items": "shop.items", "changes": "changes"}
COLUMNS = ["id", "At", "price", "removed", "_arrival"]


def _node(kind: type[ViewTransformNode], **fields: Any) -> Any:
    return read_options(kind, fields, owner=OptionsOwner("the node", code="PIPELINE_OPTION"))


@pytest.mark.parametrize("name", ["view", "dedup", "cdc"])
def test_they_are_registered(name: str) -> None:
    node = TRANSFORM_NODES.load(name)
    assert issubclass(node, ViewTransformNode)
    assert all(field.description for field in node.model_fields.values())


def test_a_view_reads_what_its_sql_names() -> None:
    node = _node(ViewNode, sql="SELECT * FROM orders JOIN shop.items USING (id) JOIN lake USING (id)")
    assert node.inputs(NAMES) == ("Orders", "shop.items")
    assert node.reads(NAMES) == (ViewInput("Orders", "Orders"), ViewInput("shop.items", "shop.items"))
    assert node.definition({}) == node.sql
    assert node.keys == ()


def test_changes_are_read_as_a_log() -> None:
    node = _node(CdcNode, **{"from": "Changes"}, primary_key="id", sequence_by="at", scd=2)
    assert node.inputs(NAMES) == ("changes",)
    assert node.reads(NAMES) == (ViewInput("changes", "changes__log", log=True),)
    assert node.keys == ("id", "valid_from")
    assert _node(CdcNode, **{"from": "c"}, primary_key="id", sequence_by="at").keys == ("id",)


def test_columns_are_spelled_as_they_are() -> None:
    node = _node(CdcNode, **{"from": "changes"}, primary_key="ID", sequence_by="at", exclude="removed")
    sql = node.definition({"changes__log": COLUMNS})
    assert "PARTITION BY `id` ORDER BY `At` DESC NULLS LAST, `_arrival` DESC NULLS LAST" in sql
    assert sql.startswith("SELECT * EXCEPT (`_number`, `_gone`, `removed`, `_arrival`) FROM")


def test_deletes_are_those_of_the_operation_unless_said_otherwise() -> None:
    columns = {"changes__log": [*COLUMNS, "_op"]}
    node = _node(CdcNode, **{"from": "changes"}, primary_key="id", sequence_by="at")
    assert "`_op` = 'd'" in node.definition(columns)
    node = _node(
        CdcNode, **{"from": "changes"}, primary_key="id", sequence_by="at", delete_where="removed -- now"
    )
    assert "`_op` =" not in node.definition(columns)
    assert "\nremoved -- now\n" in node.definition(columns)


def test_rows_that_change_by_key_are_no_log_for_dedup() -> None:
    node = _node(DedupNode, **{"from": "orders"}, by="customer", primary_key="id")
    assert node.reads(NAMES, operations={"Orders"}) == (ViewInput("Orders", "Orders"),)
    assert node.reads(NAMES) == (ViewInput("Orders", "Orders__log", log=True),)
    assert node.keys == ("id",)
    assert _node(DedupNode, **{"from": "orders"}, by="customer").keys == ("customer",)


def test_dedup_orders_by_columns_then_as_rows_came() -> None:
    node = _node(DedupNode, **{"from": "orders"}, by="id", keep="last", order_by=["at", "price"])
    sql = node.definition({"Orders__log": COLUMNS})
    assert "ORDER BY `At` DESC NULLS LAST, `price` DESC NULLS LAST, `_arrival` DESC NULLS LAST" in sql
    without = node.definition({"Orders": COLUMNS[:-1]})
    assert "_arrival" not in without
    beside = _node(DedupNode, **{"from": "best"}, by="id", order_by="at").definition({})
    assert "FROM `best`" in beside
    assert "PARTITION BY `id` ORDER BY `at` ASC NULLS LAST" in beside


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (DedupNode, {"from": "orders"}, "the columns in which rows are alike are missing"),
        (CdcNode, {"from": "c", "primary_key": "", "sequence_by": "at"}, "columns of primary_key"),
        (CdcNode, {"from": "c", "primary_key": "id", "sequence_by": ""}, "columns of sequence_by"),
        (
            CdcNode,
            {"from": "c", "primary_key": "id", "sequence_by": "at", "exclude": "ID"},
            "part of the primary key",
        ),
        (CdcNode, {"from": "c", "primary_key": "id", "sequence_by": "at", "scd": 3}, "scd"),
        (ViewNode, {"sql": "SELECT 1", "memory": "much"}, "memory is not a size"),
        (ViewNode, {"sql": "SELECT 1", "shards": 0}, "shards must be a whole number above 0"),
        (ViewNode, {"sql": "SELECT 1", "shard": 2}, "no option 'shard'"),
    ],
)
def test_what_cannot_be_is_refused(
    kind: type[ViewTransformNode], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        _node(kind, **fields)


def test_unknown_and_taken_columns_are_refused() -> None:
    node = _node(CdcNode, **{"from": "changes"}, primary_key="id", sequence_by="att")
    with pytest.raises(ConfigError, match="sequence_by names the column 'att'") as refused:
        node.definition({"changes__log": COLUMNS})
    assert refused.value.code == "PIPELINE_UNKNOWN_COLUMN"
    assert "At" in (refused.value.hint or "")
    node = _node(CdcNode, **{"from": "changes"}, primary_key="id", sequence_by="at", scd=2)
    with pytest.raises(ConfigError, match="have a column 'valid_to'") as refused:
        node.definition({"changes__log": [*COLUMNS, "Valid_To"]})
    assert refused.value.code == "PIPELINE_COLUMN_TAKEN"
