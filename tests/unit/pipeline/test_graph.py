"""Orders, groups and drawings of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.graph import connected, cycles, graph, mermaid, text, topological
from penstock.pipeline.node import SinkNode, SourceNode
from penstock.pipeline.spec import Kind, NodeSpec, PipelineSpec, Place
from penstock.pipeline.transforms.lookup import LookupNode
from penstock.pipeline.transforms.sql import SqlNode

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sinks.base import Sink
    from penstock.sources.base import Source


class Rows(SourceNode):
    type: str = "rows"

    def source(self, settings: Settings) -> Source:
        raise AssertionError


class Out(SinkNode):
    type: str = "out"

    def sink(self, settings: Settings) -> Sink:
        raise AssertionError


def spec(
    *, sources: str = "", sql: Mapping[str, str] | None = None, sinks: Mapping[str, str]
) -> PipelineSpec:
    nodes: dict[str, NodeSpec] = {}

    def add(kind: Kind, name: str, model: SourceNode | SqlNode | SinkNode) -> None:
        nodes[name] = NodeSpec(kind, name, model, Place("p.yaml", len(nodes) + 1, 1))

    for name in sources.split():
        add("source", name, Rows.model_validate({}))
    for name, query in (sql or {}).items():
        add("transform", name, SqlNode.model_validate({"type": "sql", "sql": query}))
    for name, read in sinks.items():
        add("sink", name, Out.model_validate({"from": read}))
    return PipelineSpec("p", "p.yaml", nodes)


SHOP = spec(
    sources="raw.Orders stores clicks",
    sql={
        "best": "SELECT * FROM joined",
        "joined": "SELECT * FROM RAW.orders JOIN stores USING (id) WHERE dynamic_table_check('vip', id)",
        "vip": "SELECT id FROM raw.orders",
        "pages": "SELECT 'FROM stores' FROM clicks",
    },
    sinks={"out": "Best", "log": "pages"},
)


def test_nodes_stand_behind_what_they_read() -> None:
    first, second = graph(SHOP).groups
    assert [node.name for node in first.nodes] == ["raw.Orders", "stores", "vip", "joined", "best", "out"]
    assert [node.name for node in second.nodes] == ["clicks", "pages", "log"]
    assert [node.name for node in first.sources] == ["raw.Orders", "stores"]
    assert [node.name for node in first.transforms] == ["vip", "joined", "best"]
    assert [node.name for node in first.sinks] == ["out"]


def test_inputs_and_readers_are_named_as_declared() -> None:
    shop = graph(SHOP)
    assert shop.inputs["joined"] == ("raw.Orders", "stores", "vip")
    assert shop.inputs["out"] == ("best",)
    assert shop.readers["raw.Orders"] == ("joined", "vip")
    assert [node.name for node in shop.above("joined")] == ["raw.Orders", "stores", "vip", "joined"]
    assert shop == graph(SHOP)


def test_drawings() -> None:
    assert text(SHOP).splitlines()[3:8] == [
        "joined      transform sql  <- raw.Orders, stores, vip",
        "best        transform sql  <- joined",
        "out         sink out       <- best",
        "",
        "clicks  source rows",
    ]
    drawn = mermaid(SHOP).splitlines()
    assert drawn[:2] == ["flowchart LR", '  n0(["raw.Orders<br/>rows"])']
    assert "  n0 --> n4" in drawn


_GRAPHS = st.dictionaries(
    st.sampled_from("abcdefg"), st.lists(st.sampled_from("abcdefgh"), max_size=3), max_size=7
)


@given(_GRAPHS)
def test_laws(inputs: dict[str, list[str]]) -> None:
    ordered = topological(inputs)
    for place, name in enumerate(ordered):
        assert set(inputs[name]) & inputs.keys() <= set(ordered[:place])
    paths = cycles({name: [other for other in others if other in inputs] for name, others in inputs.items()})
    assert (len(ordered) < len(inputs)) == bool(paths)
    for path in paths:
        assert path[0] == path[-1]
        assert all(after in inputs[name] for name, after in pairwise(path))
    groups = connected(
        {name: [other for other in others if other in inputs] for name, others in inputs.items()}
    )
    assert sorted(name for names in groups for name in names) == sorted(inputs)


def test_a_table_that_nothing_joins_is_no_query() -> None:
    pipeline = spec(sources="a", sinks={"out": "a"})
    table = LookupNode.model_validate({"type": "lookup", "backend": "file", "path": "c.csv"})
    nodes = {**pipeline.nodes, "c": NodeSpec("transform", "c", table, Place("p.yaml", 1, 1))}
    drawn = graph(replace(pipeline, nodes=nodes))
    assert [[node.name for node in group.nodes] for group in drawn.groups] == [["a", "out"], ["c"]]
    assert [[node.name for node in group.nodes] for group in drawn.queries] == [["a", "out"]]
