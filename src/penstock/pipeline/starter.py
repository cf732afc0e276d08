"""Pipelines to begin with: commented, valid, and with rows of their own where they need some."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import indent
from typing import Any

from penstock.errors import ConfigError, suggest
from penstock.pipeline.yaml_tree import resolved


@dataclass(frozen=True, slots=True)
class SourceTemplate:
    """A source of a starter pipeline, and the texts of other nodes that depend on its columns."""

    about: str
    node: str
    yaml: str
    """Its fields; `{data}` is the pattern of its files."""
    key: str
    filtered: str
    """A query that drops some rows."""
    filtered_node: str
    """The name of the node with the rows that are left."""
    grouped: str
    """A query over them that counts and adds up."""
    group: str
    invoke: str
    """A function that does about the same in JavaScript, with its columns."""
    totals: Mapping[str, str]
    """For each transform, what a sink that adds up groups by and adds up."""
    test: str = ""


def _totals(column: str, *, by: str | None = None) -> str:
    grouped = f"\ngroup_by: {by}" if by else ""
    return f"aggregate:\n  rows: {{fn: count}}\n  total: {{fn: sum, from: {column}}}{grouped}"


ORDERS_TEST = """\
# penstock test gives these rows to the sources, and compares what comes out of the nodes.
tests:
  - name: small orders are left out
    given:
      orders:
        - {order_id: 1, customer_id: 7, amount: 120.5, ordered_at: "2026-01-01T10:00:00Z"}
        - {order_id: 2, customer_id: 7, amount: 9.9, ordered_at: "2026-01-01T11:00:00Z"}
    expect:
"""
_ORDERS: Mapping[str, Any] = {
    "node": "orders",
    "key": "order_id",
    "filtered_node": "large_orders",
    "filtered": "SELECT order_id, customer_id, amount, ordered_at\nFROM orders\nWHERE amount > 100",
    "grouped": "SELECT customer_id, count(*) AS orders, sum(amount) AS total\nFROM large_orders\nGROUP BY customer_id",
    "group": "customer_id",
    "invoke": """\
schema: {order_id: int64, customer: string, cents: int64}
# Called for every row: null drops it, an object replaces it, a list of objects stands for several.
script: |
  function invoke(row) {
    if (Number(row.amount) <= 100) return null;
    return {
      order_id: row.order_id,
      customer: `c${row.customer_id}`,
      cents: Math.round(Number(row.amount) * 100),
    };
  }""",
    "totals": {
        "none": _totals("amount", by="customer_id"),
        "sql": _totals("amount", by="customer_id"),
        "view": _totals("total"),
        "script": _totals("cents", by="customer"),
    },
    "test": ORDERS_TEST,
}
_COLUMNS = '{order_id: int64, customer_id: int64, amount: "decimal(10,2)", ordered_at: timestamp}'

_KAFKA = f"""\
type: kafka
topic: ${{TOPIC:-orders}}
bootstrap_servers: ${{PENSTOCK_KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}}
data_format: json
schema: {_COLUMNS}"""
_CLICKHOUSE_URL = "url: ${PENSTOCK_CLICKHOUSE_URL:-http://localhost:8123/default}"
_POSTGRES_URL = (
    "# A password is better in the environment.\n"
    "url: ${PENSTOCK_POSTGRES_URL:-postgresql://postgres@localhost:5432/postgres}"
)
_CATALOG = "# `lake` is a catalog of the settings.\ntable: ${TABLE:-lake.shop.{table}}"

SOURCES: Mapping[str, SourceTemplate] = {
    "file": SourceTemplate(
        about="files of a folder, with rows to begin with",
        yaml=f"""\
type: file
path: {{data}}
format: csv
# Without a schema the types are inferred once.
schema: {_COLUMNS}
# `continuous` goes on with files that come later.
mode: {{type: bounded}}
primary_key: order_id""",
        **_ORDERS,
    ),
    "kafka": SourceTemplate(
        about="records of a topic, in JSON",
        yaml=f"{_KAFKA}\nstarting_offsets: earliest\nprimary_key: order_id",
        **_ORDERS,
    ),
    "postgres": SourceTemplate(
        about="the rows that a table of Postgres has now",
        yaml=f"type: postgres\n{_POSTGRES_URL}\ntable: orders\nprimary_key: order_id",
        **_ORDERS,
    ),
    "postgres_cdc": SourceTemplate(
        about="a table of Postgres, and then every insert, update and delete",
        yaml=f"type: postgres_cdc\n{_POSTGRES_URL}\ntable: orders\nprimary_key: order_id",
        **_ORDERS,
    ),
    "clickhouse": SourceTemplate(
        about="the rows that a table of ClickHouse has now",
        yaml=f"type: clickhouse\n{_CLICKHOUSE_URL}\ntable: orders\nprimary_key: order_id",
        **_ORDERS,
    ),
    "iceberg": SourceTemplate(
        about="a table of a lake, and what is appended to it",
        yaml=f"type: iceberg\n{_CATALOG.replace('{table}', 'orders')}\nprimary_key: order_id",
        **_ORDERS,
    ),
    "hybrid": SourceTemplate(
        about="the history of a table of ClickHouse, then new records of a topic",
        yaml=f"type: hybrid\nhistory:\n  type: clickhouse\n  {_CLICKHOUSE_URL}\n  table: orders\n"
        f"live:\n{indent(_KAFKA, '  ')}\n"
        "# The history gives the rows up to its greatest value, the topic those beyond.\n"
        "cursor: order_id\nprimary_key: order_id",
        **_ORDERS,
    ),
    "rate": SourceTemplate(
        about="rows that are made up, so many per second",
        node="ticks",
        yaml="# Its rows have a `timestamp` and a `value` that counts up from 0.\ntype: "
        "rate\nrows_per_second: 5\nprimary_key: value",
        key="value",
        filtered_node="even_ticks",
        filtered="SELECT value, value % 10 AS digit, timestamp\nFROM ticks\nWHERE value % 2 = 0",
        grouped="SELECT digit, count(*) AS ticks, max(timestamp) AS latest\nFROM even_ticks\nGROUP BY digit",
        group="digit",
        invoke="""\
schema: {value: int64, digit: string}
# Called for every row: null drops it, an object replaces it, a list of objects stands for several.
script: |
  function invoke(row) {
    if (row.value % 2) return null;
    return { value: row.value, digit: `d${row.value % 10}` };
  }""",
        totals={
            "none": _totals("value"),
            "sql": _totals("value", by="digit"),
            "view": _totals("ticks"),
            "script": _totals("value", by="digit"),
        },
    ),
}
TRANSFORMS: Mapping[str, str] = {
    "sql": "rows of each batch through a query: filters, columns, functions",
    "view": "a query over all rows that ever came, kept up to date: joins, aggregates, windows, top-k",
    "script": "each row through a function in JavaScript or TypeScript",
    "none": "rows as they come",
}
SINKS: Mapping[str, tuple[str, str]] = {
    "print": ("rows on the terminal", "type: print"),
    "file": ("files in a folder", "type: file\npath: ${OUT:-{out}}/\nformat: json"),
    "postgres": (
        "a table of Postgres, which is created",
        f"type: postgres\n{_POSTGRES_URL}\ntable: {{table}}",
    ),
    "postgres_aggregate": (
        "sums and counts in a table of Postgres, beside the rows",
        f"type: postgres_aggregate\n{_POSTGRES_URL}\nlanding_table: {{table}}\nagg_table: {{table}}_totals\n{{totals}}",
    ),
    "kafka": (
        "records of a topic",
        "type: kafka\nbootstrap_servers: ${PENSTOCK_KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}\ntopic: {out}",
    ),
    "clickhouse": (
        "a table of ClickHouse, which is created",
        f"type: clickhouse\n{_CLICKHOUSE_URL}\ntable: {{table}}",
    ),
    "iceberg": ("a table of a lake, which is created", f"type: iceberg\n{_CATALOG}"),
    "webhook": (
        "rows posted to a web service",
        "type: webhook\nurl: ${WEBHOOK_URL:-http://127.0.0.1:8000/rows}\n"
        '# headers: {Authorization: "Bearer ${WEBHOOK_TOKEN}"}',
    ),
    "blackhole": ("nowhere: to see how fast the rest is", "type: blackhole"),
    "memory": ("the newest rows, for programs and tests", "type: memory"),
}


_EXPECTED = {
    "sql": 'large_orders: [{order_id: 1, customer_id: 7, amount: 120.5, ordered_at: "2026-01-01T10:00:00Z"}]',
    "view": "by_customer_id: [{customer_id: 7, orders: 1, total: 120.5}]",
    "script": "reshaped: [{order_id: 1, customer: c7, cents: 12050}]",
}


def starter(name: str, *, source: str, transform: str, sink: str, path: str, data: str) -> dict[str, str]:
    """Return the files of a pipeline by their paths: the pipeline at `path`, and what its source reads in `data`."""
    template = SOURCES[require_choice("source", source, SOURCES)]
    require_choice("transform", transform, TRANSFORMS)
    _, sink_yaml = SINKS[require_choice("sink", sink, SINKS)]
    nodes, last = _transforms(transform, template)
    parts = [
        f"# A pipeline: rows go from sources through transforms into sinks.\n"
        f"#   penstock validate {path}\n#   penstock run {path}\n"
        "# ${VAR:-default} is filled in from the environment. penstock schema has the types of nodes and their fields.",
        f"name: {_quoted(name)}",
        f"sources:\n  {template.node}:\n{indent(template.yaml.replace('{data}', _quoted(f'{data}/*.csv')), '    ')}",
    ]
    if nodes:
        parts.append("transforms:\n" + "\n".join(nodes))
    sink_fields = sink_yaml.replace("{out}", f"{name}-out").replace("{table}", last)
    sink_fields = sink_fields.replace("{totals}", template.totals[transform])
    parts.append(f"sinks:\n  out:\n    from: {last}\n{indent(sink_fields, '    ')}")
    text = "\n".join(parts) + "\n"
    if template.test and transform in _EXPECTED:
        text += template.test + indent(_EXPECTED[transform], " " * 6) + "\n"
    files = {path: text}
    if source == "file":
        files[f"{data}/orders.csv"] = orders()
    return files


def _transforms(transform: str, template: SourceTemplate) -> tuple[list[str], str]:
    """The nodes between source and sink as text, and the name of the last one."""
    filtered = (
        f"  {template.filtered_node}:\n    type: sql\n    primary_key: {template.key}\n    # "
        "Any query of Spark over each batch of other nodes.\n"
        f"    sql: |\n{indent(template.filtered, '      ')}"
    )
    if transform == "sql":
        return [filtered], template.filtered_node
    if transform == "view":
        name = f"by_{template.group}"
        view = (
            f"  {name}:\n    type: view\n    primary_key: {template.group}\n"
            f"    # Over all rows that ever came; sinks get what changes.\n    sql: |\n{indent(template.grouped, '      ')}"
        )
        return [filtered, view], name
    if transform == "script":
        fields = f"type: script\nfrom: {template.node}\nlanguage: javascript\nprimary_key: {template.key}\n{template.invoke}"
        return [f"  reshaped:\n{indent(fields, '    ')}"], "reshaped"
    return [], template.node


def orders(count: int = 200) -> str:
    """Return made-up orders as CSV, the same ones every time."""
    lines = ["order_id,customer_id,amount,ordered_at"]
    for number in range(1, count + 1):
        customer = number * 7 % 23 + 1
        cents = number * 7919 % 24_900 + 100
        hour, minute = number // 10 % 24, number * 37 % 60
        at = f"2026-01-{number // 10 % 28 + 1:02}T{hour:02}:{minute:02}:00Z"
        lines.append(f"{number},{customer},{cents // 100}.{cents % 100:02},{at}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A text as YAML takes it for a text."""
    return text if re.fullmatch(r"[\w./*-]+", text) and resolved(text) is text else json.dumps(text)


def require_choice(what: str, name: str, choices: Mapping[str, object]) -> str:
    """Return the name of a choice; an unknown one is an error that suggests the nearest."""
    if name not in choices:
        raise ConfigError(
            f"no {what} '{name}' to begin with", code="USAGE", hint=suggest(name, choices, what=what)
        )
    return name
