"""Checks across the nodes of a pipeline: names that are read, cycles, keys, and nodes that nothing reads."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.errors import suggest
from penstock.pipeline.graph import cycles, readers_of
from penstock.pipeline.node import RowTransformNode, SinkNode, SourceNode, TransformNode
from penstock.pipeline.problem import MOST_PROBLEMS
from penstock.pipeline.spec import NodeSpec, PipelineSpec, Place
from penstock.pipeline.transforms.dynamic_table import DynamicTableNode
from penstock.pipeline.transforms.lookup import LookupNode
from penstock.pipeline.transforms.sql import MEMBERSHIP, SEVERAL_INPUTS, SqlNode
from penstock.pipeline.transforms.view import ViewNode
from penstock.pipeline.validation import DeclaredNode, Validation
from penstock.pipeline.view_node import ViewTransformNode
from penstock.pipeline.yaml_tree import MappingTree, YamlScalar, plain
from penstock.sql.lexer import Kind as Token
from penstock.sql.lexer import significant
from penstock.sql.relation import RelationName, relations, texts_of_call

UNKNOWN = "PIPELINE_UNKNOWN_NODE"
"""The code of a name that no node has."""
TABLE = "PIPELINE_TABLE"
"""The code of a table whose rows a node takes as if they came."""
NO_INPUT = "PIPELINE_SQL_INPUT"
_JOINING = (SqlNode, DynamicTableNode)
"""The nodes whose queries run for each batch, and join it with tables."""
NEAR = 0.85
FORMATS = {"parquet", "csv", "json", "orc", "avro", "text", "delta", "iceberg", "binaryfile", "spark_catalog"}
"""First parts of relations that Spark reads itself."""


def check_references(spec: PipelineSpec, validation: Validation) -> None:
    """Report what is wrong between nodes; checks that need all nodes are left out when some are wrong."""
    misnaming = set()
    for node in spec.nodes.values():
        if len(validation.problems) > MOST_PROBLEMS:
            return
        before = len(validation.problems)
        _check_names(node, validation)
        if any(problem.code == UNKNOWN for problem in validation.problems[before:]):
            misnaming.add(node.name)
        _check_schema(spec, node, validation)
    inputs = {name: spec.inputs(name) for name in spec.nodes}
    for cycle in cycles(
        {name: [other for other in read if other in inputs] for name, read in inputs.items()}
    ):
        path = " <- ".join(cycle)
        text = f"'{cycle[0]}' reads itself" + ("" if len(cycle) == 2 else f": {path}")
        hint = "what a node reads must be there before it; a recursive query is a view of its own (WITH RECURSIVE)"
        validation.report(_place_of_input(spec.nodes[cycle[0]], cycle[1]), text, hint, "PIPELINE_CYCLE")
    if len(spec.nodes) < len(validation.declared):
        return
    for node in spec.nodes.values():
        # A node that reads a name that there is not may have no other input because of that.
        if node.name not in misnaming:
            _check_inputs(node, inputs[node.name], spec, validation)
    _check_keys(spec, validation)
    if not any(problem.code == UNKNOWN for problem in validation.problems):
        _check_use(spec, inputs, validation)


def _check_names(node: NodeSpec, validation: Validation) -> None:
    model = node.model
    if isinstance(model, RowTransformNode | SinkNode):
        written = _field(node, "from", validation)
        place = node.place_of("from") if written is None else written.place
        _check_name(node, model.from_, place, validation)
    elif isinstance(model, TransformNode):
        written = _field(node, "from", validation)
        name = getattr(model, "from_", None)
        if written is not None and isinstance(name, str):
            _check_name(node, name, written.place, validation)
    if isinstance(model, ViewTransformNode):
        for field in ("sql", "delete_where"):
            _check_asks_no_table(node, field, validation)
    sql = getattr(model, "sql", None)
    if isinstance(model, TransformNode) and isinstance(sql, str):
        _check_query(node, sql, validation)


def _check_name(
    node: NodeSpec, name: str, place: Place, validation: Validation, *, in_query: bool = False
) -> None:
    other = validation.declared.get(name.lower())
    if other is None:
        text = f"the {node.kind} '{node.name}' reads '{name}', and there is no such node"
        validation.report(place, text, suggest(name, _readable(validation), what="node"), UNKNOWN)
    elif other.kind == "sink":
        text = f"the {node.kind} '{node.name}' reads '{other.name}', which is a sink"
        hint = f"read what the sink reads; nodes that can be read: {', '.join(_readable(validation))}"
        validation.report(place, text, hint, UNKNOWN)
    elif (table := validation.nodes.get(other.name)) is not None:
        _check_table(node, table, place, validation, joins=in_query and isinstance(node.model, _JOINING))


def _check_table(
    node: NodeSpec, table: NodeSpec, place: Place, validation: Validation, *, joins: bool
) -> None:
    """Tables beside the rows of others have all of their rows in every batch, or none to read: only queries about a
    batch may read them."""
    reader = f"the {node.kind} '{node.name}'"
    if isinstance(table.model, DynamicTableNode):
        text = f"{reader} reads the dynamic table '{table.name}', which gives no rows"
        hint = f"ask it in a sql node: WHERE {MEMBERSHIP}('{table.name}', a_column)"
        validation.report(place, text, hint, TABLE)
    elif isinstance(table.model, TransformNode) and table.model.is_table and not joins:
        text = f"{reader} reads '{table.name}', a table that only sql nodes join: each batch would have all of its rows again"
        hint = f"read a sql node that joins it: SELECT ... FROM a_node JOIN {table.name} USING (...)"
        if isinstance(table.model, LookupNode):
            hint += f", or give '{table.name}' a `from:`"
        validation.report(place, text, hint, TABLE)


def _check_query(node: NodeSpec, sql: str, validation: Validation) -> None:
    written = _field(node, "sql", validation)
    catalogs = {name.lower() for name in validation.settings.catalogs}
    for relation in relations(sql):
        place = written.place_at(relation.start) if written is not None else node.place_of("sql")
        other = validation.declared.get(relation.name.lower())
        if other is not None or len(relation.parts) == 1:
            _check_name(node, relation.name, place, validation, in_query=True)
        elif relation.parts[0].lower() not in FORMATS | catalogs:
            near = _near(relation, _readable(validation))
            if near is not None:
                text = f"the {node.kind} '{node.name}' reads '{relation.name}', and there is no such node"
                hint = suggest(near, _readable(validation), what="node")
                validation.report(place, text, hint, UNKNOWN)
    for name in texts_of_call(sql, MEMBERSHIP):
        place = written.place_at(max(sql.find(name), 0)) if written is not None else node.place_of("sql")
        other = validation.declared.get(name.lower())
        if other is None or not _is_dynamic_table(other):
            tables = [table.name for table in validation.declared.values() if _is_dynamic_table(table)]
            text = f"the {node.kind} '{node.name}' asks the dynamic table '{name}', and there is none of that name"
            validation.report(place, text, suggest(name, tables, what="dynamic table"), UNKNOWN)
        elif not isinstance(node.model, SqlNode | ViewTransformNode):
            text = f"the {node.kind} '{node.name}' ({node.type}) asks the dynamic table '{name}', and only sql nodes can"
            hint = "ask in a sql node before it: what a table has is looked at once for each row, when the row comes"
            validation.report(place, text, hint, TABLE)


def _is_dynamic_table(node: DeclaredNode) -> bool:
    tree = node.tree
    return isinstance(tree, MappingTree) and getattr(tree.get("type"), "text", None) == "dynamic_table"


def _check_inputs(node: NodeSpec, inputs: Sequence[str], spec: PipelineSpec, validation: Validation) -> None:
    """A query must have rows that come: it would never run, or have the same rows in every batch."""
    model = node.model
    if not isinstance(model, SqlNode | ViewNode):
        return
    models = {name: spec.nodes[name].model for name in inputs if name in spec.nodes}
    rows = [
        name for name, other in models.items() if not (isinstance(other, TransformNode) and other.is_table)
    ]
    if isinstance(model, SqlNode) and model.on_error != "fail" and len(rows) > 1:
        text = f"on_error of '{node.name}': it reads {', '.join(rows)}, and tells only rows of one node apart"
        validation.report(node.place_of("on_error"), text, SEVERAL_INPUTS, "PIPELINE_ON_ERROR")
    if rows:
        return
    written = _field(node, "sql", validation)
    place = node.place_of("sql") if written is None else written.place
    if not inputs:
        names = _readable(validation)
        text = f"the {node.kind} '{node.name}' reads no other node"
        validation.report(place, text, f"the nodes are {', '.join(names[:12])}", NO_INPUT)
    elif models and isinstance(model, SqlNode):
        text = f"the {node.kind} '{node.name}' reads only tables, which have the same rows in every batch"
        validation.report(place, text, "join them with a node whose rows come", NO_INPUT)


def _check_asks_no_table(node: NodeSpec, field: str, validation: Validation) -> None:
    """A view keeps its answer for a row, and a dynamic table changes without a row of the view."""
    text = getattr(node.model, field, None)
    names = texts_of_call(text, MEMBERSHIP) if isinstance(text, str) else ()
    if names and isinstance(text, str):
        written = _field(node, field, validation)
        at = text.lower().find(MEMBERSHIP)
        place = node.place_of(field) if written is None else written.place_at(max(at, 0))
        message = f"the {node.type} '{node.name}' asks the dynamic table '{names[0]}', and what a view said of a row stays when the table changes"
        hint = f"ask it in a sql node that the {node.type} reads: SELECT *, {MEMBERSHIP}('{names[0]}', ...) AS is_member FROM ..."
        validation.report(place, message, hint, "PIPELINE_VIEW")


def _near(relation: RelationName, names: Iterable[str]) -> str | None:
    """The node that a dotted name was meant to be; a table of a catalog is none, though its name may end as a node's."""
    wanted = _squashed(relation.name)
    for name in names:
        other = _squashed(name)
        if wanted == other or ("." in name and _is_near(wanted, other)):
            return name
    return None


def _is_near(wanted: str, other: str) -> bool:
    matcher = difflib.SequenceMatcher(None, wanted, other)
    # The first bound costs next to nothing, and each name is compared with all names of a large file.
    return matcher.real_quick_ratio() >= NEAR and matcher.quick_ratio() >= NEAR and matcher.ratio() >= NEAR


def _squashed(name: str) -> str:
    return name.replace(".", "").replace("_", "").replace("-", "").lower()


def _check_schema(spec: PipelineSpec, node: NodeSpec, validation: Validation) -> None:
    """Columns of a primary key must be among those that a schema declares, of the node or of the one that a sink reads."""
    model = node.model
    if not isinstance(model, SourceNode | TransformNode | SinkNode) or not model.primary_key:
        return
    declaring = node
    if isinstance(model, SinkNode):
        above = spec.nodes.get(spec.inputs(node.name)[0])
        if above is None:
            return
        declaring = above
    tree = validation.declared[declaring.name.lower()].tree
    schema = tree.get("schema") if isinstance(tree, MappingTree) and declaring.kind != "sink" else None
    columns = None if schema is None else declared_columns(plain(schema))
    if columns is None:
        return
    column_names = {column.lower() for column in columns}
    for name in model.primary_key:
        if name.lower() not in column_names:
            text = f"the primary key of the {node.kind} '{node.name}' has '{name}', which is not in the schema of '{declaring.name}'"
            place = node.place_of("primary_key")
            validation.report(place, text, suggest(name, columns, what="column"), "PIPELINE_PRIMARY_KEY")


def declared_columns(schema: Any) -> list[str] | None:
    """Return the columns of a schema as nodes declare it, a mapping or DDL; None when it is neither.

    >>> declared_columns("id BIGINT, price DECIMAL(10, 2), `the tags` MAP<STRING, INT>")
    ['id', 'price', 'the tags']
    """
    if isinstance(schema, Mapping) and schema:
        return [str(name) for name in schema]
    if not isinstance(schema, str) or " " not in schema.strip():
        return None
    columns, depth, begins = [], 0, True
    for token in significant(schema):
        if begins and token.kind in (Token.WORD, Token.NAME):
            columns.append(token.text.strip("`"))
        opened = sum(map(token.text.count, "(<")) - sum(map(token.text.count, ")>"))
        depth += opened if token.kind is Token.SYMBOL else 0
        begins = token.text == "," and depth == 0
    return columns


def _check_keys(spec: PipelineSpec, validation: Validation) -> None:
    for node in spec.of_kind("sink"):
        model = node.model
        if isinstance(model, SinkNode) and model.is_keyed and not spec.may_have_key(node.name):
            text = f"the sink '{node.name}' ({node.type}) needs a primary key, and '{model.from_}' has none"
            hint = f"add primary_key: to the sink, or to '{model.from_}'; output_mode: append keeps every row"
            validation.report(node.place, text, hint, "PIPELINE_PRIMARY_KEY")


def _check_use(spec: PipelineSpec, inputs: Mapping[str, tuple[str, ...]], validation: Validation) -> None:
    readers = readers_of(inputs)
    for node in spec.nodes.values():
        if node.kind != "sink" and node.name not in readers:
            text = f"nothing reads the {node.kind} '{node.name}'"
            hint = "read it in a transform, give it to a sink with from:, or remove it"
            validation.report(node.place, text, hint, "PIPELINE_UNUSED", is_warning=True)


def _readable(validation: Validation) -> list[str]:
    return [node.name for node in validation.declared.values() if node.kind != "sink"]


def _field(node: NodeSpec, name: str, validation: Validation) -> YamlScalar | None:
    """A field of a node as the file has it."""
    tree = validation.declared[node.name.lower()].tree
    value = tree.get(name) if isinstance(tree, MappingTree) else None
    return value if isinstance(value, YamlScalar) else None


def _place_of_input(node: NodeSpec, name: str) -> Place:
    return node.place_of("from") if isinstance(node.model, RowTransformNode) else node.place_of("sql")
